"""A model of sounds and its queue: one at a time, and whoever leaves stops the work."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    LoadFailed,
    Loading,
    Overloaded,
    RunFailed,
    TiffinError,
)
from tiffin.serving.context import Context
from tiffin.serving.progress import Phase, ProgressFile, read_progress
from tiffin.serving.sound import Listener, silence
from tiffin.testing.clock import FakeClock
from tiffin.types.sound import Hearing, Segment, Transcript
from tiffin.types.usage import Usage

WITHIN_S = 10.0


class Ear:
    """A runtime that hears a file's text, a word a step; `hold` makes every step wait."""

    def __init__(self) -> None:
        self.steps = 0
        self.at_once = 0
        self.most_at_once = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self.closed = False
        self.error: TiffinError | None = None

    async def load(self) -> None:
        pass

    def hear(self, sound: bytes, hearing: Hearing, go_on: Callable[[], bool]) -> Transcript:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        found = []
        try:
            if self.error is not None:
                raise self.error
            for word in sound.split(b" "):
                self.started.release()
                assert self.go.wait(WITHIN_S)
                self.steps += 1
                text = word.decode("latin-1")
                found.append(Segment(start_s=0, end_s=1, text=f" {text}", tokens=(1,)))
                if not go_on():
                    break
        finally:
            self.at_once -= 1
        return Transcript(language="en", audio_ms=1000, segments=tuple(found))

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A listener over an ear, with what it reported."""

    def __init__(self, path: Path) -> None:
        self.ear = Ear()
        self.ended: list[tuple[Usage, str]] = []
        self.path = path
        self.progress = ProgressFile(path)
        self.listener = Listener(
            self.ear, FakeClock(), self.progress, lambda usage, how: self.ended.append((usage, how))
        )

    async def ready(self, queue: int = 2) -> Listener:
        await self.listener.load(queue)
        await self.listener.warm_up()
        while self.ear.started.acquire(blocking=False):
            pass
        self.ear.steps = 0
        return self.listener

    def ask(self, sound: bytes = b"a b c", deadline_s: float = 1e9) -> "asyncio.Task[str]":
        async def ask() -> str:
            context = Context("t", deadline_s)
            return (await self.listener.hear(sound, Hearing(), context)).transcript.text

        return asyncio.ensure_future(ask())

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.ear.started.acquire, timeout=WITHIN_S)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "progress")
    yield bench
    bench.ear.go.set()
    await bench.listener.close()
    assert bench.ear.closed
    assert bench.listener.lanes.running == bench.listener.lanes.waiting == 0
    bench.progress.close()


async def test_each_gets_its_own_one_at_a_time(bench: Bench) -> None:
    await bench.ready(queue=10)
    asked = [bench.ask(f"word{n}".encode()) for n in range(8)]
    assert await asyncio.gather(*asked) == [f"word{n}" for n in range(8)]
    assert bench.ear.most_at_once == 1
    usage, how = bench.ended[-1]
    assert (usage.audio_ms, usage.completion_tokens, how) == (1000, 1, "stop")
    assert read_progress(bench.path).outstanding == 0


async def test_a_full_queue_refuses(bench: Bench) -> None:
    await bench.ready(queue=1)
    bench.ear.go.clear()
    running, waiting = bench.ask(), bench.ask()
    await bench.begun()
    with pytest.raises(Overloaded) as refused:
        await bench.ask()
    assert refused.value.retry_after
    bench.ear.go.set()
    assert [await running, await waiting] == ["a b c", "a b c"]


async def test_whoever_leaves_stops_the_work_after_a_step(bench: Bench) -> None:
    await bench.ready()
    bench.ear.go.clear()
    running, waiting = bench.ask(b" ".join([b"x"] * 100)), bench.ask(b"next")
    await bench.begun()
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    bench.ear.go.set()
    assert await waiting == "next"
    assert running.cancelled()
    assert bench.ear.steps == 2
    assert bench.ended[0][1] == "abort"


async def test_whoever_leaves_the_queue_is_never_heard(bench: Bench) -> None:
    await bench.ready()
    bench.ear.go.clear()
    running, waiting = bench.ask(b"one"), bench.ask(b"two")
    await bench.begun()
    waiting.cancel()
    bench.ear.go.set()
    assert await running == "one"
    assert bench.ear.steps == 1


async def test_a_deadline_ends_it(bench: Bench) -> None:
    await bench.ready()
    bench.ear.go.clear()
    asked = bench.ask(deadline_s=bench.listener.clock.monotonic() + 0.05)
    asyncio.get_running_loop().call_later(0.2, bench.ear.go.set)
    with pytest.raises(DeadlineExceeded):
        await asked
    assert bench.ear.steps == 1
    with pytest.raises(DeadlineExceeded):
        await bench.ask(deadline_s=0)


@pytest.mark.parametrize("error", [InvalidRequest("bad", param="file"), RunFailed("broke")])
async def test_a_failure_is_its_own(bench: Bench, error: TiffinError) -> None:
    await bench.ready()
    bench.ear.error = error
    with pytest.raises(type(error)):
        await bench.ask()
    bench.ear.error = None
    assert await bench.ask(b"fine") == "fine"


async def test_draining_finishes_what_runs_and_refuses_what_waits(bench: Bench) -> None:
    listener = await bench.ready()
    bench.ear.go.clear()
    running, waiting = bench.ask(b"one"), bench.ask(b"two")
    await bench.begun()
    drained = asyncio.ensure_future(listener.drain(WITHIN_S))
    with pytest.raises(Draining):
        await waiting
    bench.ear.go.set()
    assert await running == "one"
    await drained
    with pytest.raises(Draining):
        await bench.ask()


async def test_draining_breaks_off_what_takes_too_long(bench: Bench) -> None:
    listener = await bench.ready()
    bench.ear.go.clear()
    running = bench.ask()
    await bench.begun()
    drained = asyncio.ensure_future(listener.drain(0.01))
    await asyncio.wait([running], timeout=0.05)
    bench.ear.go.set()
    await drained
    assert running.cancelled()
    assert bench.ear.steps == 1


async def test_nothing_is_heard_before_the_warm_up(bench: Bench) -> None:
    await bench.listener.load(1)
    assert bench.listener.phase is Phase.WARMING
    with pytest.raises(Loading):
        await bench.ask()
    bench.ear.error = RunFailed("no")
    with pytest.raises(LoadFailed, match="warm-up failed: no"):
        await bench.listener.warm_up()
    assert bench.listener.phase is Phase.WARMING


def test_silence_is_a_wav_file() -> None:
    assert silence(1)[:4] == b"RIFF"
    assert len(silence(2)) > 64_000
