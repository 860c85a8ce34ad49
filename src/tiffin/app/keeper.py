"""Keeps one process running: starts it, watches it, replaces it when it ended or is stuck."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from tiffin.app.boot import EXIT_PERMANENT, FINISH
from tiffin.app.log_file import Voice
from tiffin.control.fleet.restart import Restarts
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.control.fleet.stuck import Patience, Vitals, Watch
from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Launcher, Left
from tiffin.serving.progress import Phase, read_progress
from tiffin.types.json_file import read_json
from tiffin.types.paths import OWN_FILES

LOOK_S = 1.0
LOOK_STARTING_S = 0.05
LOADING_GRACE_S = 0.5
LEFT_BEHIND = (
    *(".sock", ".engine.sock", ".progress", ".state.json.tmp", ".demand.json"),
    *(".limits.json", ".odd.json"),
)
"""What a process says of now, by the ends of its files' names: nothing any more once it ended."""


@dataclass(frozen=True, slots=True)
class Post:
    """What is to be kept running. `command` is asked anew for every start.

    `run` is the folder of its files, all called `name` and a suffix; `grace_s` is how long it may
    take to end when asked.
    """

    name: str
    role: str
    run: Path
    command: Callable[[], list[str]]
    patience: Patience
    grace_s: float
    model: str = ""
    pass_fds: tuple[int, ...] = ()


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper knows of its process, for the program that goes on keeping it.

    `left` is the process; times are the machine's monotonic seconds, `ready_at` 0 where it wasn't
    ready yet. `failures` and `permanent` are as `Restarts` has them, `said` is its last word.
    """

    status: ProcessStatus
    left: Left | None = None
    started_at: float = 0.0
    ready_at: float = 0.0
    failures: int = 0
    permanent: bool = False
    said: str = ""


class News(Enum):
    """What a keeper tells about its process."""

    STARTED = "started"
    READY = "ready"
    ENDED = "ended"


Tell = Callable[[News, ProcessStatus, float], None]


class Keeper:
    """Keeps the process of one post running until it is told to stop."""

    def __init__(self, post: Post, launcher: Launcher, voice: Voice, tell: Tell) -> None:
        self.status = ProcessStatus(name=post.name, role=post.role, model=post.model)
        self._post = post
        self._launcher = launcher
        self._voice = voice
        self._tell = tell
        self._restarts = Restarts()
        self._child: Child | None = None
        self._grace_s = post.grace_s
        self._stopping = False
        self._wake = asyncio.Event()
        self._done = asyncio.Event()
        self._started_at = 0.0
        self._ready_at: float | None = None
        self._stuck = ""
        self._hurry = asyncio.Event()

    @property
    def kept(self) -> Kept:
        """What `adopt` needs to know."""
        return Kept(
            status=self.status,
            left=self._child.left() if self._child else None,
            started_at=self._started_at,
            ready_at=self._ready_at or 0.0,
            failures=self._restarts.failures,
            permanent=self._restarts.permanent,
            said=self._voice.last,
        )

    def adopt(self, kept: Kept) -> None:
        """Have `keep` go on with a process that this one had before it became this program."""
        self.status = kept.status
        self._restarts = Restarts(failures=kept.failures, permanent=kept.permanent)
        self._voice.last = kept.said
        if kept.left is not None:
            self._child = self._launcher.adopt(kept.left, self._voice)
            self._started_at = kept.started_at
            self._ready_at = kept.ready_at or None

    async def keep(self) -> None:
        """Run until `stop` or `kill`; cancelling it kills the process."""
        try:
            while not self._stopping:
                await self._live()
                await self._pause()
        finally:
            self.signal(signal.SIGKILL)
            self._clear()
            self._set(state=State.ENDED, pid=0)
            self._done.set()

    def retire(self) -> None:
        """Let the process go on, but start no other when it ends."""
        self._stopping = True
        self._wake.set()

    async def finish(self, within_s: float) -> None:
        """Have a replica end when what it has begun is finished, within that time; then as `stop`.

        A `stop` meanwhile doesn't wait for that.
        """
        self.retire()
        child = self._child
        if child is not None and self._vitals(child).ready:
            self._set(state=State.STOPPING)
            child.signal(FINISH)
            over = [asyncio.ensure_future(wait) for wait in (self.ended(), self._hurry.wait())]
            try:
                await asyncio.wait(over, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in over:
                    task.cancel()
        await self.stop()

    async def stop(self) -> None:
        """Ask the process to end, wait until it has; none is started any more."""
        self.retire()
        self._hurry.set()
        child = self._child
        if child is not None:
            self._set(state=State.STOPPING)
            # A replica that still loads has nothing to finish, and its engine may not hear us.
            loading = self._post.role == "replica" and not self._vitals(child).ready
            await child.stop(min(self._grace_s, LOADING_GRACE_S) if loading else self._grace_s)
        await self._done.wait()

    async def ended(self) -> None:
        """Wait until `keep` is over."""
        await self._done.wait()

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.retire()
        self._grace_s = 0.0
        self.signal(signal.SIGKILL)

    def wake(self) -> None:
        """Start now, if it waits for its next start."""
        self._wake.set()

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        if self._child is not None:
            self._child.signal(number)

    async def _live(self) -> None:
        """One life of the process, from start or adoption to end."""
        self._wake.clear()
        self._stuck = ""
        if self._child is None:
            self._clear()
            self._ready_at = None
            try:
                self._child = self._launcher.start(
                    self._post.command(), self._voice, self._post.pass_fds
                )
            except Unavailable as failure:
                self._ended(permanent=False, reason=str(failure))
                return
            self._started_at = time.monotonic()
            self._set(state=State.STARTING, pid=self._child.pid)
            self._tell(News.STARTED, self.status, 0.0)
        code = await self._watch(self._child)
        reason, said = self._why(code)
        self._child = None
        self._ended(permanent=code == EXIT_PERMANENT, reason=reason, said=said)

    async def _watch(self, child: Child) -> int:
        started = self._started_at
        watch = Watch(self._post.patience, started)
        while True:
            try:
                async with asyncio.timeout(LOOK_S if self._ready_at else LOOK_STARTING_S):
                    return await child.wait()
            except TimeoutError:
                now = time.monotonic()
            vitals = self._vitals(child)
            if vitals.ready and self._ready_at is None:
                self._ready_at = now
                self._set(state=State.READY, **self._times(now - started))
                self._tell(News.READY, self.status, 0.0)
            self._stuck = self._stuck or watch.look(vitals, now)
            if self._stuck:
                child.signal(signal.SIGKILL)

    def _vitals(self, child: Child) -> Vitals:
        pulse = child.pulse()
        progress = read_progress(self._file(".progress"))
        return Vitals(
            heartbeat=progress.heartbeat,
            steps=progress.steps,
            outstanding=progress.outstanding,
            ready=progress.phase >= Phase.READY,
            cpu_s=pulse.cpu_s if pulse else 0.0,
            state=pulse.state if pulse else "Z",
        )

    def _ended(self, *, permanent: bool, reason: str, said: str = "") -> None:
        if self._stopping:
            return
        healthy_s = time.monotonic() - self._ready_at if self._ready_at else 0.0
        self._restarts = self._restarts.after_end(healthy_s=healthy_s, permanent=permanent)
        self._set(
            state=State.FAILED if permanent else State.WAITING,
            pid=0,
            reason=reason,
            said=said,
            restarts=self.status.restarts + 1,
        )
        self._clear(keep_failure=True)
        self._tell(News.ENDED, self.status, self._restarts.delay_s)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._restarts.delay_s):
                await self._wake.wait()

    def _why(self, code: int) -> tuple[str, str]:
        """Why it ended in our words, and in its own where they may explain it."""
        if self._stuck:
            return self._stuck, ""
        if failure := self._failure():
            return failure, ""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}", ""
        return f"exit code {code}", self._voice.last

    def _failure(self) -> str:
        """The reason that a failed replica left in its state file."""
        state = self._told()
        return state.reason if state.phase == "failed" else ""

    def _times(self, ready_s: float) -> dict[str, int]:
        """How long the start took in all, and in its parts as far as the process told them."""
        told, ready_ms = self._told(), int(ready_s * 1000)
        # It counts as ready a moment before it writes down how long the warm-up took.
        warm_ms = told.warm_ms or max(0, ready_ms - told.start_ms - told.load_ms)
        parts = {"start_ms": told.start_ms, "load_ms": told.load_ms, "warm_ms": warm_ms}
        return {"ready_ms": ready_ms, **(parts if told.load_ms or told.start_ms else {})}

    def _told(self) -> "_ReplicaState":
        try:
            return read_json(self._file(".state.json"), _ReplicaState)
        except (OSError, msgspec.DecodeError):
            return _ReplicaState(phase="")

    def _clear(self, *, keep_failure: bool = False) -> None:
        """Remove what a dead process left; a gateway that still looks finds nothing to wait for."""
        for suffix in LEFT_BEHIND:
            self._file(suffix).unlink(missing_ok=True)
        shutil.rmtree(self._file(OWN_FILES), ignore_errors=True)
        if not (keep_failure and self._failure()):
            self._file(".state.json").unlink(missing_ok=True)

    def _file(self, suffix: str) -> Path:
        return self._post.run / f"{self._post.name}{suffix}"

    def _set(self, **changed: Any) -> None:
        if "state" in changed:
            changed["since_ns"] = time.time_ns()
        self.status = msgspec.structs.replace(self.status, **changed)


class _ReplicaState(msgspec.Struct):
    """What a replica's state file says of its start, and of its end."""

    phase: str
    reason: str = ""
    start_ms: int = 0
    load_ms: int = 0
    warm_ms: int = 0
