"""What is kept of answers that may be given again: by tenant and key, bounded, and soon forgotten.

Contract:
- `find` gives what this tenant kept last under these keys, and nothing of any other tenant.
- What is in the store is never more than its `Room`: the oldest of the tenant that has most goes
  first. What is larger than all of it isn't kept.
- After `purge` and `expire` returned nothing of what they removed is left, on disk neither, and no
  process that shares the store finds it. What a `purge` would have removed isn't kept after it
  either, for a day, where its making began before.
- All raise `Unavailable` while the store can't be used; nothing of it is lost to anybody then but
  time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

AROUND_BYTES = 256
"""What an entry takes beside its content."""
PURGED_NS: Final = 86_400_000_000_000
"""How long it is remembered what was purged: longer than any answer is being made."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much a store holds at most."""

    entries: int
    bytes: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a request for `model`, sealed. Moments are UTC nanoseconds.

    Its making began at `begun_ns`; it is good until `fresh_ns`, and is gone from `gone_ns` on.
    Where others may ask the same in other words, `scope` is equal for all that may, and `asked` is
    what was asked, sealed.
    """

    tenant: str
    key: bytes
    model: str
    begun_ns: int
    fresh_ns: int
    gone_ns: int
    content: bytes
    scope: bytes = b""
    asked: bytes = b""

    @property
    def size(self) -> int:
        """The bytes that it counts for."""
        return len(self.content) + len(self.asked) + AROUND_BYTES


class Near(NamedTuple):
    """An entry of a scope: its key, and what was asked, sealed."""

    key: bytes
    asked: bytes


class Which(NamedTuple):
    """Entries: those of a tenant, for a model, under a key; empty is any."""

    tenant: str = ""
    model: str = ""
    key: bytes = b""

    def has(self, entry: Stored) -> bool:
        """Whether an entry is one of them."""
        return (
            self.tenant in ("", entry.tenant)
            and self.model in ("", entry.model)
            and self.key in (b"", entry.key)
        )


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has of one model's answers."""

    tenant: str
    model: str
    entries: int
    bytes: int


class CacheStore(Protocol):
    """The store of answers."""

    async def find(self, tenant: str, keys: Sequence[bytes]) -> list[Stored]:
        """What is kept there, however old, in any order."""
        ...

    async def near(self, tenant: str, scope: bytes, at_most: int) -> list[Near]:
        """Entries of a tenant in a scope, the newest first."""
        ...

    async def keep(self, entries: Sequence[Stored]) -> None:
        """Keep these, in place of what was there, and of what is oldest where there is no room."""
        ...

    async def purge(self, which: Which, now_ns: int) -> int:
        """Remove these, and those of them that are being made now; how many there were."""
        ...

    async def expire(self, now_ns: int) -> int:
        """Remove what is gone by now; how many there were."""
        ...

    async def holdings(self) -> list[Holding]:
        """Who has how much, by tenant and model."""
        ...

    def close(self) -> None:
        """Give back what it holds open."""
        ...
