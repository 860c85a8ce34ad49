"""Responses kept in this process's memory; satisfies `ports.conversations.Conversations`.

They are lost when the process ends. Within its bounds a tenant's oldest goes first; where all
tenants together are over theirs, the oldest of the tenant that holds most goes, so that nobody
can push out what a quiet neighbour keeps.
"""

from dataclasses import dataclass, field

from tiffin.ports.clock import Clock
from tiffin.ports.conversations import Kept

# What an entry costs beside its texts: its objects, its key, its places in two maps.
ENTRY_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much may be kept, and for how long (seconds since it was kept)."""

    one_bytes: int = 1_048_576
    tenant_bytes: int = 16_777_216
    tenant_entries: int = 4096
    all_bytes: int = 134_217_728
    ttl_s: float = 3600.0


@dataclass(slots=True)
class _Shelf:
    """One tenant's responses, the oldest first."""

    entries: dict[str, Kept] = field(default_factory=dict)
    held: int = 0


class MemoryConversations:
    """Keeps no more than `room` allows; every call first lets go of what is too old."""

    def __init__(self, clock: Clock, room: Room | None = None) -> None:
        self._clock = clock
        self._room = room or Room()
        self._shelves: dict[str, _Shelf] = {}
        self._kept_at: dict[tuple[str, str], float] = {}  # the oldest first
        self.held = 0

    def __len__(self) -> int:
        return len(self._kept_at)

    def fits(self, kept: Kept) -> bool:
        """Whether a response isn't larger than what may be kept at all."""
        room = self._room
        most = min(room.one_bytes, room.tenant_bytes, room.all_bytes)
        return _size(kept) <= most and room.tenant_entries > 0

    def keep(self, tenant: str, name: str, kept: Kept) -> bool:
        """Keep a response, in place of what is oldest."""
        room, size = self._room, _size(kept)
        self._expire()
        self.forget(tenant, name)
        if not self.fits(kept):
            return False
        shelf = self._shelves.setdefault(tenant, _Shelf())
        shelf.entries[name] = kept
        shelf.held += size
        self.held += size
        self._kept_at[tenant, name] = self._clock.monotonic()
        while shelf.held > room.tenant_bytes or len(shelf.entries) > room.tenant_entries:
            self._drop_oldest(tenant)
        while self.held > room.all_bytes:
            self._drop_oldest(max(self._shelves, key=lambda name: self._shelves[name].held))
        return name in shelf.entries

    def find(self, tenant: str, name: str) -> Kept | None:
        """What this tenant kept under this id, if it is still here."""
        self._expire()
        shelf = self._shelves.get(tenant)
        return shelf.entries.get(name) if shelf else None

    def forget(self, tenant: str, name: str) -> bool:
        """Let it go; whether there was anything."""
        shelf = self._shelves.get(tenant)
        kept = shelf.entries.pop(name, None) if shelf else None
        if shelf is None or kept is None:
            return False
        del self._kept_at[tenant, name]
        shelf.held -= _size(kept)
        self.held -= _size(kept)
        if not shelf.entries:
            del self._shelves[tenant]
        return True

    async def fetch(self, tenant: str, name: str) -> None:
        """There is no other gateway."""

    def share(self, tenant: str, name: str) -> None:
        """There is no other gateway."""

    def _drop_oldest(self, tenant: str) -> None:
        self.forget(tenant, next(iter(self._shelves[tenant].entries)))

    def _expire(self) -> None:
        born_after = self._clock.monotonic() - self._room.ttl_s
        while self._kept_at:
            (tenant, name), at = next(iter(self._kept_at.items()))
            if at > born_after:
                return
            self.forget(tenant, name)


def _size(kept: Kept) -> int:
    return len(kept.response) + len(kept.items) + ENTRY_BYTES
