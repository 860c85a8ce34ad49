"""A tree as TOML: sections and tables of sections, values that anybody can read and change."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tree: Mapping[str, Any]) -> str:
    """The text of a tree of mappings, lists, texts, numbers, switches and moments."""
    return "\n".join(_lines(tree, "")).strip("\n") + "\n"


def key_text(name: str) -> str:
    """A name as it stands before `=` or in a header."""
    return name if _BARE.fullmatch(name) else value_text(name)


def value_text(value: Any) -> str:
    """A value as it stands after `=`."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, datetime):
        return value.isoformat()
    # A JSON text is a TOML basic string as well, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(tree: Mapping[str, Any], path: str) -> Iterator[str]:
    """Plain values first, as they belong to the header before; then the sections."""
    for name, value in tree.items():
        if not (isinstance(value, Mapping) or _is_tables(value)):
            yield f"{key_text(name)} = {value_text(value)}"
    for name, value in tree.items():
        inner = f"{path}.{key_text(name)}" if path else key_text(name)
        if isinstance(value, Mapping):
            if any(not isinstance(one, Mapping) and not _is_tables(one) for one in value.values()):
                yield from ("", f"[{inner}]")
            yield from _lines(value, inner)
        elif _is_tables(value):
            for one in value:
                yield from ("", f"[[{inner}]]")
                yield from _lines(one, inner)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)
