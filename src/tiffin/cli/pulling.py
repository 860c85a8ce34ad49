"""`tiffin models pull`: fetching before it is needed, with a bar for each file."""

import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.cli.locate import configured, folder
from tiffin.config.environ import environment
from tiffin.config.schema import Config
from tiffin.control.catalogue.pull import artifacts_of, pull_each
from tiffin.errors import ArtifactUnavailable, ModelNotFound
from tiffin.ports.artifacts import Artifact


def pull_models(names: list[str], given: Path | None, data: Path | None) -> None:
    """Bring the named models' files, or all; raises `ArtifactUnavailable` when one can't be had."""
    config = configured(given, data).config
    artifacts = _wanted(config, names)
    store = LocalArtifactStore(folder(config, data).artifacts)
    sources = default_sources(environment())
    stop = threading.Event()
    failures = []
    with _Bars() as bars:
        try:
            for artifact, result in pull_each(artifacts, store, sources, bars.show, stop):
                if isinstance(result, Path):
                    bars.done(artifact, result)
                else:
                    failures.append(str(result))
        except KeyboardInterrupt:
            stop.set()
            raise
    if failures:
        raise ArtifactUnavailable("; ".join(failures))


def _wanted(config: Config, names: list[str]) -> list[Artifact]:
    for name in names:
        if name not in config.models:
            known = ", ".join(config.models) or "none"
            raise ModelNotFound(
                f"there is no model {name} in the configuration; known are: {known}"
            )
    return [
        artifact
        for name, model in config.models.items()
        if not names or name in names
        for artifact in artifacts_of(name, model)
    ]


class _Bars:
    """Bars on the error stream where a person watches; a line for each finished file anyway."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, model: str, done_bytes: int, total_bytes: int, _source: str) -> None:
        if model not in self._tasks:
            self._tasks[model] = self._progress.add_task(model)
        task = next(task for task in self._progress.tasks if task.id == self._tasks[model])
        self._progress.update(task.id, completed=done_bytes, total=total_bytes or None)

    def done(self, artifact: Artifact, path: Path) -> None:
        self._progress.console.print(
            f"{artifact.model}: {path}", markup=False, highlight=False, soft_wrap=True
        )
