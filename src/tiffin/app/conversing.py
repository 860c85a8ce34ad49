"""Where a gateway keeps responses: in its memory, or where several do in a file that they share."""

import asyncio

from tiffin.adapters.stores.answers import SqliteCacheStore
from tiffin.app.boot import Boot
from tiffin.app.vault import LaterVault
from tiffin.gateway.cache.shelf import Shelf
from tiffin.gateway.conversations import MemoryConversations, Room
from tiffin.gateway.shared_conversations import SharedConversations
from tiffin.ports.cache import Room as StoreRoom
from tiffin.ports.clock import Clock
from tiffin.ports.conversations import Conversations
from tiffin.types.paths import DataFolder, responses, vault

TEND_EVERY_S = 30.0
ENTRIES = 65_536


class Conversing:
    """The responses of one gateway, from its start to its end."""

    def __init__(self, boot: Boot, data: DataFolder, clock: Clock) -> None:
        self._path = responses(data)
        self._shared: SharedConversations | None = None
        self._store: SqliteCacheStore | None = None
        if boot.server.gateways == 1:
            self.kept: Conversations = MemoryConversations(clock)
            return
        room = StoreRoom(entries=ENTRIES, bytes=Room().all_bytes)
        self._store = SqliteCacheStore(self._path, room)
        sealer = LaterVault(vault(data), boot.server.vault)
        self.kept = self._shared = SharedConversations(Shelf(clock, self._store, sealer))

    async def keep(self) -> None:
        """Let go of what is too old, until cancelled; of everything that several gateways left."""
        if self._shared is None:
            await asyncio.to_thread(self._remove)
        while self._shared is not None:
            await asyncio.sleep(TEND_EVERY_S)
            await self._shared.expire()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def shut(self) -> None:
        """Nothing is looked up or kept after."""
        if self._store is not None:
            self._store.close()
