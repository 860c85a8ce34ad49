"""The admin API's pages of kept answers: who has how many, and letting go of some."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tiffin.api.admin_openapi import Endpoint, Told
from tiffin.api.costs import answer
from tiffin.dialects.reader import Reader
from tiffin.errors import SchemaViolation
from tiffin.ports.cache import CacheStore, Holding, Which
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange

CACHE: Final = "/admin/v1/cache"
PURGE: Final = "/admin/v1/cache/purge"
MAX_BODY_BYTES: Final = 65_536

Page = Callable[[Exchange], Awaitable[None]]


class CachePage(msgspec.Struct, frozen=True, kw_only=True):
    """Kept answers by tenant and model."""

    data: list[Holding]


class Purge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which answers to let go of: those of a tenant, for a model, under a key as
    `x-tiffin-cache-key` has it; those that are all of what is given, or `all` of them."""

    tenant: str = ""
    model: str = ""
    key: str = ""
    all: bool = False


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were. Nothing of them is left on the disk."""

    entries: int


TOLD: Final[Mapping[Endpoint, Told]] = MappingProxyType(
    {
        ("GET", CACHE): Told("Kept answers by tenant and model", CachePage),
        ("POST", PURGE): Told("Let go of kept answers", Purged, takes={"application/json": Purge}),
    }
)
"""What the document says of them."""

_PURGES = Reader(Purge)


class CachePages:
    """Answers exchanges below `/admin/v1/cache`."""

    def __init__(self, store: CacheStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def pages(self) -> dict[bytes, dict[bytes, Page]]:
        """By path and method."""
        return {
            CACHE.encode(): {b"GET": self._holdings},
            PURGE.encode(): {b"POST": self._purge},
        }

    async def _holdings(self, exchange: Exchange) -> None:
        answer(exchange, CachePage(data=await self._store.holdings()))

    async def _purge(self, exchange: Exchange) -> None:
        wanted = _PURGES.read(await exchange.body(MAX_BODY_BYTES))[0]
        which = Which(wanted.tenant, wanted.model, _bytes_of(wanted.key))
        if wanted.all == any(which):
            raise SchemaViolation(
                "say which answers: one or several of 'tenant', 'model' and 'key', or 'all': true"
            )
        answer(exchange, Purged(entries=await self._store.purge(which, self._clock.now_ns())))


def _bytes_of(key: str) -> bytes:
    try:
        return bytes.fromhex(key)
    except ValueError:
        raise SchemaViolation(
            f"'key' is what x-tiffin-cache-key says, hexadecimal digits, not '{key[:80]}'",
            param="key",
        ) from None
