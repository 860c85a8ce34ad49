"""A replica's process: a revision verified, loaded, warmed up. `python -m tiffin.app.replica`."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from tiffin.api.server import EdgeServer
from tiffin.app.adapters import host
from tiffin.app.boot import EXIT_PERMANENT, FINISH, Boot, enter, read_boot
from tiffin.app.clock import SystemClock
from tiffin.app.edges import listen, private_edge
from tiffin.app.hosted import Surroundings
from tiffin.app.outbox import LoopOutbox
from tiffin.app.reasons import reason_of
from tiffin.config.environ import set_variables
from tiffin.control.fleet.devices import variables
from tiffin.errors import DigestMismatch, LoadFailed, TiffinError, Unavailable
from tiffin.serving.progress import ProgressFile
from tiffin.telemetry import log
from tiffin.telemetry.metrics import Meter
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import Deployment
from tiffin.types.whole_file import replace_file

EXIT_MAY_HEAL = 4
HEARTBEAT_EVERY_S = 0.5
METRICS_EVERY_S = 0.5
MAX_STEP_BYTES = 67_108_864


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`<name>.state.json`: `phase` is loading, warming, ready or failed; then `reason` says why.

    `start_ms` is from being asked for to loading, `load_ms` the loading, `warm_ms` the warm-up.
    """

    phase: str = "loading"
    reason: str = ""
    start_ms: int = 0
    load_ms: int = 0
    warm_ms: int = 0
    pid: int = 0


class StateFile:
    """Tells the supervisor, in a file that is replaced at once, how the replica's start goes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told: State | None = None
        self.state = State(pid=os.getpid())

    def tell(self, **changed: object) -> None:
        """Change the state, keeping what isn't named."""
        self.state = msgspec.structs.replace(self.state, **changed)
        self.retry()

    def retry(self) -> None:
        """Write what couldn't be: a full disk is no reason not to serve."""
        if self.state == self._told:
            return
        with contextlib.suppress(OSError):
            replace_file(self._path, msgspec.json.encode(self.state), lasting=False)
            self._told = self.state

    def failed(self, error: Exception) -> int:
        """Tell why it can't start; returns the exit code to end with."""
        expected = isinstance(error, TiffinError)
        self.tell(phase="failed", reason=reason_of(error))
        whole = str(error) if expected else f"{type(error).__name__}: {error}"
        log.error("the replica can't start", reason=whole, exc_info=not expected)
        return EXIT_PERMANENT if is_permanent(error) else EXIT_MAY_HEAL


