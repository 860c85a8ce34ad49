"""The starter's real models, fetched once into the shared artifact store of this user."""

import os
from pathlib import Path

from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.config.models import files_of
from tiffin.control.catalogue.pull import artifacts_of, pull
from tiffin.control.catalogue.starter import STARTER_MODELS
from tiffin.ports.artifacts import Artifact
from tiffin.types.paths import DataFolder

STORE = "TIFFIN_TEST_STORE"


def model_file(name: str) -> Path:
    """The verified file of a starter model that has one."""
    [path] = model_files(name).values()
    return path


def model_files(name: str) -> dict[str, Path]:
    """The verified files of a starter model; downloads what this machine hasn't got yet."""
    model = STARTER_MODELS[name]
    pulled = [fetched(artifact) for artifact in artifacts_of(name, model)]
    return dict(zip(files_of(model), pulled, strict=True))


def fetched(artifact: Artifact) -> Path:
    """The verified file of any artifact."""
    return pull(artifact, store(), default_sources(os.environ))


def store() -> LocalArtifactStore:
    """The shared store of this user's tests."""
    folder = DataFolder(Path(os.environ.get(STORE, "~/.tiffin")).expanduser())
    return LocalArtifactStore(folder.artifacts)
