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
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tiffin.adapters.launchers.process import ProcessLauncher
from tiffin.app.accelerators import Accelerators
from tiffin.app.boot import Boot, command
from tiffin.app.claim import claim, listen, url
from tiffin.app.console import Console, Download, PatientConsole
from tiffin.app.keeper import Keeper, News, Post
from tiffin.app.log_file import LogFile, Voice
from tiffin.app.polled_file import PolledFile
from tiffin.app.replicas import Replicas
from tiffin.app.residency import Machine, Residency, kept
from tiffin.app.warm_pool import WarmLauncher, WarmPool, wanted_size
from tiffin.config.schema import Server, Telemetry
from tiffin.control.fleet.budget import budget_bytes
from tiffin.control.fleet.measured import Measured
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.fleet.stuck import Patience
from tiffin.telemetry.log import bridge
from tiffin.telemetry.metrics import Meter
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder, measured_file
from tiffin.types.snapshot import Deployment

LOOK_S = 0.1
LOOK_HURRIED_S = 0.05
CHORES_EVERY_S = 0.5
CONTROL_GRACE_S = 15.0
AFTER_DRAIN_S = 5.0
# A shell or `timeout` that signals both a process and its group doesn't mean it twice.
SAME_SIGNAL_S = 0.1

_LOG = logging.getLogger("tiffin.supervisor")
# Neither has a reason to hold the GIL for long, and waiting for others is their trade.
_SERVER_PATIENCE = Patience(start_s=30.0, silent_s=30.0, by_work=False)


class _Wanted(msgspec.Struct):
    """The part of a snapshot that is about processes."""

    deployments: tuple[Deployment, ...] = ()
    leaving: dict[str, int] = {}


class _Fetching(msgspec.Struct):
    """What control says about downloads."""

    downloads: tuple[Download, ...] = ()


class _Loads(msgspec.Struct):
    """The part of a model's section that is about loading."""

    load_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """What to serve: `data` is absolute, `config_path` is empty where there is no file."""

    data: Path
    server: Server
    telemetry: Telemetry
    config_path: str = ""


def run(options: Options, console: Console) -> None:
    """Serve until TERM or INT, then drain and end everything; call it on the main thread.

    Raises `Conflict` when the data folder is being served already and `ConfigInvalid` when the
    folder or the port can't be used.
    """
    folder = DataFolder(options.data)
    os.umask(0o077)
    with claim(folder), listen(options.server) as listener, PatientConsole(console) as patient:
        log_file = LogFile(folder.logs, options.telemetry.max_log_bytes)
        bridge(process="supervisor", level=options.telemetry.log_level, write=log_file.write)
        try:
            asyncio.run(Supervisor(options, listener, log_file, patient).run())
        finally:
            log_file.close()


