"""Answers in this process's memory; satisfies `ports.cache.CacheStore`. They end with it."""

from collections.abc import Sequence

from tiffin.ports.cache import PURGED_NS, Holding, Near, Room, Stored, Which

ROOM = Room(entries=10_000, bytes=67_108_864)


class MemoryCacheStore:
    """Keeps no more than `room` allows."""

    def __init__(self, room: Room = ROOM) -> None:
        self._room = room
        self._shelves: dict[str, dict[bytes, Stored]] = {}  # each the oldest first
        self._sizes: dict[str, int] = {}
        self._purged: dict[Which, int] = {}

    async def find(self, tenant: str, keys: Sequence[bytes]) -> list[Stored]:
        """What is kept there, however old."""
        shelf = self._shelves.get(tenant, {})
        return [shelf[key] for key in keys if key in shelf]

    async def near(self, tenant: str, scope: bytes, at_most: int) -> list[Near]:
        """Entries of a scope."""
        shelf = self._shelves.get(tenant, {}).values()
        found = [Near(one.key, one.asked) for one in shelf if one.scope == scope]
        return found[::-1][:at_most]

    async def keep(self, entries: Sequence[Stored]) -> None:
        """Keep these."""
        for entry in entries:
            self._keep(entry)

    async def purge(self, which: Which, now_ns: int) -> int:
        """Remove these, and those that are being made."""
        self._purged[which] = now_ns
        return self._remove([entry for entry in self._entries() if which.has(entry)])

    async def expire(self, now_ns: int) -> int:
        """Remove what is gone by now."""
        self._purged = {one: at for one, at in self._purged.items() if at > now_ns - PURGED_NS}
        return self._remove([entry for entry in self._entries() if entry.gone_ns <= now_ns])

    async def holdings(self) -> list[Holding]:
        """Who has how much."""
        sums: dict[tuple[str, str], list[int]] = {}
        for entry in self._entries():
            held = sums.setdefault((entry.tenant, entry.model), [0, 0])
            held[0] += 1
            held[1] += entry.size
        return [
            Holding(tenant=tenant, model=model, entries=entries, bytes=size)
            for (tenant, model), (entries, size) in sorted(sums.items())
        ]

    def close(self) -> None:
        """Nothing is open."""

    def _keep(self, entry: Stored) -> None:
        self._drop(entry.tenant, entry.key)
        purged = any(at >= entry.begun_ns and one.has(entry) for one, at in self._purged.items())
        if purged or entry.size > self._room.bytes:
            return
        self._shelves.setdefault(entry.tenant, {})[entry.key] = entry
        self._sizes[entry.tenant] = self._sizes.get(entry.tenant, 0) + entry.size
        while self._is_over():
            most = max(self._sizes, key=lambda tenant: self._sizes[tenant])
            self._drop(most, next(iter(self._shelves[most])))

    def _entries(self) -> list[Stored]:
        return [entry for shelf in self._shelves.values() for entry in shelf.values()]

    def _is_over(self) -> bool:
        entries = sum(map(len, self._shelves.values()))
        return entries > self._room.entries or sum(self._sizes.values()) > self._room.bytes

    def _remove(self, entries: list[Stored]) -> int:
        for entry in entries:
            self._drop(entry.tenant, entry.key)
        return len(entries)

    def _drop(self, tenant: str, key: bytes) -> None:
        shelf = self._shelves.get(tenant, {})
        found = shelf.pop(key, None)
        if found is None:
            return
        self._sizes[tenant] -= found.size
        if not shelf:
            del self._shelves[tenant], self._sizes[tenant]
