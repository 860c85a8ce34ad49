"""The gateway's process: one edge, one walk, a pinned snapshot. `python -m tiffin.app.gateway`."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from tiffin.adapters.upstreams.endpoint import Endpoint
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.api.http import Edge
from tiffin.api.oip import Sources, TensorPages
from tiffin.api.public import Desk, PublicSite, answer_error
from tiffin.api.responses import ResponsePages
from tiffin.api.server import EdgeServer
from tiffin.app.boot import FINISH, Boot, cannot_start, enter, read_boot
from tiffin.app.caches import Answers
from tiffin.app.clock import SystemClock
from tiffin.app.conversing import Conversing
from tiffin.app.credentials import PortCredentials, keep_fresh
from tiffin.app.edges import public_edge
from tiffin.app.kept import KeptAnswers
from tiffin.app.left_alone import LeftAlone
from tiffin.app.limits import Limiting
from tiffin.app.odd_keys import OddKeys
from tiffin.app.outbox import ClosingsAfterAnswers, LoopOutbox
from tiffin.app.outlook import StatusOutlook
from tiffin.app.polled_file import PolledFile
from tiffin.app.pulse import beat
from tiffin.app.ring_follower import RingFollower, follow
from tiffin.app.upstreams import upstream
from tiffin.config.tls import context_of
from tiffin.dialects.openai.responses import ResponsesDialect
from tiffin.errors import ConfigInvalid, Unavailable
from tiffin.gateway.account import Accounts
from tiffin.gateway.authenticate import Authentication
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.facts import Facts
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.idempotency.finish import Finishing
from tiffin.gateway.idempotency.stage import Once
from tiffin.gateway.keyring import Keyring
from tiffin.gateway.operations import all_operations
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.gateway.pool import Pool
from tiffin.gateway.share import Share
from tiffin.gateway.walk import Stages, Walk
from tiffin.ports.exchange import Exchange
from tiffin.ports.outbox import Outbox
from tiffin.telemetry.journal import Journal
from tiffin.telemetry.metrics import Meter
from tiffin.types.demand import Demands
from tiffin.types.paths import DataFolder, certificate, keyring_file, sockets
from tiffin.types.snapshot import Snapshot, Target
from tiffin.types.tls import Tls
from tiffin.types.whole_file import replace_file

if TYPE_CHECKING:
    from tiffin.api.grpc_edge import GrpcEdge

SNAPSHOT_EVERY_S = 0.25
METRICS_EVERY_S = 0.5
DEMAND_EVERY_S = 0.5
LIMITS_EVERY_S = 1.0


class Gateway:
    """The parts of one gateway, put together from its boot value."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.data = DataFolder(Path(boot.data))
        self.clock = SystemClock()
        self.meter = Meter("gateway", boot.epoch)
        self.journal = Journal(
            self.data.journal, boot.epoch, max_total_bytes=boot.telemetry.max_journal_bytes
        )
        self.published = PolledFile(self.data.snapshot, Snapshot)
        self.pinned: Snapshot | None = None
        self.keyring = Keyring()
        self.ring = RingFollower(keyring_file(self.data), self.keyring)
        self.authenticate = Authentication(self.clock, self.keyring)
        self.limiting = Limiting(boot, self.clock, self.meter)
        self.admission = self.limiting.admission
        self.odd_keys = OddKeys(self.data, boot.name, self.admission.watch, self.clock)
        self.guards = Guards()
        self.conversing = Conversing(boot, self.data, self.clock)
        self.outbox = LoopOutbox(asyncio.get_running_loop())
        self.pool = Pool(
            partial(connect, outbox=self.outbox),
            StatusOutlook(self.data.run / "status.json"),
            self.meter,
            self._tell_demand,
            Share(boot.ordinal, boot.server.gateways),
        )
        self._metrics_file = self.data.metrics / f"gateway.{boot.epoch}.json"
        self.left_alone = LeftAlone(self.data, boot.name, self.clock)
        self.pool.resume(self.left_alone.read())
        self._demands: Demands = {}
        self.control = Http1Backend(
            Endpoint(authority=b"control", path=str(sockets(self.data.run) / "control.sock"))
        )
        self.in_flight = self.meter.gauge("tiffin_requests_in_flight", "Requests being answered")
        self.kept = KeptAnswers(boot, self.data, self.clock, self.meter)
        self.answers = Answers(boot, self.data, self.clock)
        edge = self._edge()
        tls = boot.server.tls
        self.credentials = PortCredentials(tls, certificate(self.data)) if tls.on else None
        self.server = EdgeServer(
            edge, tls=context_of(self.credentials.current) if self.credentials else None
        )
        self.calls = calls_of(edge, boot, self.credentials)

    def snapshot(self) -> Snapshot:
        """The pinned snapshot; raises `Unavailable` before the first one."""
        if self.pinned is None:
            raise Unavailable("the server has no configuration yet", retry_after=1.0)
        return self.pinned

    def not_ready(self) -> str:
        """Why this gateway isn't ready, or empty."""
        if self.admission.draining:
            return "the server is stopping"
        if self.pinned is None:
            return "there is no configuration yet"
        if not (self.keyring.whole or self.keyring.fault):
            return "the keys are still being read"
        if not self.journal.writable:
            return "the account journal can't be written; is the disk full?"
        return ""

    async def run(self) -> None:
        """Serve until TERM, then finish what runs; on FINISH leave the socket to another one."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._stop_soon)
        self.stopping = asyncio.Event()
        self.leaving = asyncio.Event()
        loop.add_signal_handler(FINISH, self.leaving.set)
        self._follow_snapshot()
        progress = self.data.run / f"{self.boot.name}.progress"
        chores = [
            asyncio.create_task(self._every(SNAPSHOT_EVERY_S, self._follow_snapshot)),
            asyncio.create_task(self._keep_metrics()),
            asyncio.create_task(self._every(DEMAND_EVERY_S, self._tell_demand)),
            asyncio.create_task(self._every(LIMITS_EVERY_S, self._look_at_limits)),
            asyncio.create_task(follow(self.ring)),
            asyncio.create_task(self.limiting.keep()),
            asyncio.create_task(beat(progress, lambda: self.server.started)),
            asyncio.create_task(self.pool.probe_for_ever()),
            asyncio.create_task(self.kept.keep()),
            asyncio.create_task(self.answers.keep()),
            asyncio.create_task(self.conversing.keep()),
            asyncio.create_task(self._drain()),
        ]
        if self.credentials is not None:
            fresh = keep_fresh(self.credentials, self.server, self._wanted_tls)
            chores.append(asyncio.create_task(fresh))
        leaving = asyncio.create_task(self._leave())
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        if self.calls is not None:
            await self.calls.start()
        await self.server.run_on(socket.socket(fileno=self.boot.listen_fd))
        if self.leaving.is_set() and not self.stopping.is_set():
            await leaving
        await self.finishing.end(cut=self.stopping.is_set())
        await self.cache.shut()
        await self.limiting.settled()
        for chore in (leaving, *chores):
            chore.cancel()
        await asyncio.gather(leaving, *chores, return_exceptions=True)
        self.outbox.flush()
        self._measure()
        self.meter.write(self._metrics_file)
        self.journal.shut()
        self.kept.shut()
        self.answers.shut()
        self.conversing.shut()
        self.meter.close()

    def _edge(self) -> Edge:
        server = self.boot.server
        closings = ClosingsAfterAnswers(self.journal, self.outbox)
        accounts = Accounts(closings, self.meter, self.clock)
        self.cache = ReplayCache(accounts, self.answers.shelf)
        walk = Walk(
            Stages(
                snapshot=self.snapshot,
                authenticate=self.authenticate,
                admission=self.admission,
                accounts=accounts,
                guards=self.guards,
                cache=self.cache,
                pool=self.pool,
                max_body_bytes=server.max_body_bytes,
                once=Once(self.kept.register),
            )
        )
        self.finishing = Finishing(walk)
        listings = self.meter.counter("tiffin_listings_total", "Listings answered")
        desk = Desk(
            snapshot=self.snapshot,
            authenticate=self.authenticate,
            not_ready=self.not_ready,
            degraded=lambda: self.limiting.degraded,
            control=self.control,
            clock=self.clock,
            openapi=openapi_document,
            refusals=self.meter.counter(
                "tiffin_refusals_total", "Requests refused before an account", ("reason",)
            ),
            listings=listings,
            open_metrics=is_loopback(server.host),
            responses=ResponsePages(self.conversing.kept),
            tensors=TensorPages(
                Sources(
                    snapshot=self.snapshot,
                    authenticate=self.authenticate,
                    not_ready=self.not_ready,
                    facts=Facts(self.pool, self.clock),
                    control=self.control,
                    clock=self.clock,
                    listings=listings,
                )
            ),
            max_body_bytes=server.max_body_bytes,
        )
        dialect = ResponsesDialect(self.conversing.kept, self._tenant_of, self.clock)
        site = PublicSite(self.finishing, all_operations(dialect), desk)
        return public_edge(site, server, answer_error, self.outbox)

    def _tenant_of(self, exchange: Exchange) -> str:
        return self.authenticate(exchange, self.snapshot()).tenant

    def _follow_snapshot(self) -> None:
        fresh = self.published.changed()
        if fresh is not None and (self.pinned is None or fresh.number > self.pinned.number):
            self.guards.adopt(fresh)
            self.pool.adopt(fresh)
            self.pinned = fresh

    def _wanted_tls(self) -> Tls | None:
        return self.pinned.tls if self.pinned else None

    def _tell_demand(self) -> None:
        """Write what is asked of models that are loaded on demand, where that changed."""
        demands = self.pool.demands()
        if demands == self._demands:
            return
        path = self.data.run / f"{self.boot.name}.demand.json"
        try:
            replace_file(path, msgspec.json.encode(demands), lasting=False)
        except OSError:
            return  # the disk is full: it is tried again soon
        self._demands = demands

    def _look_at_limits(self) -> None:
        self.limiting.tick(self.pinned)
        self.odd_keys.tell()

    def _measure(self) -> None:
        self.journal.retry()
        self.in_flight.set(self.admission.in_flight)
        self.pool.measure()
        self.left_alone.write(self.pool.held())

    async def _keep_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            self._measure()
            await self.meter.write_aside(self._metrics_file)

    async def _every(self, seconds: float, chore: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            chore()

    def _stop_soon(self) -> None:
        self.admission.draining = True
        self.stopping.set()

    async def _leave(self) -> None:
        """After FINISH: whoever is connected is answered once more, or closed when it was idle."""
        await self.leaving.wait()
        self.server.leave()
        if self.calls is not None:
            await self.calls.leave(self.boot.server.request_timeout_s)

    async def _drain(self) -> None:
        """After TERM: let what runs finish, then tell the rest that it can't."""
        await self.stopping.wait()
        running = self.server.running() + self.finishing.running()
        if self.calls is not None:
            running += self.calls.running()
        if running:
            _, late = await asyncio.wait(running, timeout=self.boot.server.drain_s)
            for task in late:
                task.cancel()
        if self.calls is not None:
            await self.calls.stop()
        self.server.stop()


