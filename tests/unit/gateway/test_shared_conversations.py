"""Responses that several gateways share: one truth for all of them."""

import pytest

from tests.unit.gateway.idempotency.test_once import OpenVault
from tiffin.errors import Unavailable
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.gateway.cache.shelf import Shelf
from tiffin.gateway.conversations import Room
from tiffin.gateway.shared_conversations import SharedConversations
from tiffin.ports.cache import Stored
from tiffin.ports.conversations import Kept
from tiffin.testing.clock import FakeClock

HELLO = Kept(response=b"hello", items=b"[]")


class Store(MemoryCacheStore):
    """One that may be away."""

    away = False

    async def find(self, tenant: str, keys: object) -> list[Stored]:
        if self.away:
            raise Unavailable("the disk is gone")
        return await super().find(tenant, keys)  # type: ignore[arg-type]

    async def keep(self, entries: object) -> None:
        if self.away:
            raise Unavailable("the disk is gone")
        await super().keep(entries)  # type: ignore[arg-type]


class Both:
    """Two gateways on one store."""

    def __init__(self) -> None:
        self.clock, self.store, self.vault = FakeClock(), Store(), OpenVault()
        room = Room(ttl_s=10.0)
        self.one, self.other = (
            SharedConversations(Shelf(self.clock, self.store, self.vault), room) for _ in range(2)
        )

    async def says(self, gateway: SharedConversations, tenant: str = "t") -> Kept | None:
        await gateway.fetch(tenant, "r")
        return gateway.find(tenant, "r")

    async def keep(self) -> None:
        assert self.one.keep("t", "r", HELLO)
        await self.one.share("t", "r")


async def test_what_one_keeps_the_other_finds_for_its_tenant_and_its_time() -> None:
    both = Both()
    await both.keep()
    assert await both.says(both.other) == HELLO
    assert await both.says(both.other, "another") is None
    both.clock.advance(10.0)
    assert await both.says(both.one) is await both.says(both.other) is None
    await both.one.expire()
    assert await both.store.find("t", [b"r"]) == []


async def test_what_one_lets_go_no_other_has_either() -> None:
    both = Both()
    await both.keep()
    assert await both.says(both.other) == HELLO
    assert both.other.forget("t", "r")
    await both.other.share("t", "r")
    assert await both.says(both.one) is None


async def test_what_its_tenants_keys_opened_is_gone_with_them() -> None:
    both = Both()
    await both.keep()
    both.vault.shut = True
    assert await both.says(both.one) is await both.says(both.other) is None


async def test_while_the_store_is_away_nothing_is_found_by_chance() -> None:
    both = Both()
    both.store.away = True
    await both.keep()  # its answer goes out all the same
    with pytest.raises(Unavailable):
        await both.says(both.one)
    both.store.away = False
    assert await both.says(both.one) is await both.says(both.other) is None
