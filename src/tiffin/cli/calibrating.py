"""`tiffin models calibrate`: engines measured while somebody watches, and the result kept."""

import asyncio
import os
from pathlib import Path

from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.app.calibrate import calibrate, table
from tiffin.cli.locate import configured, folder
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.pull import artifacts_of
from tiffin.control.deploy import threads_of
from tiffin.control.engines.calibrations import Calibrations
from tiffin.errors import ArtifactUnavailable, InvalidRequest, ModelNotFound
from tiffin.types.paths import calibrations


def calibrate_model(name: str, given: Path | None, data: Path | None) -> None:
    """Measure, print and keep; raises `ModelNotFound`, `InvalidRequest`, `ArtifactUnavailable`."""
    config = configured(given, data).config
    model = config.models.get(name)
    if model is None:
        known = ", ".join(config.models) or "none"
        raise ModelNotFound(f"there is no model {name} in the configuration; known are: {known}")
    if not isinstance(model, LlamacppModel) or model.task != "chat":
        raise InvalidRequest(f"{name} is no GGUF language model: it has one engine alone")
    here = folder(config, data)
    [artifact] = artifacts_of(name, model)
    path = LocalArtifactStore(here.artifacts).find(artifact.sha256)
    if path is None:
        raise ArtifactUnavailable(f"its file isn't here yet: tiffin models pull {name}")
    threads = threads_of(model, config.models, len(os.sched_getaffinity(0)))
    found = asyncio.run(calibrate(model, path, threads))
    kept = Calibrations(calibrations(here)).keep(found)
    print("\n".join([*table(found), f"kept in {kept}"]))
    if model.engine != "auto":
        print(f'{name} is run by {model.engine}, as its section says; engine = "auto" follows this')
