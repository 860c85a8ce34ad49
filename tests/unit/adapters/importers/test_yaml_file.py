"""YAML from elsewhere: plain values, or a refusal that quotes nothing and takes no time."""

from pathlib import Path

import pytest

from tiffin.adapters.importers.yaml_file import MAX_BYTES, MAX_VALUES, parsed, read_yaml
from tiffin.errors import ConfigInvalid

BOMB = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (here, here, b",".join([b"*%c" % (here - 1)] * 10))
    for here in range(ord("b"), ord("j"))
)
MERGES = b"a: &a {k: v, l: v}\n" + b"".join(
    b"%c: &%c {<<: [%s]}\n" % (here, here, b",".join([b"*%c" % (here - 1)] * 10))
    for here in range(ord("b"), ord("l"))
)


def test_aliases_and_merges_that_people_write_are_read() -> None:
    text = b"base: &b {rpm: 5, tags: [x]}\none: {<<: *b, rpm: 6}\ntwo: *b\n"
    found = parsed(text, "f")
    assert (found["one"], found["two"]) == ({"rpm": 6, "tags": ["x"]}, {"rpm": 5, "tags": ["x"]})


def test_merges_of_merges_are_no_more_than_their_keys() -> None:
    assert parsed(MERGES, "f")["k"] == {"k": "v", "l": "v"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, f"more than {MAX_VALUES} values"),
        (b"a: &a [*a]\n", "nested over 32 deep"),
        (b"[" * 5000, "can't be|can be read: RecursionError"),
        (b"a: !!python/object/apply:os.system [id]\n", "not YAML"),
        (b"a: [1\nsecret: sk-hidden\n", "not YAML: .* in line"),
        (b"a: 2026-99-99\n", "can be read: ValueError"),
        (b"\xff\xfe\xfa", "not YAML"),
        (b"{[]: 1}: 2\n", "not YAML"),
    ],
    ids=["bomb", "cycle", "deep", "tag", "broken", "no day", "bytes", "odd key"],
)
def test_what_can_not_be_meant_is_refused(text: bytes, told: str) -> None:
    with pytest.raises(ConfigInvalid, match=told) as refusal:
        parsed(text, "config.yaml")
    assert refusal.value.where == "config.yaml"
    assert "hidden" not in refusal.value.message


def test_a_file_that_is_none_or_endless_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such file"):
        read_yaml(tmp_path)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigInvalid, match="longer than"):
        read_yaml(large)
