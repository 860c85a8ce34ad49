"""Patterns of what clients send have to match the whole of it."""

import re
from pathlib import Path

import tiffin

SRC = Path(tiffin.__file__).parent
PATTERN = re.compile(r'pattern=r?f?"([^"]*)"')


def test_no_pattern_lets_a_newline_follow() -> None:
    # What is only in files is matched in full; the kinds of fields.py are the API's too.
    files = [path for path in SRC.rglob("*.py") if path.parent.name != "config"]
    found = [
        pattern
        for path in (*files, SRC / "config" / "fields.py")
        for pattern in PATTERN.findall(path.read_text())
    ]
    assert found
    assert [pattern for pattern in found if not pattern.endswith(r"$(?!\n)")] == []
