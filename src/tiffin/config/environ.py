"""The environment, which nobody else reads: `TIFFIN__SERVER__PORT=9000` sets `server.port`."""

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect

from tiffin.config import shape
from tiffin.config.schema import Tree
from tiffin.errors import ConfigInvalid

PREFIX = "TIFFIN__"


def environment() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables of this process, for libraries that read them and for what it starts."""
    os.environ.update(variables)


def overridden(tree: Tree, environ: Mapping[str, str]) -> Tree:
    """The tree with every `TIFFIN__…` variable in its place, typed as the setting is.

    Parts of a variable's name are compared without case, and `-` and `.` of a name are written
    `_`. Raises `ConfigInvalid` that names the variable.
    """
    found = sorted((name, text) for name, text in environ.items() if name.startswith(PREFIX))
    if not found:
        return tree
    fresh = copy.deepcopy(tree)
    for name, text in found:
        try:
            _place(fresh, name.removeprefix(PREFIX).split("__"), text)
        except _Refused as cause:
            raise ConfigInvalid(f"{cause} (from the environment)", where=name) from None
    return fresh


class _Refused(Exception):
    pass


def _place(tree: Tree, parts: list[str], text: str) -> None:
    kind, section, where = shape.root(), tree, ""
    for depth, part in enumerate(parts):
        name, kind = _step(shape.choose(kind, section), section, part, where)
        where = shape.join(where, name)
        if depth == len(parts) - 1:
            section[name] = _typed(kind, text, where)
            return
        inner = section.setdefault(name, {})
        if not isinstance(inner, dict):
            raise _Refused(f"{where} is no section")
        section = inner


def _step(kind: inspect.Type, section: Tree, part: str, where: str) -> tuple[str, inspect.Type]:
    """The name that a part of a variable means in a section, and that setting's type."""
    match kind:
        case inspect.StructType():
            known = shape.fields(kind)
            for name in _meant(part, known):
                return name, known[name]
        case inspect.DictType():
            known = section
            for name in _meant(part, known):
                return name, kind.value_type
        case _:
            raise _Refused(f"{where} has no settings inside")
    place = shape.join(where, part.lower())
    raise _Refused(f"no such setting: {place}{shape.nearest(part.lower(), known)}")


def _meant(part: str, known: Mapping[str, Any]) -> Iterator[str]:
    for name in known:
        if name.upper().replace("-", "_").replace(".", "_") == part.upper():
            yield name


def _typed(kind: inspect.Type, text: str, where: str) -> Any:
    match shape.choose(kind, None):
        case inspect.StrType() | inspect.LiteralType():
            value: Any = text
        case inspect.ListType() if not text.lstrip().startswith("["):
            value = [item.strip() for item in text.split(",") if item.strip()]
        case _:
            value = _literal(text)
    for problem in shape.misfits(kind, value, where):
        raise _Refused(str(problem))
    return value


def _literal(text: str) -> Any:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except ValueError:
        return text
