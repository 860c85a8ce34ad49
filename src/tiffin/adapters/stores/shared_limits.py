"""Limits of several gateways in Valkey or Redis; satisfies `ports.limit_store.LimitStore`.

One script does everything, a round trip a call. A reservation is in the store under its name until
it is settled; what couldn't be settled is told again over the next connection, first of all.
"""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import msgspec

from tiffin.adapters.stores.resp import Connection, Refused, Reply
from tiffin.errors import LimitStoreUnavailable
from tiffin.ports.clock import Clock
from tiffin.ports.limit_store import Change, Grant, Kind, Want
from tiffin.telemetry import log

LEASE_S: Final = 10.0
BEAT_S: Final = 2.0
AGAIN_S: Final = 0.5
TRIES: Final = 3

Dial = Callable[[Callable[[str], None]], Awaitable[Connection]]
"""Connects, as somebody who may call; raises `LimitStoreUnavailable`."""

_BASE_BITS: Final = 52
_LOW: Final = (1 << _BASE_BITS) - 1
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(tuple[bool, list[int]]).decode


@dataclass(slots=True)
class Unsettled:
    """A settlement that the store hasn't acknowledged."""

    tenant: str
    keys: list[bytes]
    call: dict[str, Any]
    tries: int = 0


class SharedLimits:
    """One gateway's end; `keep` runs for as long as it is used.

    `epoch` is this life of the gateway, `boot` that of the machine, whose clock rates go by; all
    keys begin with `prefix`. `turned` is called when the store ceases to answer, and when it
    answers again, before anything is asked of it.
    """

    def __init__(
        self,
        dial: Dial,
        clock: Clock,
        epoch: str,
        *,
        boot: str,
        prefix: str = "tiffin",
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        self._dial = dial
        self._clock = clock
        self._epoch = epoch
        self._boot = boot
        self._prefix = prefix
        self._turned = turned
        self._function, self._library = library()
        self._connection: Connection | None = None
        self._closed = asyncio.Event()
        self._names = itertools.count(1)
        self._fence = 0
        self._unsettled: dict[str, Unsettled] = {}
        self._held: dict[str, tuple[str, list[str]]] = {}
        self.why = "it wasn't reached yet"

    @property
    def up(self) -> bool:
        """Whether it answers."""
        return self._connection is not None

    @property
    def unsettled(self) -> int:
        """How many settlements aren't acknowledged."""
        return len(self._unsettled)

    async def reserve(self, tenant: str, wants: Sequence[Want], now: int) -> Grant:
        """Take all or none; raises `LimitStoreUnavailable`."""
        connection = self._connection
        if connection is None:
            raise LimitStoreUnavailable("the store of limits doesn't answer", retry_after=1.0)
        name = str(next(self._names)) if any(want.lasting for want in wants) else ""
        call = self._call("reserve", now, name=name or None, limits=[_wanted(w) for w in wants])
        keys = [self._key(tenant, want) for want in wants]
        try:
            reply = await self._send(connection, tenant, keys, call)
        except BaseException as failure:
            if name:
                self._undo(tenant, name, wants, now)
            if isinstance(failure, Refused):
                connection.close(str(failure))
                raise LimitStoreUnavailable(f"the store of limits: {failure}") from failure
            raise
        taken, pairs = _DECODE(_bytes(reply))
        if taken and name:
            slots = [want.name for want in wants if want.kind is Kind.SLOTS]
            self._held[name] = (tenant, slots)
        levels = [
            (high << _BASE_BITS) + low for high, low in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        return Grant(taken, name, levels)

    def settle(self, tenant: str, name: str, changes: Sequence[Change | None], now: int) -> None:
        """End a grant; where it can't be told now, it is told later."""
        self._held.pop(name, None)
        told = [(place, change) for place, change in enumerate(changes, 1) if change is not None]
        keys = [self._key(tenant, change.want) for _, change in told]
        call = self._call("settle", now, name=name, limits=[_changed(*one) for one in told])
        self._unsettled[name] = Unsettled(tenant, keys, call)
        self._tell(name)

    async def beat(self) -> None:
        """Say that what this gateway holds still runs; `keep` does it every few seconds."""
        if self._connection is not None:
            await self._beat(self._connection)

    async def keep(self) -> None:
        """Connect, again and again where that breaks, and say that this gateway lives."""
        down_since = 0.0
        while True:
            try:
                connection = await self._connect()
            except LimitStoreUnavailable as failure:
                if not down_since:
                    log.warning("limit_store_down", reason=failure.message)
                    down_since = time.monotonic()
                self.why = failure.message
                await asyncio.sleep(AGAIN_S)
                continue
            if down_since:
                log.info("limit_store_up", after_s=round(time.monotonic() - down_since, 3))
            self._turned()
            self._connection, self.why = connection, ""
            self._closed.clear()
            try:
                await self._stay(connection)
            finally:
                self._connection = None
                connection.close()
            log.warning("limit_store_down", reason=self.why)
            down_since = time.monotonic()

    async def _connect(self) -> Connection:
        """A connection over which everything was told that is to be; raises
        `LimitStoreUnavailable`."""
        connection = await self._dial(self._lose)
        try:
            await connection.call(b"FUNCTION", b"LOAD", b"REPLACE", self._library)
            self._fence += 1
            for name in list(self._unsettled):
                self._unsettled[name].call["fence"] = self._fence
                self._tell(name, connection)
            await self._hold(connection)
        except Refused as failure:
            connection.close()
            raise LimitStoreUnavailable(f"the store of limits: {failure}") from failure
        except BaseException:
            connection.close()
            raise
        return connection

    async def _stay(self, connection: Connection) -> None:
        """Say that this gateway lives until the connection has ended."""
        while not connection.over:
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._closed.wait()
            except TimeoutError:
                await self._beat(connection)

    async def _beat(self, connection: Connection) -> None:
        try:
            await self._hold(connection)
        except Refused as failure:
            connection.close(str(failure))
        except LimitStoreUnavailable:
            return

    async def _hold(self, connection: Connection) -> None:
        """What this gateway holds still runs."""
        names: dict[str, list[str]] = {}
        counts: dict[str, dict[str, int]] = {}
        for name, (tenant, slots) in self._held.items():
            names.setdefault(tenant, []).append(name)
            own = counts.setdefault(tenant, {})
            for one in slots:
                own[one] = own.get(one, 0) + 1
        now = int(self._clock.monotonic() * 1e9)
        calls = [connection.call(b"PING")]
        for tenant, held in names.items():
            keys = [self._key(tenant, Want(Kind.SLOTS, one, 0, 0)) for one in counts[tenant]]
            call = self._call("hold", now, names=held, counts=list(counts[tenant].values()))
            calls.append(self._send(connection, tenant, keys, call))
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply

    def _lose(self, reason: str) -> None:
        self.why = reason
        if self._connection is not None:
            self._connection = None
            self._turned()
        self._closed.set()

    def _undo(self, tenant: str, name: str, wants: Sequence[Want], now: int) -> None:
        """Nobody knows whether it was taken; it isn't to be."""
        self.settle(tenant, name, [_undone(want) for want in wants], now)

    def _tell(self, name: str, connection: Connection | None = None) -> None:
        connection = connection or self._connection
        if connection is None:
            return
        one = self._unsettled[name]
        sent = self._send(connection, one.tenant, one.keys, one.call)
        sent.add_done_callback(lambda future: self._told(name, connection, future))

    def _told(self, name: str, connection: Connection, future: "asyncio.Future[Reply]") -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if isinstance(failure, Refused):
            one = self._unsettled[name]
            one.tries += 1
            if one.tries >= TRIES:
                log.error("settlement_refused", tenant=one.tenant, reason=str(failure))
                del self._unsettled[name]
            connection.close(str(failure))
        elif failure is None:
            self._unsettled.pop(name, None)

    def _send(
        self, connection: Connection, tenant: str, keys: Sequence[bytes], call: dict[str, Any]
    ) -> "asyncio.Future[Reply]":
        held = f"{self._prefix}:{{{tenant}}}:held:{self._epoch}".encode()
        count = b"%d" % (len(keys) + 1)
        return connection.call(b"FCALL", self._function, count, held, *keys, _ENCODE(call))

    def _call(self, call: str, now: int, **more: Any) -> dict[str, Any]:
        return {
            "call": call,
            "epoch": self._epoch,
            "fence": self._fence,
            "now_ms": now // 10**6,
            "lease_ms": int(LEASE_S * 1000),
            **more,
        }

    def _key(self, tenant: str, want: Want) -> bytes:
        clock = "" if want.kind is Kind.BUDGET else f":{self._boot}"
        return f"{self._prefix}:{{{tenant}}}:{want.kind.value}{clock}:{want.name}".encode()


def library() -> tuple[bytes, bytes]:
    """The function that the store runs, by a name that another version doesn't have: its name, and
    the library that has it. A function is compiled once, a script's parts are made at each call."""
    code = (files("tiffin.adapters.stores") / "limits.lua").read_bytes()
    name = b"tiffin_limits_" + hashlib.sha256(code).hexdigest()[:16].encode()
    return name, b"#!lua name=%b\n%b" % (name, code.replace(b"NAME", name))


def _wanted(want: Want) -> dict[str, Any]:
    """A want as the script reads it."""
    found = _of(want, want.cost, want.now)
    found["room_high"], found["room_low"] = want.room >> _BASE_BITS, want.room & _LOW
    found["shadow"], found["lasting"] = want.shadow, want.lasting
    if want.kind is Kind.BUDGET:
        found["floor_high"], found["floor_low"] = want.floor >> _BASE_BITS, want.floor & _LOW
        found["keep_ms"] = want.keep_ms
    return found


def _changed(place: int, change: Change) -> dict[str, Any]:
    """A change as the script reads it."""
    found = _of(change.want, abs(change.by), change.now)
    found["place"], found["more"] = place, change.by > 0
    return found


def _of(want: Want, cost: int, now: int) -> dict[str, Any]:
    found = {"kind": want.kind.value, "high": cost >> _BASE_BITS, "low": cost & _LOW}
    if want.kind is Kind.RATE:
        found["now_high"], found["now_low"] = now >> _BASE_BITS, now & _LOW
        found["amount"], found["period"] = want.amount, want.period
        found["at_us"] = now // want.amount // 1000
    return found


def _undone(want: Want) -> Change | None:
    return Change(want, -want.cost, want.now) if want.lasting else None


def _bytes(reply: Reply) -> bytes:
    if not isinstance(reply, bytes):
        raise LimitStoreUnavailable(f"the store of limits says {reply!r}")
    return reply
