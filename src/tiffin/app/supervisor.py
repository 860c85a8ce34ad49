"""The first process: owns the public port and all other processes of one data folder.

It holds no request and no state that another start couldn't find again: killing it ends its
children with it, and the next one picks up from the folder.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec

from tiffin.app.claim import url
from tiffin.app.console import Console, Download, PatientConsole
from tiffin.app.gateways import Gateways, until_ready
from tiffin.app.handover import Handover, Replica, write
from tiffin.app.herald import Herald
from tiffin.app.keeper import Keeper
from tiffin.app.log_file import LogFile
from tiffin.app.options import Options
from tiffin.app.polled_file import PolledFile
from tiffin.app.posts import Posts
from tiffin.app.replicas import Replicas
from tiffin.app.residency import Machine, Residency, kept
from tiffin.app.succession import SIGNALS, become, possessions
from tiffin.app.upgrade import Request, Upgrades, checked
from tiffin.app.warm_pool import wanted_size
from tiffin.control.applied import in_force, life_of
from tiffin.control.fleet.budget import budget_bytes
from tiffin.control.fleet.measured import Measured
from tiffin.control.fleet.status import Stage, State, Status
from tiffin.errors import Conflict
from tiffin.telemetry.log import set_up
from tiffin.telemetry.metrics import Meter
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder, measured_file
from tiffin.types.snapshot import Deployment
from tiffin.types.whole_file import replace_file

LOOK_S = 0.1
LOOK_HURRIED_S = 0.05
CHORES_EVERY_S = 0.5
# A shell or `timeout` that signals both a process and its group doesn't mean it twice.
SAME_SIGNAL_S = 0.1
TAKEN_WITHIN_S = 60.0
"""How long what is new may take to be ready before what serves goes on instead."""

_LOG = logging.getLogger("tiffin.supervisor")


class _Wanted(msgspec.Struct):
    """The part of a snapshot that is about processes."""

    deployments: tuple[Deployment, ...] = ()
    leaving: dict[str, int] = {}


class _Fetching(msgspec.Struct):
    """What control says about downloads."""

    downloads: tuple[Download, ...] = ()


def run(options: Options, console: Console) -> None:
    """Serve until TERM or INT, then drain and end everything; call it on the main thread.

    Raises `Conflict` when the data folder is being served already and `ConfigInvalid` when the
    folder or the port can't be used.
    """
    os.umask(0o077)
    with possessions(options) as (lock, listener), PatientConsole(console) as patient:
        log_file = LogFile(DataFolder(options.data).logs, options.telemetry.max_log_bytes)
        set_up(process="supervisor", level=options.telemetry.log_level, write=log_file.write)
        if options.lost:
            _LOG.error("everything starts anew", extra={"fields": {"reason": options.lost}})
        try:
            asyncio.run(Supervisor(options, lock, listener, log_file, patient).run())
        finally:
            log_file.close()


class Supervisor:
    """Keeps control, gateway and the snapshot's replicas running, until it is told to stop."""

    def __init__(
        self,
        options: Options,
        lock: int,
        listener: socket.socket,
        log_file: LogFile,
        console: PatientConsole,
    ) -> None:
        self._options = options
        self._folder = DataFolder(options.data)
        self._lock = lock
        self._listener = listener
        self._address = url(listener, options.server.tls.scheme)
        self._console = console
        taken = options.taken
        self._herald = Herald(console, self._address, served=taken is not None)
        self._posts = posts = Posts(options, listener, log_file, self._herald)
        self._accelerators, self._warm = posts.accelerators, posts.warm
        self._upgrades = Upgrades(self._folder.run, taken.upgrade if taken else None)
        self._upgrading: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._version = version("tiffin")  # read from disk: not again at each look
        self._started_ns = taken.started_ns if taken else time.time_ns()
        self._written: Status | None = None
        self._meter = Meter("supervisor", new_id("ep"))
        self._metrics = self._folder.metrics / f"supervisor.{self._meter.epoch}.json"
        self._seen_to = 0.0
        self._asked = 0.0
        self._had_terminal = has_terminal()

    async def run(self) -> None:
        """Return when everything has ended after TERM or INT; a second one doesn't wait."""
        async with asyncio.TaskGroup() as group:
            crew = self._crew(group)
            self._listen_to_signals(crew)
            self._begin(crew)
            following = group.create_task(self._follow(crew))
            if self._options.taken is not None:
                self._upgrading = group.create_task(self._go_on(crew))
            await self._stopping.wait()
            # Its copy of the port would otherwise let clients connect to nobody.
            self._listener.close()
            # Whoever told all of us to end mustn't make us start what ended.
            for keeper in crew.everyone:
                keeper.retire()
            if self._upgrading is not None:
                self._upgrading.cancel()
            await crew.gateways.stop()
            await crew.replicas.stop()
            await crew.control.stop()
            following.cancel()
            crew.residency.close()
            await self._warm.close()

    def _crew(self, group: asyncio.TaskGroup) -> "_Crew":
        server = self._options.server
        replicas = Replicas(group, self._posts.replica, server.request_timeout_s)
        machine = Machine(
            self._folder.run,
            budget_bytes(server.memory_mb),
            Measured(measured_file(self._folder)),
        )
        finish_s = server.request_timeout_s + server.keep_alive_s
        return _Crew(
            group=group,
            gateways=Gateways(group, self._posts.gateway, finish_s, server.gateways),
            control=self._posts.control(),
            replicas=replicas,
            residency=Residency(replicas, machine, self._meter, self._herald.say),
        )

    def _listen_to_signals(self, crew: "_Crew") -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop, crew)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, crew)
        # They wait while one program takes the place of another.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _begin(self, crew: "_Crew") -> None:
        """Have processes: those that were left to us, else gateways and control."""
        taken = self._options.taken
        if taken is None:
            crew.group.create_task(crew.control.keep())
            crew.gateways.start()
            return
        crew.gateways.adopt(taken.gateways, taken.gateways_made, taken.gateways_serving)
        crew.control.adopt(taken.control)
        crew.group.create_task(crew.control.keep())
        for one in taken.replicas:
            crew.replicas.adopt(one.deployment, one.kept, leaving=one.leaving)
        self._accelerators.promises = dict(taken.promises)
        crew.residency.adopted()
        # What isn't to be followed yet is wanted all the same, as it was until now.
        published = PolledFile(self._folder.snapshot, _Wanted).changed()
        running = tuple(one.deployment for one in taken.replicas if not one.leaving)
        wanted = published or _Wanted(running)
        crew.residency.follow(wanted.deployments, wanted.leaving)
        self._upgrades.at(Stage.CONTROL, version=version("tiffin"))

    async def _go_on(self, crew: "_Crew") -> None:
        """After a take-over: control anew, gateways beside the old ones, which then leave."""
        await crew.control.stop()
        crew.control = self._posts.control()
        crew.group.create_task(crew.control.keep())
        reason = await until_ready(crew.control, TAKEN_WITHIN_S)
        if not reason:
            self._upgrades.at(Stage.GATEWAY)
            reason = await crew.gateways.replace(TAKEN_WITHIN_S)
        if reason:
            self._upgrades.at(Stage.FAILED, reason=reason)
            self._herald.say(f"upgrade: {reason}; what was there goes on")
        else:
            done = self._upgrades.at(Stage.DONE)
            self._herald.say(f"upgraded from {done.version_before} to {done.version}")

    async def _follow(self, crew: "_Crew") -> None:
        snapshot = PolledFile(self._folder.snapshot, _Wanted)
        fetching = PolledFile(self._folder.run / "fetch.json", _Fetching)
        while True:
            if not self._stopping.is_set():
                # In an upgrade replicas come last.
                if not self._upgrades.busy and (wanted := snapshot.changed()) is not None:
                    await self._accelerators.known(wanted.deployments)
                    crew.residency.follow(wanted.deployments, wanted.leaving)
                crew.residency.look()
                self._accelerators.follow([keeper.status for keeper in crew.replicas.keepers])
                if (now := time.monotonic()) - self._seen_to >= CHORES_EVERY_S:
                    self._seen_to = now
                    self._keep_warm(crew)
                    self._meter.write(self._metrics)
                if (request := self._upgrades.asked()) is not None:
                    self._upgrading = crew.group.create_task(self._upgrade(crew, request))
            if (fetch := fetching.changed()) is not None:
                self._herald.downloads(fetch.downloads)
            self._write_status(crew)
            await asyncio.sleep(LOOK_HURRIED_S if crew.residency.hurried else LOOK_S)

    async def _upgrade(self, crew: "_Crew", request: Request) -> None:
        """Become another program, if that can be; it doesn't return then."""
        before = version("tiffin")
        self._upgrades.at(Stage.CHECKING, version_before=before)
        try:
            given = self._options.config_path
            force = in_force(self._folder, Path(given) if given else None, life_of(os.getpid()))
            configs = {given, str(force or "")}
            memory = write(self._handover(crew))
            try:
                to = await checked(self._posts.launcher, request.python, memory, sorted(configs))
            finally:
                os.close(memory)
            self._upgrades.at(Stage.TAKING_OVER, version=to)
            self._herald.say(f"upgrade from {before} to {to} ({request.python})")
            self._write_status(crew)
            await self._warm.close()
            crew.residency.close()
            self._herald.downloads(())
            self._console.settle()
            port = self._listener.getsockname()[1]
            become(request.python, self._options, port, self._handover(crew))
        except (Conflict, OSError) as failure:
            self._upgrades.at(Stage.FAILED, reason=str(failure))
            self._herald.say(f"upgrade refused: {failure}")

    def _handover(self, crew: "_Crew") -> Handover:
        if self._upgrades.status is None:
            raise ValueError("nothing is under way")
        return Handover(
            data=str(self._folder.root),
            listener_fd=self._listener.fileno(),
            lock_fd=self._lock,
            started_ns=self._started_ns,
            upgrade=self._upgrades.status,
            control=crew.control.kept,
            gateways=tuple(keeper.kept for keeper in crew.gateways.lasting),
            gateways_made=crew.gateways.made,
            gateways_serving=crew.gateways.serving,
            replicas=tuple(
                Replica(deployment=deployment, kept=keeper.kept, leaving=leaving)
                for deployment, keeper, leaving in crew.replicas.handed
            ),
            promises=self._accelerators.promises,
        )

    def _asked_to_stop(self, crew: "_Crew") -> None:
        asked, self._asked = self._asked, time.monotonic()
        if not self._stopping.is_set():
            self._herald.stopping()
            self._stopping.set()
        elif self._asked - asked > SAME_SIGNAL_S:
            for keeper in crew.everyone:
                keeper.kill()

    def _hung_up(self, crew: "_Crew") -> None:
        """HUP has two meanings: the terminal has gone, or please read the configuration again."""
        if self._had_terminal and not has_terminal():
            self._asked_to_stop(crew)
        else:
            crew.control.signal(signal.SIGHUP)

    def _keep_warm(self, crew: "_Crew") -> None:
        # Whoever starts now needs the processor more, and nobody is to start before a take-over.
        starting = any(keeper.status.state is State.STARTING for keeper in crew.everyone)
        if starting or self._upgrades.busy:
            return
        wanted: Collection[Deployment] = crew.replicas.wanted.values()
        size = wanted_size(self._options.server.warm_replicas, wanted)
        self._warm.keep(size if wanted else 0, wanted)

    def _write_status(self, crew: "_Crew") -> None:
        status = Status(
            pid=os.getpid(),
            address=self._address,
            started_ns=self._started_ns,
            processes=kept(crew.everyone, crew.residency),
            memory_budget_bytes=crew.residency.budget_bytes,
            warm=len(self._warm),
            version=self._version,
            upgrade=self._upgrades.status,
        )
        if status == self._written:
            return
        path = self._folder.run / "status.json"
        # A full disk is no reason to stop; it is tried again at the next look.
        with contextlib.suppress(OSError):
            replace_file(path, msgspec.json.encode(status), lasting=False)
            self._written = status


@dataclass(slots=True)
class _Crew:
    """Everybody who is kept, and the group of the tasks that keep them."""

    group: asyncio.TaskGroup
    gateways: Gateways
    control: Keeper
    replicas: Replicas
    residency: Residency

    @property
    def everyone(self) -> list[Keeper]:
        return [*self.gateways.keepers, self.control, *self.replicas.keepers]


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
