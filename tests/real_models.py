"""The starter's real models, fetched once into the shared artifact store of this user."""

import os
from pathlib import Path

from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.control.catalogue.pull import artifacts_of, pull
from tiffin.control.catalogue.starter import STARTER_MODELS
from tiffin.types.paths import DataFolder

STORE = "TIFFIN_TEST_STORE"


def model_file(name: str) -> Path:
    """The verified file of a starter model; downloads it where this machine hasn't got it yet."""
    folder = DataFolder(Path(os.environ.get(STORE, "~/.tiffin")).expanduser())
    store = LocalArtifactStore(folder.artifacts)
    [artifact] = artifacts_of(name, STARTER_MODELS[name])
    return pull(artifact, store, default_sources(os.environ))