class Supervisor:
    """Keeps control, gateway and the snapshot's replicas running, until it is told to stop."""

    def __init__(
        self, options: Options, listener: socket.socket, log_file: LogFile, console: Console
    ) -> None:
        self._options = options
        self._folder = DataFolder(options.data)
        self._accelerators = Accelerators(self._folder.run)
        self._listener = listener
        self._log_file = log_file
        plain = ProcessLauncher()
        self._launcher = WarmLauncher(plain)
        self._warm = WarmPool(plain, self._warm_boot, Voice("warm", log_file.write))
        self._launcher.pool = self._warm
        self._herald = _Herald(console, url(listener))
        self._stopping = asyncio.Event()
        self._started_ns = time.time_ns()
        self._written: Status | None = None
        self._meter = Meter("supervisor", new_id("ep"))
        self._metrics = self._folder.metrics / f"supervisor.{self._meter.epoch}.json"
        self._seen_to = 0.0
        self._asked = 0.0
        self._had_terminal = has_terminal()

    async def run(self) -> None:
        """Return when everything has ended after TERM or INT; a second one doesn't wait."""
        loop = asyncio.get_running_loop()
        gateway = self._keeper("gateway", self._options.server.drain_s + AFTER_DRAIN_S)
        control = self._keeper("control", CONTROL_GRACE_S)
        async with asyncio.TaskGroup() as group:
            replicas = Replicas(group, self._replica_keeper, self._options.server.request_timeout_s)
            machine = Machine(
                self._folder.run,
                budget_bytes(self._options.server.memory_mb),
                Measured(measured_file(self._folder)),
            )
            residency = Residency(replicas, machine, self._meter, self._herald.say)

            def everyone() -> list[Keeper]:
                return [gateway, control, *replicas.keepers]

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._asked_to_stop, everyone)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGHUP, self._hung_up, control, everyone)
            group.create_task(control.keep())
            group.create_task(gateway.keep())
            following = group.create_task(self._follow(residency, replicas, everyone))
            await self._stopping.wait()
            # Its copy of the port would otherwise let clients connect to nobody.
            self._listener.close()
            # Whoever told all of us to end mustn't make us start what ended.
            for keeper in everyone():
                keeper.retire()
            await gateway.stop()
            await replicas.stop()
            await control.stop()
            following.cancel()
            residency.close()
            await self._warm.close()

    async def _follow(
        self, residency: Residency, replicas: Replicas, everyone: Callable[[], list[Keeper]]
    ) -> None:
        snapshot = PolledFile(self._folder.snapshot, _Wanted)
        fetching = PolledFile(self._folder.run / "fetch.json", _Fetching)
        while True:
            if not self._stopping.is_set():
                if (wanted := snapshot.changed()) is not None:
                    await self._accelerators.known(wanted.deployments)
                    residency.follow(wanted.deployments, wanted.leaving)
                residency.look()
                self._accelerators.follow([keeper.status for keeper in replicas.keepers])
                if (now := time.monotonic()) - self._seen_to >= CHORES_EVERY_S:
                    self._seen_to = now
                    self._keep_warm(everyone(), replicas.wanted.values())
                    self._meter.write(self._metrics)
            if (fetch := fetching.changed()) is not None:
                self._herald.downloads(fetch)
            self._write_status(everyone(), residency)
            await asyncio.sleep(LOOK_HURRIED_S if residency.hurried else LOOK_S)

    def _asked_to_stop(self, everyone: Callable[[], list[Keeper]]) -> None:
        asked, self._asked = self._asked, time.monotonic()
        if not self._stopping.is_set():
            self._herald.stopping()
            self._stopping.set()
        elif self._asked - asked > SAME_SIGNAL_S:
            for keeper in everyone():
                keeper.kill()

    def _hung_up(self, control: Keeper, everyone: Callable[[], list[Keeper]]) -> None:
        """HUP has two meanings: the terminal has gone, or please read the configuration again."""
        if self._had_terminal and not has_terminal():
            self._asked_to_stop(everyone)
        else:
            control.signal(signal.SIGHUP)

    def _keeper(self, role: str, grace_s: float) -> Keeper:
        fds = (self._listener.fileno(),) if role == "gateway" else ()
        return self._build(
            Post(
                name=role,
                role=role,
                run=self._folder.run,
                command=lambda: command(self._boot(role, role, listen_fd=fds[0] if fds else -1)),
                patience=_SERVER_PATIENCE,
                grace_s=grace_s,
                pass_fds=fds,
            )
        )

    def _replica_keeper(self, name: str, deployment: Deployment) -> Keeper:
        loads = msgspec.json.decode(deployment.spec, type=_Loads)
        return self._build(
            Post(
                name=name,
                role="replica",
                run=self._folder.run,
                command=lambda: command(
                    self._boot(
                        "replica", name, deployment=self._accelerators.placed(name, deployment)
                    )
                ),
                patience=Patience(start_s=loads.load_timeout_s),
                grace_s=self._options.server.drain_s + AFTER_DRAIN_S,
                model=deployment.model,
            )
        )

    def _build(self, post: Post) -> Keeper:
        return Keeper(
            post, self._launcher, Voice(post.name, self._log_file.write), self._herald.tell
        )

    def _boot(
        self, role: str, name: str, listen_fd: int = -1, deployment: Deployment | None = None
    ) -> Boot:
        return Boot(
            role=role,
            name=name,
            data=str(self._folder.root),
            parent_pid=os.getpid(),
            epoch=new_id("ep"),
            server=self._options.server,
            telemetry=self._options.telemetry,
            config_path=self._options.config_path,
            listen_fd=listen_fd,
            deployment=deployment,
            spawned_ns=time.time_ns(),
        )

    def _warm_boot(self, fd: int, imports: tuple[str, ...]) -> Boot:
        boot = self._boot("warm", "warm", listen_fd=fd)
        return msgspec.structs.replace(boot, imports=imports)

    def _keep_warm(self, everyone: list[Keeper], wanted: Collection[Deployment]) -> None:
        # Whoever starts now needs the processor more.
        if any(keeper.status.state is State.STARTING for keeper in everyone):
            return
        size = wanted_size(self._options.server.warm_replicas, wanted)
        self._warm.keep(size if wanted else 0, wanted)

    def _write_status(self, keepers: list[Keeper], residency: Residency) -> None:
        status = Status(
            pid=os.getpid(),
            address=self._herald.address,
            started_ns=self._started_ns,
            processes=kept(keepers, residency),
            memory_budget_bytes=residency.budget_bytes,
            warm=len(self._warm),
        )
        if status == self._written:
            return
        path = self._folder.run / "status.json"
        fresh = path.with_suffix(".tmp")
        # A full disk is no reason to stop; it is tried again at the next look.
        with contextlib.suppress(OSError):
            fresh.write_bytes(msgspec.json.encode(status))
            fresh.replace(path)
            self._written = status


