"""One loaded model of sounds and its queue: it hears one at a time.

Whoever leaves stops the work after the step that runs; the next begins only when it has stopped.
"""

import asyncio
import io
import threading
import time
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tiffin.errors import LoadFailed, Loading, TiffinError
from tiffin.ports.clock import Clock
from tiffin.ports.sound_runtime import SoundRuntime
from tiffin.serving.context import Context
from tiffin.serving.lanes.claim import Work
from tiffin.serving.lanes.slots import Lanes
from tiffin.serving.lanes.turn import Turn
from tiffin.serving.progress import Phase, ProgressFile
from tiffin.serving.replica import Within, draining
from tiffin.types.sound import Hearing, Transcript
from tiffin.types.usage import Usage

WARM_UP_S = 1
LEAVE_S = 30.0  # for the step that runs, when what is left is broken off


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard, and what that took."""

    transcript: Transcript
    usage: Usage


class Listener:
    """Hears with one runtime; `queue` requests more may wait. `observe` is told how each ended."""

    def __init__(
        self,
        runtime: SoundRuntime,
        clock: Clock,
        progress: ProgressFile,
        observe: Callable[[Usage, str], None],
    ) -> None:
        self.phase = Phase.LOADING
        self.clock = clock
        self.lanes = Lanes(1, 0, clock)
        self._runtime = runtime
        self._progress = progress
        self._observe = observe
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sound")
        self._inside: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def load(self, queue: int, *, queue_timeout_s: float = 0.0) -> None:
        """Load the model; raises `LoadFailed`."""
        await self._runtime.load()
        self.lanes = Lanes(1, queue, self.clock, queue_timeout_s=queue_timeout_s)
        self._enter(Phase.WARMING)

    async def warm_up(self) -> None:
        """Hear a second of silence, as a file; ready afterwards. Raises `LoadFailed`."""
        try:
            await self._run(silence(WARM_UP_S), Hearing())
        except TiffinError as error:
            raise LoadFailed(f"the warm-up failed: {error.message}") from error
        self._enter(Phase.READY)

    def check(self) -> None:
        """Raise the reason why nothing can be heard now, if there is one."""
        if self.phase is Phase.DRAINING:
            raise draining()
        if self.phase is not Phase.READY:
            raise Loading(f"the model is {self.phase.name.lower()}", retry_after=1.0)

    async def hear(self, sound: bytes, hearing: Hearing, context: Context) -> Heard:
        """What is said in a sound file, when it is its turn.

        Raises `Overloaded`, `DeadlineExceeded`, and what the runtime raises.
        """
        self.check()
        [ticket] = self.lanes.ask(context.claim(), [Work(size=len(sound))])
        usage, outcome = Usage(), "abort"
        self._entered()
        try:
            async with Within(context.deadline, self.clock), Turn(self.lanes, ticket):
                transcript, took_ns = await self._run(sound, hearing)
                self.lanes.came(ticket, 0)
            usage = Usage(
                completion_tokens=sum(len(segment.tokens) for segment in transcript.segments),
                audio_ms=transcript.audio_ms,
                prepare_ns=transcript.decode_ns,
                queue_ns=int((ticket.started - ticket.asked) * 1e9),
                device_ns=max(0, took_ns - transcript.decode_ns),
                reason=ticket.reason,
            )
            outcome = "stop"
            return Heard(transcript, usage)
        finally:
            self.lanes.leave(ticket)
            self._left()
            self._observe(usage, outcome)

    async def drain(self, within_s: float) -> None:
        """Refuse what waits, let what runs finish, and break it off where it hasn't in time."""
        self._enter(Phase.DRAINING)
        self.lanes.close(draining)
        for seconds in (within_s, LEAVE_S):
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
                    return
            except TimeoutError:
                for task in self._inside:
                    task.cancel()

    async def close(self) -> None:
        """Give the model and its thread back; idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._runtime.close()

    async def _run(self, sound: bytes, hearing: Hearing) -> tuple[Transcript, int]:
        """The transcript and the nanoseconds it took; leaving this waits for the running step."""
        left = threading.Event()
        work = partial(self._work, sound, hearing, left)
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            left.set()
            while not future.done():
                try:
                    await asyncio.wait([future])
                except asyncio.CancelledError:
                    continue  # the engine can't be left alone any sooner
            future.exception()
            raise

    def _work(
        self, sound: bytes, hearing: Hearing, left: threading.Event
    ) -> tuple[Transcript, int]:
        def go_on() -> bool:
            self._progress.step()
            return not left.is_set()

        began = time.monotonic_ns()
        return self._runtime.hear(sound, hearing, go_on), time.monotonic_ns() - began

    def _entered(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._inside.add(task)
        self._idle.clear()
        self._progress.outstanding(len(self._inside))

    def _left(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._inside.discard(task)
        self._progress.outstanding(len(self._inside))
        if not self._inside:
            self._idle.set()

    def _enter(self, phase: Phase) -> None:
        if self.phase is not Phase.DRAINING:
            self.phase = phase
            self._progress.phase(phase)


def silence(seconds: int) -> bytes:
    """A WAV file of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(2 * 16_000 * seconds))
    return file.getvalue()
