"""`tiffin models calibrate`: engines measured while somebody watches, and the result kept."""

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec

from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.app.calibrate import LEAN, Effort, calibrate, is_whole, table
from tiffin.cli.locate import configured, folder
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.pull import artifacts_of
from tiffin.control.deploy import threads_of
from tiffin.control.engines.calibrations import Calibrations
from tiffin.errors import ArtifactUnavailable, InvalidRequest, ModelNotFound, Unavailable
from tiffin.types.paths import calibrations

PATIENCE_S: Final = 300.0


def calibrate_model(name: str, given: Path | None, data: Path | None, *, quick: bool) -> None:
    """Measure, print and keep; raises `ModelNotFound`, `InvalidRequest`, `ArtifactUnavailable`."""
    config = configured(given, data).config
    model = config.models.get(name)
    if model is None:
        known = ", ".join(config.models) or "none"
        raise ModelNotFound(f"there is no model {name} in the configuration; known are: {known}")
    if not isinstance(model, LlamacppModel) or model.task != "generate":
        raise InvalidRequest(f"{name} is no GGUF language model: it has one engine alone")
    here = folder(config, data)
    [artifact] = artifacts_of(name, model)
    path = LocalArtifactStore(here.artifacts).find(artifact.sha256)
    if path is None:
        raise ArtifactUnavailable(f"its file isn't here yet: tiffin models pull {name}")
    effort = msgspec.structs.replace(LEAN if quick else Effort(), within_s=PATIENCE_S)
    threads = threads_of(model, config.models, len(os.sched_getaffinity(0)))
    found = asyncio.run(calibrate(model, path, threads, effort))
    print("\n".join(table(found)))
    if not is_whole(found):
        raise Unavailable("this machine is too busy to measure; nothing was kept", retry_after=60.0)
    print(f"kept in {Calibrations(calibrations(here)).keep(found)}")
    if model.engine != "auto":
        print(f'{name} is run by {model.engine}, as its section says; engine = "auto" follows this')