class _Herald:
    """Tells the console and the log what happens to processes."""

    def __init__(self, console: Console, address: str) -> None:
        self.address = address
        self._console = console
        self._served = False

    def say(self, line: str) -> None:
        """A line for whoever looks at the console."""
        self._console.line(line)

    def tell(self, news: News, status: ProcessStatus, delay_s: float) -> None:
        """What keepers call."""
        fields = {"child": status.name, "pid": status.pid}
        if news is News.STARTED:
            _LOG.info("process started", extra={"fields": fields})
        elif news is News.READY:
            _LOG.info("process ready", extra={"fields": {**fields, "ready_ms": status.ready_ms}})
            self._ready(status)
        else:
            ended = {**fields, "reason": status.explained, "delay_s": delay_s}
            _LOG.warning("process ended", extra={"fields": ended})
            self._console.line(_obituary(status, delay_s))

    def stopping(self) -> None:
        """The first TERM or INT has come."""
        _LOG.info("stopping")
        text = "stopping: answers that have begun are finished (again: stop at once)"
        self._console.line(text)

    def downloads(self, fetching: _Fetching) -> None:
        """How far downloads have come."""
        self._console.downloads(fetching.downloads)

    def _ready(self, status: ProcessStatus) -> None:
        took = f"{status.ready_ms / 1000:.1f} s"
        if status.role == "gateway" and not self._served:
            self._served = True
            self._console.serving(self.address)
        elif status.role == "replica":
            self._console.line(f"model {status.model} is ready ({took})")
        elif status.restarts:
            self._console.line(f"{status.name} is back ({took})")


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _obituary(status: ProcessStatus, delay_s: float) -> str:
    what = f"model {status.model}" if status.model else status.name
    when = f"in {delay_s:.1f} s" if delay_s else "now"
    if status.state is State.FAILED:
        return f"{what} failed: {status.explained} (next try {when})"
    return f"{what} ended: {status.explained} (starting again {when})"