def calls_of(
    edge: Edge, boot: Boot, credentials: PortCredentials | None = None
) -> "GrpcEdge | None":
    """The port for gRPC with the same site as an edge, where one is wanted."""
    if not boot.server.grpc_port:
        return None
    from tiffin.api.grpc_edge import GrpcEdge

    shown = (lambda: credentials.current) if credentials else None
    return GrpcEdge(edge.handler, boot.server, edge.room, shown)


def connect(target: Target, at: str, outbox: Outbox) -> ClosableBackend:
    """The backend of a target at a replica's socket, or an upstream over TCP with its key."""
    if at:
        endpoint = Endpoint(authority=b"replica", path=at)
        return Http1Backend(endpoint, outbox=outbox)
    return upstream(target, outbox)


def openapi_document() -> bytes:
    """The OpenAPI document, made when it is first asked for."""
    from tiffin.dialects.openapi import document

    return document()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(boot: Boot) -> int:
    """Run one gateway to its end; its exit code."""
    try:
        await Gateway(boot).run()
    except ConfigInvalid as failure:
        return cannot_start(boot, failure)
    return 0


def main() -> None:
    """Entry of the process."""
    boot = read_boot(sys.argv)
    enter(boot)
    sys.exit(uvloop.run(serve(boot)))


if __name__ == "__main__":
    main()
