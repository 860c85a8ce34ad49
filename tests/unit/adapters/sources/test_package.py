"""The `pypi:` address and what it expands to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.sources.package import Part, parts_of
from tiffin.errors import ConfigInvalid


def test_one_member() -> None:
    assert parts_of("pypi:llm-x==0.1.2/llm_x/w.gguf") == [Part("llm-x", "0.1.2", "llm_x/w.gguf")]


def test_braces_count_together_and_keep_their_zeros() -> None:
    assert parts_of("pypi:p{9..10}==1.0.post1/p_{9..10}/d/{09..10}.bin") == [
        Part("p9", "1.0.post1", "p_9/d/09.bin"),
        Part("p10", "1.0.post1", "p_10/d/10.bin"),
    ]


@given(first=st.integers(0, 500), count=st.integers(1, 300), width=st.integers(1, 6))
def test_every_part_has_its_own_number(first: int, count: int, width: int) -> None:
    start = str(first).zfill(width)
    parts = parts_of(f"pypi:a==1/x/{{{start}..{first + count - 1}}}")
    assert [int(part.member.removeprefix("x/")) for part in parts] == [*range(first, first + count)]
    assert len(parts[0].member) == len(f"x/{start}")


@pytest.mark.parametrize(
    "uri",
    [
        "pypi:a==1/x{1..2}y{1..3}",
        "pypi:a==1/x{3..1}",
        "pypi:a==1/x{1..}",
        "pypi:a==1/{b}",
        "pypi:a==1",
        "pypi:a/x",
        "pypi:-r==1/x",
        "pypi:a==1 --index-url=x/y",
        "pypi:a[extra]==1/x",
        "pypi:a @ https://host/x",
    ],
)
def test_anything_else_is_refused(uri: str) -> None:
    with pytest.raises(ConfigInvalid):
        parts_of(uri)
