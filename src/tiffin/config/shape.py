"""The tree of the file against its types: every setting that doesn't fit, by its path in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from msgspec import inspect

from tiffin.config.models import Model
from tiffin.config.schema import Config

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# In no path, address or name; a line break would be the one place to smuggle a header in.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.DateTimeType: "a date and time with a zone, such as 2027-01-31T18:00:00Z",
}
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.TupleType)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that's wrong: where, what was found, what was expected."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@cache
def root() -> inspect.Type:
    """The type of the whole file."""
    return inspect.type_info(Config)


@cache
def kind_of_models() -> inspect.Type:
    """The type of a model's section, whatever runs it."""
    return inspect.type_info(Model)


def misfits(kind: inspect.Type, value: Any, where: str = "") -> Iterator[Problem]:
    """Everything in `value` that `kind` doesn't allow."""
    match chosen := choose(kind, value):
        case inspect.StructType() if isinstance(value, dict):
            yield from _struct_misfits(chosen, value, where)
        case inspect.DictType() if isinstance(value, dict):
            for name, inner in value.items():
                path = join(where, name)
                yield from _bad_name(chosen.key_type, name, path)
                yield from misfits(chosen.value_type, inner, path)
        case inspect.ListType() | inspect.VarTupleType() if isinstance(value, list):
            for number, inner in enumerate(value):
                yield from misfits(chosen.item_type, inner, f"{where}[{number}]")
        case inspect.TupleType(items) if isinstance(value, list) and len(value) == len(items):
            for number, (item, inner) in enumerate(zip(items, value, strict=True)):
                yield from misfits(item, inner, f"{where}[{number}]")
        case inspect.UnionType():
            yield _no_member(chosen, value, where)
        case _ if not fits(kind, value):
            yield Problem(where, f"found {shown(value)}, expected {expected(kind)}")


def choose(kind: inspect.Type, value: Any) -> inspect.Type:
    """The type without its notes; of several kinds of section, the one that the value names."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return kind
    if isinstance(value, dict):
        for member in _members(kind):
            if value.get(str(member.tag_field)) == member.tag:
                return member
    for plain in kind.types:
        if isinstance(plain, _LISTS) if isinstance(value, list) else fits(plain, value):
            return plain
    return kind


def fields(kind: inspect.StructType) -> dict[str, inspect.Type]:
    """The settings of a section."""
    return {field.name: field.type for field in kind.fields}


def fits(kind: inspect.Type, value: Any) -> bool:
    """Whether a value without parts is of the type and in its bounds."""
    match inner := choose(kind, value):
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType():
            numbers = int if isinstance(inner, inspect.IntType) else int | float
            number = isinstance(value, numbers) and not isinstance(value, bool)
            return number and _bounded(inner, value)
        case inspect.StrType():
            return isinstance(value, str) and _well_formed(inner, value)
        case inspect.LiteralType():
            return value in inner.values
        case inspect.DateTimeType():
            return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(inner, inspect.AnyType)


def expected(kind: inspect.Type) -> str:
    """What a type allows, in words."""
    match kind:
        case inspect.Metadata():
            described = (kind.extra_json_schema or {}).get("description")
            words = described or expected(kind.type)
        case inspect.BoolType() | inspect.DateTimeType():
            words = _PLAIN_WORDS[type(kind)]
        case inspect.IntType():
            words = f"an integer{_bounds(kind)}"
        case inspect.FloatType():
            words = f"a number{_bounds(kind)}"
        case inspect.StrType():
            words = "a text that isn't empty" if kind.min_length else "a text"
        case inspect.LiteralType():
            words = one_of(kind.values)
        case inspect.UnionType() if not _members(kind):
            some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            words = " or ".join(expected(member) for member in some)
        case inspect.ListType() | inspect.VarTupleType():
            words = f"a list, each {expected(kind.item_type)}"
        case inspect.TupleType(items):
            words = f"a list of {len(items)}, each {expected(items[0])}"
        case _:
            words = "a section"
    return words


def one_of(values: Any) -> str:
    """Alternatives, in words."""
    return "one of " + ", ".join(f'"{value}"' for value in values)


def shown(value: Any) -> str:
    """A value as it may stand in a message."""
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = f'"{_CONTROL.sub(lambda found: f"<{ord(found[0]):02x}>", value)}"'
    text = str(value)
    return text if len(text) <= 60 else text[:56] + "…"


def join(where: str, name: str) -> str:
    """The path of a name inside a section."""
    return f"{where}.{name}" if where else name


def nearest(name: str, known: Any) -> str:
    """`; did you mean …?` where a known name is near, else nothing."""
    import difflib

    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _struct_misfits(
    kind: inspect.StructType, value: dict[str, Any], where: str
) -> Iterator[Problem]:
    known = fields(kind)
    for name, inner in value.items():
        if name in known:
            yield from misfits(known[name], inner, join(where, name))
        elif name != kind.tag_field:
            hint = nearest(name, known) or f"; known are {', '.join(sorted(known))}"
            yield Problem(join(where, name), f"no such setting{hint}")
    for field in kind.fields:
        if field.required and field.name not in value:
            yield Problem(join(where, field.name), f"missing, expected {expected(field.type)}")


def _bad_name(kind: inspect.Type, name: str, path: str) -> Iterator[Problem]:
    """Names that others gave, of tensors say, have a type of their own; ours are narrow."""
    if isinstance(kind, inspect.StrType) and kind.max_length:
        if not fits(kind, name):
            yield Problem(path, f"a name has 1 to {kind.max_length} characters")
    elif not NAME.fullmatch(name):
        yield Problem(path, "names have letters, digits, '.', '_', '-', no more than 64 of them")


def _no_member(kind: inspect.UnionType, value: Any, where: str) -> Problem:
    members = _members(kind)
    if not members:
        return Problem(where, f"found {shown(value)}, expected {expected(kind)}")
    if not isinstance(value, dict):
        return Problem(where, f"found {shown(value)}, expected a section")
    tag = str(members[0].tag_field)
    choices = one_of(member.tag for member in members)
    if tag not in value:
        return Problem(join(where, tag), f"missing, expected {choices}")
    return Problem(join(where, tag), f"found {shown(value[tag])}, expected {choices}")


def _members(kind: inspect.UnionType) -> list[inspect.StructType]:
    return [member for member in kind.types if isinstance(member, inspect.StructType)]


def _bounded(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
        and abs(value) < float("inf")
    )


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    limits = (("from", kind.ge), ("above", kind.gt), ("up to", kind.le), ("below", kind.lt))
    return "".join(f" {word} {limit}" for word, limit in limits if limit is not None)


def _well_formed(kind: inspect.StrType, value: str) -> bool:
    if _CONTROL.search(value):
        return False
    if kind.pattern is not None and not re.fullmatch(kind.pattern, value):
        return False
    return (kind.min_length or 0) <= len(value) <= (kind.max_length or len(value))
