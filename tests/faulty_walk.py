"""A walk in virtual time over upstreams that fail as they are told."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from tests.virtual_time import LoopClock, in_virtual_time
from tiffin.app.upstreams import timeouts_of
from tiffin.gateway.account import Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.authenticate import Authentication
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.keyring import Keyring
from tiffin.gateway.operations import all_operations
from tiffin.gateway.placement.circuit import Held
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.gateway.pool import Pool
from tiffin.gateway.walk import Stages, Walk
from tiffin.ports.exchange import Exchange
from tiffin.telemetry.events import Attempt, Closed, Opened
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange
from tiffin.testing.faulty import FaultyUpstream, Script
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target

OPERATIONS = all_operations()
TENANTS = ("acme", "bolt")


class Ledger:
    """Collects accounts."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.closed: list[Closed] = []

    def open(self, event: Opened) -> None:
        self.opened.append(event)

    def close(self, event: Closed) -> None:
        self.closed.append(event)


class Walking:
    """`m` is a plan over the upstreams `a`, `b` … in order, one a script; `plan` and each of
    `targets` say what is special about it or them; `held` is what is known from before."""

    def __init__(
        self,
        *scripts: Script,
        targets: Sequence[dict[str, Any]] = (),
        held: dict[str, dict[str, Held]] | None = None,
        **plan: Any,
    ) -> None:
        names = "abcdefgh"[: len(scripts)]
        self.upstreams = {
            name: FaultyUpstream(script) for name, script in zip(names, scripts, strict=True)
        }
        special = [*targets, *[{}] * len(scripts)]
        self.targets = tuple(
            Target(**{"model": name, "revision": name, "kind": "remote", **more})
            for name, more in zip(names, special, strict=False)
        )
        self.ledger = Ledger()
        self.meter = Meter("t", "e")
        clock = LoopClock()
        self.snapshot = Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={digest(name): Principal(tenant=name, key="k") for name in TENANTS},
            tenant_limits={},
            plans={"m": Plan(name="m", identity="m", targets=self.targets, **plan)},
        )
        self.pool = Pool(self._connect, meter=self.meter)
        self.pool.resume(held or {})
        self.pool.adopt(self.snapshot)
        self.accounts = Accounts(self.ledger, self.meter, clock)
        self.admission = Admission(clock, 1000)
        self.walk = Walk(
            Stages(
                snapshot=lambda: self.snapshot,
                authenticate=Authentication(clock, Keyring()),
                admission=self.admission,
                accounts=self.accounts,
                guards=Guards(),
                cache=ReplayCache(self.accounts),
                pool=self.pool,
                max_body_bytes=100_000,
            )
        )

    def _connect(self, target: Target, at: str) -> ClosableBackend:
        return self.upstreams[target.model].backend(timeouts_of(target), key=target.key_env)

    @property
    def a(self) -> FaultyUpstream:
        return self.upstreams["a"]

    @property
    def b(self) -> FaultyUpstream:
        return self.upstreams["b"]

    @property
    def last(self) -> Closed:
        return self.ledger.closed[-1]

    @property
    def attempts(self) -> list[Attempt]:
        """Of all requests."""
        return [one for closed in self.ledger.closed for one in closed.attempts]

    def request(
        self, tenant: str = "acme", within_ms: int = 0, path: str = "chat/completions", **body: Any
    ) -> FakeExchange:
        """A request that waits to be started."""
        headers = [(b"authorization", b"Bearer " + key(tenant).encode())]
        if within_ms:
            headers.append((b"x-request-timeout-ms", b"%d" % within_ms))
        if path == "chat/completions":
            body = {"messages": [{"role": "user", "content": "hi"}], **body}
        whole = msgspec.json.encode({"model": "m", **body})
        return FakeExchange(b"POST", f"/v1/{path}".encode(), headers=headers, body=whole)

    async def handler(self, exchange: Exchange) -> None:
        operation = OPERATIONS.find(exchange.path)
        assert operation is not None
        await self.walk(exchange, operation)

    async def ask(self, tenant: str = "acme", **body: Any) -> FakeExchange:
        """A request, when it has been answered."""
        exchange = self.request(tenant, **body)
        exchange.start(self.handler)
        await exchange.over()
        return exchange

    def settle(self) -> None:
        """L1, and that what the upstreams were hit with is what the ledger says of them."""
        assert sorted(e.id for e in self.ledger.opened) == sorted(e.id for e in self.ledger.closed)
        assert self.admission.in_flight == 0
        assert all(station.running == 0 for station in self.pool._stations.values())
        for name, upstream in self.upstreams.items():
            assert upstream.hits == sum(one.target == name for one in self.attempts), name


def walking(
    work: Callable[[Walking], Awaitable[None]], *scripts: Script, settled: bool = True, **more: Any
) -> Walking:
    """Do this with a walk in virtual time; afterwards its accounts are settled."""

    async def run() -> Walking:
        walk = Walking(*scripts, **more)
        await work(walk)
        walk.pool.close()
        await asyncio.sleep(0.01)
        if settled:
            walk.settle()
        return walk

    return in_virtual_time(run)


def now() -> float:
    return asyncio.get_running_loop().time()


def key(tenant: str) -> str:
    return f"sk-{tenant}-0000000000000000"


def digest(tenant: str) -> str:
    return sha256(key(tenant).encode()).hexdigest()
