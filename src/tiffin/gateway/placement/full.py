"""What a place has just refused, and for how long it would refuse the like of it again.

A replica that refuses early says so with its refusal: until then its like is refused here, without
the hop. At many times a model's capacity that leaves the processor to the requests that are taken.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tiffin.errors import Overloaded

MAX_KEPT: Final = 256
"""Kinds of requests, of all tenants, that a place remembers having refused."""
LIKE_TIME: Final = 1.05
LIKE_SIZE: Final = 0.75
"""Parts of what the refused one had: who has no more time and isn't much smaller is like it."""
LONGEST_S: Final = 1.0
"""Whatever a replica says: a hint that outlives the crowd refuses who would be taken."""


class Kind(NamedTuple):
    """Whose request it is, and how urgent."""

    tenant: str
    batch: bool


class Ask(NamedTuple):
    """A request: its kind, the seconds that it has, and the bytes that it is."""

    kind: Kind
    left_s: float
    size: int


@dataclass(frozen=True, slots=True)
class _Refusal:
    ask: Ask
    until: float
    error: Overloaded


class Full:
    """The refusals of one place that still hold; moments are monotonic seconds."""

    def __init__(self) -> None:
        self._refusals: dict[Kind, _Refusal] = {}

    def __bool__(self) -> bool:
        """Whether it remembers any."""
        return bool(self._refusals)

    def said(self, ask: Ask, error: Overloaded, now: float) -> None:
        """It refused this one, and would refuse its like for `error.full_s`, 1 s at most."""
        if error.full_s <= 0:
            return
        if len(self._refusals) >= MAX_KEPT and ask.kind not in self._refusals:
            self._refusals = {
                kind: refusal for kind, refusal in self._refusals.items() if refusal.until > now
            }
            if len(self._refusals) >= MAX_KEPT:
                return
        until = now + min(error.full_s, LONGEST_S)
        self._refusals[ask.kind] = _Refusal(ask, until, error)

    def refusal(self, ask: Ask, now: float) -> Overloaded | None:
        """The error to refuse this one with, None where it may be let in."""
        refusal = self._refusals.get(ask.kind)
        if refusal is None:
            return None
        if now >= refusal.until:
            del self._refusals[ask.kind]
            return None
        refused, error = refusal.ask, refusal.error
        if ask.left_s > LIKE_TIME * refused.left_s or ask.size < LIKE_SIZE * refused.size:
            return None
        return Overloaded(error.message, retry_after=error.retry_after)
