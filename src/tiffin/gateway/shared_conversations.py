"""Responses that several gateways share, sealed in a store; satisfies
`ports.conversations.Conversations`.

What the store has is what there is. Memory has what this gateway has just made, and what a request
is about to read.
"""

from collections.abc import Awaitable

import msgspec

from tiffin.errors import NotFound, TiffinError
from tiffin.gateway.cache.shelf import Shelf
from tiffin.gateway.conversations import MemoryConversations, Room
from tiffin.ports.cache import Stored, Which
from tiffin.ports.conversations import Kept
from tiffin.ports.vault import Label
from tiffin.telemetry import log


class SharedConversations:
    """Those of a shelf's store, which seals them; `room` holds for each and for how long."""

    def __init__(self, shelf: Shelf, room: Room | None = None) -> None:
        self._shelf = shelf
        self._room = room or Room()
        self._here = MemoryConversations(shelf.clock, self._room)

    def fits(self, kept: Kept) -> bool:
        """Whether a response isn't larger than what may be kept at all."""
        return self._here.fits(kept)

    def keep(self, tenant: str, name: str, kept: Kept) -> bool:
        """Keep a response; `share` tells the others."""
        return self._here.keep(tenant, name, kept)

    def find(self, tenant: str, name: str) -> Kept | None:
        """What this tenant kept under this id, as it was fetched or made here."""
        return self._here.find(tenant, name)

    def forget(self, tenant: str, name: str) -> bool:
        """Let it go; `share` tells the others."""
        return self._here.forget(tenant, name)

    async def fetch(self, tenant: str, name: str) -> None:
        """Have what any gateway keeps under this id; raises `Unavailable`."""
        found = await self._shelf.store.find(tenant, [name.encode()])
        if not found or found[0].gone_ns <= self._shelf.clock.now_ns():
            self._here.forget(tenant, name)
            return
        try:
            content = await self._shelf.opened(_label(tenant, name), found[0].content)
        except NotFound:  # its tenant's keys were destroyed
            self._here.forget(tenant, name)
        else:
            self._here.keep(tenant, name, msgspec.msgpack.decode(content, type=Kept))

    def share(self, tenant: str, name: str) -> Awaitable[None]:
        """Have every gateway find what is kept here; what can't be told is found nowhere."""
        kept = self._here.find(tenant, name)
        return self._purge(tenant, name) if kept is None else self._put(tenant, name, kept)

    async def expire(self) -> None:
        """Let go of what is too old."""
        await self._shelf.expire()

    async def _put(self, tenant: str, name: str, kept: Kept) -> None:
        now_ns = self._shelf.clock.now_ns()
        gone_ns = now_ns + int(self._room.ttl_s * 1e9)
        try:
            content = await self._shelf.sealed(_label(tenant, name), msgspec.msgpack.encode(kept))
            await self._shelf.store.keep(
                [
                    Stored(
                        tenant=tenant,
                        key=name.encode(),
                        model="",
                        begun_ns=now_ns,
                        fresh_ns=gone_ns,
                        gone_ns=gone_ns,
                        content=content,
                    )
                ]
            )
        except TiffinError as error:  # the answer goes out all the same
            log.warning("response_not_kept", reason=error.message)

    async def _purge(self, tenant: str, name: str) -> None:
        which = Which(tenant=tenant, key=name.encode())
        await self._shelf.store.purge(which, self._shelf.clock.now_ns())


def _label(tenant: str, name: str) -> Label:
    return Label(tenant, "response", name)
