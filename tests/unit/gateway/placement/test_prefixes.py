"""Beginnings are known by their blocks, for their tenant alone, as many as a replica has slots."""

from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.placement.prefixes import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    Line,
    Memory,
    chain_of,
    shared_blocks,
)

BLOCKS = st.lists(st.sampled_from([b"a", b"b"]), max_size=12)


def text(blocks: list[bytes]) -> bytes:
    return b"".join(block * BLOCK_BYTES for block in blocks)


def gone(memory: Memory, tenant: str, blocks: list[bytes]) -> Line | None:
    line = memory.take(tenant, chain_of(text(blocks)))
    if line is not None:
        memory.give(line)
    return line


@given(BLOCKS, BLOCKS, st.binary(max_size=BLOCK_BYTES - 1))
def test_chains_share_as_many_blocks_as_their_texts(
    one: list[bytes], two: list[bytes], rest: bytes
) -> None:
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    assert shared_blocks(chain_of(text(one) + rest), chain_of(text(two))) == same


def test_the_longest_text_has_a_bounded_chain() -> None:
    assert len(chain_of(b"x" * (MAX_BLOCKS + 9) * BLOCK_BYTES)) == MAX_BLOCKS


def test_no_tenant_finds_what_another_left() -> None:
    memory = Memory(4)
    gone(memory, "a", [b"x", b"y"])
    assert memory.warm("a", chain_of(text([b"x", b"y", b"z"]))) == 2
    assert memory.warm("b", chain_of(text([b"x", b"y", b"z"]))) == 0


def test_a_slot_in_use_is_warm_for_nobody_else() -> None:
    memory = Memory(4)
    chain = chain_of(text([b"x", b"y"]))
    line = memory.take("a", chain)
    assert line is not None
    assert memory.warm("a", chain) == 0
    memory.give(line)
    assert memory.warm("a", chain) == 2


def test_a_beginning_that_is_a_small_part_overwrites_nothing() -> None:
    memory = Memory(2)
    gone(memory, "a", [b"x", b"y", b"z", b"w"])
    gone(memory, "a", [b"x", b"q"])
    assert len(memory) == 2
    assert memory.warm("a", chain_of(text([b"x", b"y", b"z", b"w"]))) == 4


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from("ab"), BLOCKS, st.booleans()), max_size=40),
)
def test_there_are_never_more_lines_than_slots(
    slots: int, story: list[tuple[str, list[bytes], bool]]
) -> None:
    memory = Memory(slots)
    held = []
    for tenant, blocks, gives in story:
        line = memory.take(tenant, chain_of(text(blocks)))
        held += [line] if line else []
        if gives and held:
            memory.give(held.pop(0))
        assert len(memory) <= slots
    for line in held:
        memory.give(line)
    assert gone(memory, "a", [b"x"]) is not None
