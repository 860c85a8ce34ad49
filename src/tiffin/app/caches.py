"""What a gateway keeps of answers that may be given again, put together."""

import asyncio

from tiffin.adapters.stores.answers import SqliteCacheStore
from tiffin.app.boot import Boot
from tiffin.app.vault import LaterVault
from tiffin.config.vault import AnswerCache
from tiffin.gateway.cache.shelf import Shelf
from tiffin.ports.cache import Room
from tiffin.ports.clock import Clock
from tiffin.types.paths import DataFolder, answer_cache, vault

TEND_EVERY_S = 30.0


class Answers:
    """The shelf of one gateway, from its start to its end."""

    def __init__(self, boot: Boot, data: DataFolder, clock: Clock) -> None:
        settings = boot.server.cache
        self.store = answer_store(data, settings)
        sealer = LaterVault(vault(data), boot.server.vault)
        self.shelf = Shelf(clock, self.store, sealer, settings.max_answer_bytes)

    async def keep(self) -> None:
        """Let go of what is gone, until cancelled."""
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            await self.shelf.expire()

    def shut(self) -> None:
        """Nothing is looked up or kept after."""
        self.store.close()


def answer_store(data: DataFolder, settings: AnswerCache) -> SqliteCacheStore:
    """The store of a data folder, which all its processes share."""
    return SqliteCacheStore(
        answer_cache(data), Room(entries=settings.max_entries, bytes=settings.max_bytes)
    )
