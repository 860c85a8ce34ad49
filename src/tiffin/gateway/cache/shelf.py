"""Kept answers as the walk knows them: sealed on their way into the store, opened on the way out.

What fails here costs an answer its second use and nothing else.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tiffin.errors import NotFound, TiffinError
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.gateway.respond import Kept
from tiffin.ports.cache import CacheStore, Stored
from tiffin.ports.clock import Clock
from tiffin.ports.vault import Label, Vault
from tiffin.telemetry import log
from tiffin.types.caching import Caching
from tiffin.types.usage import Usage

ANSWER_BYTES = 1_048_576
MAX_KEEPING = 256
OPEN_AT_ONCE = 64


class Remembered(Kept, frozen=True, kw_only=True):
    """An answer, the form that it has, and what it used when it was made."""

    form: str
    usage: Usage = Usage()


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer belongs: whose it is, the model's public name, its key."""

    tenant: str
    model: str
    key: bytes

    @property
    def label(self) -> Label:
        """What it is sealed as."""
        return Label(self.tenant, "cache", self.key.hex())

    @property
    def asked(self) -> Label:
        """What the question that it answers is sealed as."""
        return Label(self.tenant, "cache question", self.key.hex())


class Placed(NamedTuple):
    """An answer and where it belongs; where others may ask for it in other words, their `scope`,
    and what was `asked`."""

    slot: Slot
    answer: Remembered
    scope: bytes = b""
    asked: bytes = b""


class Shelf:
    """Answers in a store. Without a vault they aren't sealed, for a store that ends with us."""

    def __init__(
        self,
        clock: Clock,
        store: CacheStore | None = None,
        vault: Vault | None = None,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.clock = clock
        self.store = store or MemoryCacheStore()
        self.answer_bytes = answer_bytes
        self._vault = vault
        self._fault = ""
        self._keeping = 0

    async def find(self, slots: Sequence[Slot], *, stale: bool = False) -> dict[Slot, Remembered]:
        """The answers that are kept in slots of one tenant, those that are good; with `stale` also
        those that were."""
        found: dict[Slot, Remembered] = {}
        try:
            keys = {slot.key: slot for slot in slots}
            stored = await self.store.find(slots[0].tenant, list(keys))
            now_ns = self.clock.now_ns()
            for at, one in enumerate(stored):
                if at and at % OPEN_AT_ONCE == 0:
                    await asyncio.sleep(0)  # others have their turn
                if now_ns < (one.gone_ns if stale else one.fresh_ns):
                    slot = keys[one.key]
                    content = await self.opened(slot.label, one.content)
                    found[slot] = msgspec.msgpack.decode(content, type=Remembered)
        except NotFound:  # its tenant's keys were destroyed
            return {}
        except (TiffinError, msgspec.DecodeError) as error:
            self._failed(error)
        return found

    async def near(self, slot: Slot, scope: bytes, at_most: int) -> list[tuple[Slot, bytes]]:
        """Where answers of a slot's tenant and model in a scope are, and what was asked for each,
        the newest first."""
        try:
            found = []
            for key, asked in await self.store.near(slot.tenant, scope, at_most):
                one = Slot(tenant=slot.tenant, model=slot.model, key=key)
                found.append((one, await self.opened(one.asked, asked)))
        except NotFound:
            return []
        except TiffinError as error:
            self._failed(error)
            return []
        return found

    async def keep(self, answers: Sequence[Placed], rules: Caching, begun_ns: int) -> None:
        """Keep answers that aren't too large, and whose making began then (UTC); where too much is
        being kept already they aren't."""
        if self._keeping >= MAX_KEEPING:
            return
        self._keeping += 1
        try:
            fit = [one for one in answers if len(one.answer.body) <= self.answer_bytes]
            await self.store.keep([await self._stored(one, rules, begun_ns) for one in fit])
            self._fault = ""
        except TiffinError as error:
            self._failed(error)
        finally:
            self._keeping -= 1

    async def expire(self) -> None:
        """Let go of what is gone."""
        try:
            await self.store.expire(self.clock.now_ns())
        except TiffinError as error:
            self._failed(error)

    async def sealed(self, label: Label, content: bytes) -> bytes:
        """Content as it may be stored."""
        if self._vault is None:
            return content
        await self._ready(self._vault, label.tenant)
        return self._vault.seal(label, content)

    async def opened(self, label: Label, content: bytes) -> bytes:
        """What was sealed; raises `NotFound` where it can't be read any more."""
        if self._vault is None:
            return content
        await self._ready(self._vault, label.tenant)
        return self._vault.open(label, content)

    async def _stored(self, placed: Placed, rules: Caching, begun_ns: int) -> Stored:
        slot, answer, scope, asked = placed
        fresh_ns = self.clock.now_ns() + int(rules.ttl_s * 1e9)
        return Stored(
            tenant=slot.tenant,
            key=slot.key,
            model=slot.model,
            begun_ns=begun_ns,
            fresh_ns=fresh_ns,
            gone_ns=fresh_ns + int(rules.stale_s * 1e9),
            content=await self.sealed(slot.label, msgspec.msgpack.encode(answer)),
            scope=scope,
            asked=await self.sealed(slot.asked, asked) if scope else b"",
        )

    async def _ready(self, vault: Vault, tenant: str) -> None:
        if not vault.ready(tenant):
            await asyncio.to_thread(vault.prepare, tenant)

    def _failed(self, error: Exception) -> None:
        """Say once why nothing is kept, until something is again."""
        reason = error.message if isinstance(error, TiffinError) else "an entry can't be read"
        if reason != self._fault:
            log.warning("cache_unusable", reason=reason)
        self._fault = reason
