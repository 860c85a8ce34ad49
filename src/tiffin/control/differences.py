"""What two configurations have that the other hasn't, setting by setting, as it may be shown."""

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Literal

import msgspec

from tiffin.config.load import masked
from tiffin.config.schema import Config
from tiffin.config.shape import join
from tiffin.types.limits import Rule

SECTIONS = Config.__struct_fields__

# Beside everything in a `limits` section: settings of which less lets less through.
_BOUNDS = frozenset(
    f"server.{name}"
    for name in (
        "max_body_bytes",
        "max_header_bytes",
        "max_headers",
        "max_connections",
        "max_in_flight",
        "request_timeout_s",
    )
)
_SCOPES = ("models", "endpoints")
_NONE = object()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, by its path: `was` what it is, `now` what it would be, without secrets."""

    path: str
    kind: Literal["added", "removed", "changed"]
    was: Any = None
    now: Any = None


class Leaves(dict[str, Any]):
    """The settings of a configuration by their paths, without parts that are the same in `other`.

    `given` are those that aren't as they'd be anyway, `sections` the named parts that there are.
    """

    def __init__(self, config: Config, other: Config | None = None) -> None:
        super().__init__()
        self.given: set[str] = set()
        self.sections: set[str] = set()
        self._add("", config, other)

    def _add(self, where: str, value: Any, other: Any, *, plain: bool = False) -> None:
        if isinstance(value, msgspec.Struct):
            self._add_section(where, value, other)
        elif isinstance(value, dict):
            others = other if isinstance(other, dict) else {}
            for name, inner in value.items():
                if inner != others.get(name, _NONE):
                    self._add_entry(join(where, name), inner, others.get(name))
        else:
            self._put(where, value, plain=plain)

    def _add_entry(self, where: str, value: Any, other: Any) -> None:
        before = len(self.given)
        self.sections.add(where)
        self._add(where, value, other)
        if len(self.given) == before:  # it is there, and that is all
            self._put(where, {}, plain=False)

    def _add_section(self, where: str, section: msgspec.Struct, other: Any) -> None:
        shape = section.__struct_config__
        if shape.tag_field is not None:
            self._put(join(where, shape.tag_field), shape.tag, plain=False)
        for name, default in _defaults(type(section)).items():
            inner = getattr(section, name)
            self._add(join(where, name), inner, getattr(other, name, None), plain=inner == default)

    def _put(self, where: str, value: Any, *, plain: bool) -> None:
        self[where] = value
        if not plain:
            self.given.add(where)


def compared(before: Config, after: Config) -> tuple[list[Change], list[str]]:
    """What differs, and which of it would let less through."""
    was, now = Leaves(before, after), Leaves(after, before)
    return differences(was, now), tighter(was, now)


def differences(before: Leaves, after: Leaves) -> list[Change]:
    """Every setting that differs, in the order of the sections."""
    return sorted(_differences(before, after), key=_place)


def tighter(before: Leaves, after: Leaves) -> list[str]:
    """The settings that would let less through than they do, by their paths.

    What is new bounds nobody who was there; what is gone, a key above all, lets nothing through.
    """
    found = [
        path for path, now in after.items() if path in before and _tighter(path, before[path], now)
    ]
    return [*found, *_harder_budgets(before, after), *_gone_keys(before, after)]


def _differences(before: Leaves, after: Leaves) -> Iterator[Change]:
    for path in before.keys() | after.keys():
        if path not in before:
            if path in after.given and path not in before.sections:
                yield Change(path=path, kind="added", now=_shown(path, after[path]))
        elif path not in after:
            if path in before.given and path not in after.sections:
                yield Change(path=path, kind="removed", was=_shown(path, before[path]))
        elif before[path] != after[path]:
            was, now = _shown(path, before[path]), _shown(path, after[path])
            yield Change(path=path, kind="changed", was=was, now=now)


def _place(change: Change) -> tuple[int, str]:
    return SECTIONS.index(change.path.partition(".")[0]), change.path


def _shown(path: str, value: Any) -> Any:
    return masked(_plain(value), path.rpartition(".")[2])


def _plain(value: Any) -> Any:
    """As it would stand in a file: sections without what is as it'd be anyway."""
    if isinstance(value, msgspec.Struct):
        defaults = _defaults(type(value)).items()
        return {
            name: _plain(getattr(value, name))
            for name, default in defaults
            if getattr(value, name) != default
        }
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return msgspec.to_builtins(value)


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The settings of a section with their defaults; one that has none is equal to nothing."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        made = field.default_factory is not msgspec.NODEFAULT
        found[field.name] = field.default_factory() if made else field.default
    return found


def _tighter(path: str, was: Any, now: Any) -> bool:
    section, _, name = path.rpartition(".")
    if path in _BOUNDS:
        return bool(now < was)
    if name in _SCOPES and ".keys." in section:
        return bool(now) and (not was or not set(now) >= set(was))
    if section.endswith(".limits.per_request"):
        return now is not None and (was is None or now < was)
    if not section.endswith(".limits"):
        return False
    if name == "rules":
        return any(_bites(rule, was) for rule in now)
    # 0 is no limit, and of a burst: as much as goes with the rate.
    return bool(now) and (now < was if was else name != "burst")


def _bites(rule: Rule, before: tuple[Rule, ...]) -> bool:
    """Whether a limit lets less through than all of those that were there."""
    if rule.shadow:
        return False
    alike = msgspec.structs.replace(rule, amount=1, burst=0)
    return not any(
        one.amount <= rule.amount and msgspec.structs.replace(one, amount=1, burst=0) == alike
        for one in before
    )


def _harder_budgets(before: Leaves, after: Leaves) -> Iterator[str]:
    """Hard budgets of who was there that weren't hard, or had more money."""
    for path, hard in after.items():
        section, _, name = path.rpartition(".")
        holder, _, budget = section.partition(".budgets.")
        if not (name == "hard" and hard and budget):
            continue
        amount = f"{section}.amount"
        if before.get(path):
            if Decimal(after[amount]) < Decimal(before[amount]):
                yield amount
        elif any(one == holder or one.startswith(f"{holder}.") for one in before):
            yield path


def _gone_keys(before: Leaves, after: Leaves) -> list[str]:
    marks = (path for path in before if path.endswith(".key_sha256") and ".keys." in path)
    return [mark.removesuffix(".key_sha256") for mark in marks if mark not in after]
