"""Fetching: the smallest first, failures told and tried again, nothing left running."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.polling import eventually
from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.control.fetch import FIRST_RETRY_S, Fetching, Report
from tiffin.errors import ArtifactError, ConfigInvalid, Draining
from tiffin.ports.artifacts import Artifact, Landing, Progress
from tiffin.testing.clock import FakeClock


class Shop:
    """A source and a store in one: what is asked for comes when `open` is set."""

    def __init__(self) -> None:
        self.here: dict[str, Path] = {}
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.open = threading.Event()
        self.open.set()
        self.stopped = 0

    # The source.

    def check(self, uri: str) -> None:
        if uri == "shop:bad":
            raise ConfigInvalid("no such shelf")

    def fetch(self, uri: str, landing: Landing) -> None:
        name = uri.removeprefix("shop:")
        self.asked.append(name)
        landing.report(5)
        while not self.open.wait(0.005):
            if landing.stop.is_set():
                self.stopped += 1
                raise Draining("stopped")
        if name in self.broken:
            raise ArtifactError("sold out")

    # The store.

    def find(self, sha256: str) -> Path | None:
        return self.here.get(sha256)

    @contextmanager
    def claim(self, artifact: Artifact, stop: threading.Event) -> Iterator[None]:
        yield

    @contextmanager
    def landing(
        self, artifact: Artifact, source: str, progress: Progress, stop: threading.Event
    ) -> Iterator[Landing]:
        yield Desk(artifact, progress, stop)

    def accept(self, artifact: Artifact, source: str) -> Path:
        return self.here.setdefault(artifact.sha256, Path("/shop", artifact.model))

    def sweep(self) -> None:
        return


class Desk:
    """The part of a landing that the shop uses."""

    offset, note, size_bytes, scratch = 0, "", 0, Path()

    def __init__(self, artifact: Artifact, progress: Progress, stop: threading.Event) -> None:
        self.stop = stop
        self._model = artifact.model
        self._progress = progress

    def report(self, ahead_bytes: int) -> None:
        self._progress(self._model, ahead_bytes, 10, "shop")

    def expect(self, more_bytes: int, *, last: bool) -> None: ...
    def write(self, chunk: bytes | memoryview) -> None: ...
    def mark(self, note: str) -> None: ...
    def restart(self) -> None: ...

    def adopt(self, path: Path) -> bool:
        return False


def models(**sizes: int) -> Config:
    text = "".join(
        f"[models.{name}]\nruntime = 'llamacpp'\nsources = ['file:{name}']\n"
        f"sha256 = '{index:064x}'\nsize_bytes = {size}\n"
        for index, (name, size) in enumerate(sizes.items())
    )
    return load_text(text.encode(), {}).config


class Bench:
    """A fetching with its shop, its clock and what it told."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.clock = FakeClock()
        self.changes = 0
        self.told: list[Report] = []
        self.fetching = Fetching(
            self.shop, lambda: {"file": self.shop}, self.clock, self._changed, self.told.append
        )

    def _changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.fetching.run())
        yield
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_smallest_comes_first_and_each_is_told(bench: Bench) -> None:
    async with bench.running():
        bench.fetching.want(models(big=100, small=1, middle=10))
        await eventually(lambda: bench.changes == 3)
    assert bench.shop.asked == ["file:small", "file:middle", "file:big"]
    assert len(bench.fetching.shelf.present) == 3
    assert bench.told[-1] == Report()


async def test_what_is_here_is_not_fetched(bench: Bench) -> None:
    bench.shop.here[f"{0:064x}"] = Path("/shop/a")
    bench.fetching.want(models(a=1))
    assert bench.fetching.shelf.present == {f"{0:064x}": Path("/shop/a")}
    async with bench.running():
        await asyncio.sleep(0)
    assert bench.shop.asked == []


async def test_progress_is_told_while_it_goes_on(bench: Bench) -> None:
    bench.shop.open.clear()
    async with bench.running():
        bench.fetching.want(models(a=10, b=20))
        await eventually(lambda: bench.told and bench.told[-1].downloads[0].done_bytes == 5)
    first, second = bench.told[-1].downloads
    assert (first.name, first.total_bytes) == ("a", 10)
    assert (second.name, second.done_bytes, second.total_bytes) == ("b", 0, 20)


async def test_a_failure_holds_nobody_up_and_is_tried_again(bench: Bench) -> None:
    bench.shop.broken.add("file:a")
    async with bench.running():
        bench.fetching.want(models(a=1, b=2))
        await eventually(lambda: bench.changes == 2)
        assert "sold out" in bench.fetching.shelf.failed["a"]
        assert len(bench.fetching.shelf.present) == 1
        bench.shop.broken.clear()
        bench.clock.advance(FIRST_RETRY_S + 1)
        await eventually(lambda: bench.changes == 3)
    assert bench.fetching.shelf.failed == {}


async def test_what_has_gone_since_is_fetched_again_while_its_model_stays_published(
    bench: Bench,
) -> None:
    bench.fetching.want(models(one=1))
    async with bench.running():
        await eventually(lambda: bench.fetching.shelf.present)
        bench.shop.here.clear()
        await eventually(lambda: len(bench.shop.asked) == 2)
        await eventually(lambda: bench.shop.here)
        assert bench.fetching.shelf.present == bench.shop.here


async def test_what_is_no_longer_wanted_stops(bench: Bench) -> None:
    bench.shop.open.clear()
    async with bench.running():
        bench.fetching.want(models(a=1))
        await eventually(lambda: bench.shop.asked)
        bench.fetching.want(models())
        await eventually(lambda: bench.shop.stopped)
    assert bench.fetching.shelf.failed == {}


async def test_leaving_stops_the_thread(bench: Bench) -> None:
    bench.shop.open.clear()
    async with bench.running():
        bench.fetching.want(models(a=1))
        await eventually(lambda: bench.shop.asked)
    assert bench.shop.stopped == 1


def test_sources_that_cannot_be_right_are_refused(bench: Bench) -> None:
    bench.fetching.check(models(a=1))
    with pytest.raises(ConfigInvalid, match=r"models\.a\.sources"):
        Fetching(bench.shop, dict, bench.clock, lambda: None, lambda _: None).check(models(a=1))