class ReplicaProcess:
    """The parts of one replica, put together around what it hosts."""

    def __init__(self, boot: Boot, deployment: Deployment, states: StateFile) -> None:
        data = DataFolder(Path(boot.data))
        self._boot = boot
        self._deployment = deployment
        self._states = states
        self._metrics_file = data.metrics / f"replica.{boot.epoch}.json"
        self._meter = Meter("replica", boot.epoch)
        self._progress = progress_file(data.run / f"{boot.name}.progress")
        # The gateway's canonical encoding may be a little longer than what the client sent, and a
        # pipeline's steps tell each other more than any client may.
        limit = max(2 * boot.server.max_body_bytes, MAX_STEP_BYTES)
        try:
            self._hosted = host(
                Surroundings(
                    deployment,
                    SystemClock(),
                    self._progress,
                    self._meter,
                    limit,
                    data.snapshot,
                )
            )
        except BaseException:
            self._progress.close()
            raise
        server = msgspec.structs.replace(boot.server, max_body_bytes=limit)
        self._server = EdgeServer(
            private_edge(self._hosted.answer, server, LoopOutbox(asyncio.get_running_loop()))
        )
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()

    async def run(self) -> int:
        """Serve until TERM; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._hurry)
        loop.add_signal_handler(FINISH, self._stopping.set)
        self._states.tell(start_ms=_since_ms(self._boot.spawned_ns))
        try:
            async with asyncio.TaskGroup() as group:
                sock = listen(Path(self._deployment.socket))
                group.create_task(self._server.run_on(sock))
                chores = [
                    group.create_task(every(HEARTBEAT_EVERY_S, self._progress.beat)),
                    group.create_task(self._keep_metrics()),
                ]
                code = await self._live()
                self._server.stop()
                for chore in chores:
                    chore.cancel()
            self._measure()
            self._meter.write(self._metrics_file)
        finally:
            await self._hosted.close()
            self._clear()
        return code

    async def _live(self) -> int:
        starting = asyncio.ensure_future(self._start())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and (code := starting.result()) != 0:
                return code
            await stopping
            await self._drain()
        finally:
            for task in (starting, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
        return 0

    def _hurry(self) -> None:
        self._hurrying.set()
        self._stopping.set()

    async def _drain(self) -> None:
        """Finish what has begun: all of it, until somebody is in a hurry."""
        server = self._boot.server
        finishing = asyncio.ensure_future(self._hosted.drain(server.request_timeout_s))
        hurrying = asyncio.ensure_future(self._hurrying.wait())
        try:
            await asyncio.wait({finishing, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            hurried = not finishing.done() and finishing.cancel()
        if hurried:
            await self._hosted.drain(server.drain_s)
        else:
            finishing.result()

    async def _start(self) -> int:
        """From nothing to ready; the exit code where that can't be."""
        began = time.monotonic()
        try:
            await self._verify()
            await self._hosted.load()
            loaded = time.monotonic()
            self._states.tell(phase="warming", load_ms=int((loaded - began) * 1000))
            await self._hosted.warm_up()
        except Exception as error:  # noqa: BLE001 - whatever the reason, it is told
            return self._states.failed(error)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._states.tell(phase="ready", warm_ms=int((time.monotonic() - loaded) * 1000))
        state = self._states.state
        log.info("the replica is ready", load_ms=state.load_ms, warm_ms=state.warm_ms)
        return 0

    async def _verify(self) -> None:
        if not self._deployment.files:
            return
        from tiffin.adapters.stores.artifacts import verify

        for file in self._deployment.files.values():
            await asyncio.to_thread(verify, Path(file.path), file.sha256)

    def _clear(self) -> None:
        Path(self._deployment.socket).unlink(missing_ok=True)
        self._progress.close()
        self._meter.close()

    def _measure(self) -> None:
        self._states.retry()
        self._hosted.look()

    async def _keep_metrics(self) -> None:
        while True:
            self._measure()
            await self._meter.write_aside(self._metrics_file)
            await asyncio.sleep(METRICS_EVERY_S)


def progress_file(path: Path) -> ProgressFile:
    """What the supervisor looks at; raises `Unavailable` where the disk is full."""
    try:
        return ProgressFile(path)
    except OSError as cause:
        raise Unavailable(f"{path} can't be made: {cause.strerror}") from cause


def is_permanent(error: Exception) -> bool:
    """Whether starting again can't help: wrong bytes, or a file that this runtime can't load.

    A failed warm-up, or a load for which the machine had too little, may go well another time.
    """
    if isinstance(error, LoadFailed):
        return not isinstance(error.__cause__, TiffinError | OSError | MemoryError)
    return isinstance(error, DigestMismatch)


def _since_ms(moment_ns: int) -> int:
    return max(0, (time.time_ns() - moment_ns) // 1_000_000) if moment_ns else 0


async def every(seconds: float, chore: Callable[[], None]) -> None:
    """Do something now and again, for ever."""
    while True:
        chore()
        await asyncio.sleep(seconds)


async def serve(boot: Boot) -> int:
    """Run one replica to its end; its exit code."""
    deployment = boot.deployment
    if deployment is None:
        raise ValueError("a replica's boot value has a deployment")
    states = StateFile(DataFolder(Path(boot.data)).run / f"{boot.name}.state.json")
    if deployment.hindrance:
        return states.failed(Unavailable(deployment.hindrance))
    # Before any library looks for devices.
    set_variables(variables(deployment.devices))
    try:
        process = ReplicaProcess(boot, deployment, states)
    except Exception as error:  # noqa: BLE001 - whatever the reason, it is told
        return states.failed(error)
    return await process.run()


def main() -> None:
    """Entry of the process."""
    boot = read_boot(sys.argv)
    enter(boot)
    sys.exit(uvloop.run(serve(boot)))


if __name__ == "__main__":
    main()
