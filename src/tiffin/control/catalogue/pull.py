"""Brings models' files into the store: the first source that gives the right bytes is enough."""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tiffin.config.models import LlamacppModel, Model, files_of
from tiffin.errors import ArtifactError, ArtifactUnavailable, ConfigInvalid, DigestMismatch
from tiffin.ports.artifacts import Artifact, ArtifactSource, ArtifactStore, Progress, shown

Sources = Mapping[str, ArtifactSource]
Failure = ArtifactError | ConfigInvalid


def artifacts_of(name: str, model: Model) -> list[Artifact]:
    """The files that a model of the configuration needs."""
    section = f"models.{name}"
    return [
        Artifact(
            model=name,
            sha256=file.sha256.lower(),
            size_bytes=file.size_bytes,
            sources=tuple(file.sources),
            where=section if isinstance(model, LlamacppModel) else f"{section}.files.{known_as}",
            chats=isinstance(model, LlamacppModel) and model.task == "generate",
        )
        for known_as, file in files_of(model).items()
    ]


def check(artifact: Artifact, sources: Sources) -> None:
    """Raise `ConfigInvalid` where a source's URI or the digest can't be right; no I/O."""
    where = artifact.where or f"models.{artifact.model}"
    _check_digest(artifact)
    if not artifact.sources:
        raise ConfigInvalid("name at least one source", where=f"{where}.sources")
    for number, uri in enumerate(artifact.sources):
        try:
            _source(uri, sources).check(uri)
        except ConfigInvalid as failure:
            raise ConfigInvalid(failure.message, where=f"{where}.sources[{number}]") from failure


def pull(
    artifact: Artifact,
    store: ArtifactStore,
    sources: Sources,
    progress: Progress = lambda *_: None,
    stop: threading.Event | None = None,
) -> Path:
    """The verified file, fetched if it isn't there; blocks, and resumes what broke off.

    Raises `ArtifactUnavailable` with every source's reason, `Draining` once `stop` is set.
    """
    _check_digest(artifact)
    if found := store.find(artifact.sha256):
        return found
    stop = stop or threading.Event()
    with store.claim(artifact, stop):
        if found := store.find(artifact.sha256):
            return found
        reasons: list[str] = []
        for uri in artifact.sources:
            try:
                with store.landing(artifact, uri, progress, stop) as landing:
                    _source(uri, sources).fetch(uri, landing)
                return store.accept(artifact, uri)
            except ArtifactUnavailable as failure:
                raise ArtifactUnavailable(f"{artifact.model}: {failure.message}") from failure
            except DigestMismatch as failure:
                reasons.append(failure.message)
            except (ArtifactError, ConfigInvalid) as failure:
                reasons.append(f"{shown(uri)}: {failure.message}")
    raise ArtifactUnavailable(f"{artifact.model} can't be had: " + "; ".join(reasons))


def pull_each(
    artifacts: Iterable[Artifact],
    store: ArtifactStore,
    sources: Sources,
    progress: Progress = lambda *_: None,
    stop: threading.Event | None = None,
) -> Iterator[tuple[Artifact, Path | Failure]]:
    """Every artifact and what became of it, the smallest first, so that something serves soon.

    One that fails doesn't hold the others up. Leftovers of old pulls are swept first.
    """
    store.sweep()
    for artifact in smallest_first(artifacts):
        try:
            yield artifact, pull(artifact, store, sources, progress, stop)
        except (ArtifactError, ConfigInvalid) as failure:
            yield artifact, failure


def smallest_first(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """By declared size, what declares none last; but the smallest that chats leads.

    A small file may lie in a large package, and nobody should wait for that to say hello.
    """
    ordered = sorted(artifacts, key=lambda one: (not one.size_bytes, one.size_bytes, one.model))
    first = next((one for one in ordered if one.chats), None)
    return sorted(ordered, key=lambda one: one is not first)


def _check_digest(artifact: Artifact) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", artifact.sha256):
        where = f"{artifact.where or f'models.{artifact.model}'}.sha256"
        raise ConfigInvalid("expected 64 hex digits", where=where)


def _source(uri: str, sources: Sources) -> ArtifactSource:
    scheme = uri.partition(":")[0]
    if scheme not in sources:
        raise ConfigInvalid(f"no source is named {scheme}: expected one of {', '.join(sources)}")
    return sources[scheme]
