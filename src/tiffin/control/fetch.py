"""Brings the configured models' files, the smallest first, and says how far they have come."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from tiffin.config.schema import Config
from tiffin.control.catalogue.pull import Sources, artifacts_of, check, pull, smallest_first
from tiffin.control.publish import Shelf
from tiffin.errors import ArtifactError, ConfigInvalid, Draining
from tiffin.ports.artifacts import Artifact, ArtifactStore
from tiffin.ports.clock import Clock

REPORT_EVERY_S = 0.2
LOOK_EVERY_S = 1.0
FIRST_RETRY_S = 15.0
LAST_RETRY_S = 600.0


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file on its way; `total_bytes` is 0 where nobody knows."""

    name: str
    done_bytes: int
    total_bytes: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Every file that isn't here and not given up, the one in work first."""

    downloads: list[Download] = []


class Fetching:
    """One download at a time, in a thread; everything else happens on the loop.

    `sources` is asked for them when they are first needed, since their libraries take time to load.
    `changed` is called when a file has come or can't be had for now; `tell` is called with what
    is on its way, whenever that changes. What failed is tried again, ever less often. `took_ms` is
    how long what came took, by model.
    """

    def __init__(
        self,
        store: ArtifactStore,
        sources: Callable[[], Sources],
        clock: Clock,
        changed: Callable[[], None],
        tell: Callable[[Report], None],
    ) -> None:
        self._store = store
        self._sources = sources
        self._clock = clock
        self._changed = changed
        self._tell = tell
        self._wanted: list[Artifact] = []
        self._present: dict[str, Path] = {}
        self._failed: dict[Artifact, str] = {}
        self._tries: dict[Artifact, int] = {}
        self._again: dict[Artifact, float] = {}
        self._done: dict[Artifact, tuple[int, int]] = {}
        self._wake = asyncio.Event()
        self._stop = threading.Event()
        self._pulling: Artifact | None = None
        self.report = Report()
        self.took_ms: dict[str, int] = {}

    @property
    def shelf(self) -> Shelf:
        """Which files are here and which can't be had."""
        failed = {artifact.model: reason for artifact, reason in self._failed.items()}
        return Shelf(present=self._present, failed=failed)

    def check(self, config: Config) -> None:
        """Raise `ConfigInvalid` where a model's sources can't be right; looks at nothing else."""
        for artifact in _artifacts(config):
            check(artifact, self._sources())

    def want(self, config: Config) -> None:
        """From now on these models' files are wanted, and what failed is worth another try."""
        self._wanted = smallest_first(_artifacts(config))
        self.took_ms = {name: ms for name, ms in self.took_ms.items() if name in config.models}
        self._failed, self._again, self._tries = {}, {}, {}
        self._look()
        if self._pulling is not None and self._pulling not in self._wanted:
            self._stop.set()
        self._say()
        self._wake.set()

    async def run(self) -> None:
        """Fetch what is wanted, until cancelled."""
        while True:
            self._wake.clear()
            artifact = next(self._missing(), None)
            if artifact is not None:
                await self._fetch(artifact)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()

    def _look(self) -> None:
        found = {one.sha256: self._store.find(one.sha256) for one in self._wanted}
        self._present = {digest: path for digest, path in found.items() if path is not None}

    def _missing(self) -> Iterator[Artifact]:
        now = self._clock.monotonic()
        for artifact in self._wanted:
            due = self._again.get(artifact, 0.0) <= now
            if due and not self._is_here(artifact):
                yield artifact

    def _is_here(self, artifact: Artifact) -> bool:
        # What was here may have gone since; who runs it goes on, so that it stays in `_present`.
        return artifact.sha256 in self._present and self._store.find(artifact.sha256) is not None

    async def _fetch(self, artifact: Artifact) -> None:
        self._stop = stop = threading.Event()
        self._pulling = artifact
        began = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        pulling = loop.run_in_executor(
            None,
            pull,
            artifact,
            self._store,
            self._sources(),
            partial(self._progress, artifact),
            stop,
        )
        try:
            while not pulling.done():
                await asyncio.wait([pulling], timeout=REPORT_EVERY_S)
                self._say()
        finally:
            # Where this is cancelled, the thread must not go on behind our back.
            stop.set()
            await asyncio.wait([pulling])
            self._pulling = None
        self._settle(artifact, pulling)
        took_ms = round((self._clock.monotonic() - began) * 1000)
        self.took_ms[artifact.model] = self.took_ms.get(artifact.model, 0) + took_ms

    def _settle(self, artifact: Artifact, pulled: "asyncio.Future[Path]") -> None:
        try:
            self._present = {**self._present, artifact.sha256: pulled.result()}
        except Draining:
            return
        except (ArtifactError, ConfigInvalid) as failure:
            tries = self._tries[artifact] = self._tries.get(artifact, 0) + 1
            delay_s = min(FIRST_RETRY_S * 2.0 ** (tries - 1), LAST_RETRY_S)
            self._again[artifact] = self._clock.monotonic() + delay_s
            self._failed = {**self._failed, artifact: failure.message}
        else:
            self._again.pop(artifact, None)
            self._failed = {k: v for k, v in self._failed.items() if k != artifact}
        self._say()
        self._changed()

    def _progress(
        self, artifact: Artifact, _model: str, done_bytes: int, total_bytes: int, _source: str
    ) -> None:
        """Called in the downloading thread."""
        self._done[artifact] = (done_bytes, total_bytes)

    def _say(self) -> None:
        under_way: dict[str, Download] = {}  # all files of a model as one
        for artifact in self._wanted:
            if artifact.sha256 in self._present or artifact in self._failed:
                continue
            name = artifact.model
            done_bytes, total_bytes = self._done.get(artifact, (0, artifact.size_bytes))
            others = under_way.get(name, Download(name=name, done_bytes=0, total_bytes=0))
            under_way[name] = Download(
                name=name,
                done_bytes=others.done_bytes + done_bytes,
                total_bytes=others.total_bytes + total_bytes,
            )
        downloads = list(under_way.values())
        if self._pulling is not None:
            downloads.sort(key=lambda one: one.name != getattr(self._pulling, "model", ""))
        report = Report(downloads=downloads)
        if report != self.report:
            self.report = report
            self._tell(report)


def _artifacts(config: Config) -> list[Artifact]:
    return [one for name, model in config.models.items() for one in artifacts_of(name, model)]
