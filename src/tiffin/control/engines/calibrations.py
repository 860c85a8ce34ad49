"""Calibrations kept with their revisions on this machine, and models whose engine they decide."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.models import LlamacppModel, Model
from tiffin.control.catalogue.revision import revision_of
from tiffin.control.engines.choice import REFERENCE
from tiffin.types.calibration import Calibration
from tiffin.types.ids import RevisionId
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

PACKAGES: Final[Mapping[str, str]] = {"llamacpp": "xllamacpp", "openvino": "openvino-genai"}
_MODEL_LINE: Final = re.compile(r"^(?:model name|CPU part)\s*:\s*(.*)$", re.MULTILINE)


class Calibrations:
    """The files of one folder; each is replaced whole, and those of other engines don't count."""

    def __init__(
        self, folder: Path, machine: str | None = None, versions: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._machine = machine or machine_id()
        self._versions = dict(versions or engine_versions())

    def of(self, revision: str) -> Calibration | None:
        """What was measured of a revision here with these engines, if it was."""
        try:
            kept = read_json(self._path(revision), Calibration)
        except (OSError, msgspec.MsgspecError):
            return None
        return kept if kept.versions == self._versions else None

    def keep(self, calibration: Calibration) -> Path:
        """Keep it, in place of an older one; raises `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(calibration.revision)
        content = msgspec.json.format(msgspec.json.encode(calibration))
        replace_file(path, content, lasting=False)
        return path

    def mark(self) -> int:
        """A number that changes with the files."""
        try:
            return self._folder.stat().st_mtime_ns
        except OSError:
            return 0

    def decided(self, loaded: Loaded) -> Loaded:
        """The configuration with `engine = "auto"` made what was chosen; llama.cpp until then."""
        models = {name: self._decided(model) for name, model in loaded.config.models.items()}
        if models == loaded.config.models:
            return loaded
        return replace(loaded, config=msgspec.structs.replace(loaded.config, models=models))

    def undecided(self, models: Mapping[str, Model]) -> list[str]:
        """The models whose engine is to be measured and hasn't been."""
        return [
            name
            for name, model in models.items()
            if isinstance(model, LlamacppModel)
            and model.task == "generate"
            and model.engine == "auto"
            and self.of(revision_of(model)) is None
        ]

    def why(self, model: Model | None) -> str:
        """Why the engine that runs a model is the one; empty where there is no choice."""
        if not isinstance(model, LlamacppModel) or model.task != "generate":
            return ""
        if model.engine != "auto":
            return "its section says so"
        kept = self.of(revision_of(model))
        if kept is None:
            return "nothing has been measured yet"
        return f"chosen: {kept.why}"

    def _decided(self, model: Model) -> Model:
        if not isinstance(model, LlamacppModel) or model.engine != "auto":
            return model
        kept = self.of(revision_of(model))
        engine = kept.engine if kept and kept.engine in PACKAGES else REFERENCE
        return msgspec.structs.replace(model, engine=engine)

    def _path(self, revision: str) -> Path:
        return self._folder / f"{revision.removeprefix('sha256:')}.{self._machine}.json"


def measured_as(model: LlamacppModel) -> RevisionId:
    """The revision that a model has while its engine is in question, whichever runs it now."""
    return revision_of(msgspec.structs.replace(model, engine="auto"))


def machine_id(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Eight digits that differ where processors or how many may be used do."""
    try:
        kinds = sorted(set(_MODEL_LINE.findall(cpuinfo.read_text())))
    except OSError:
        kinds = []
    meaning = [*kinds, os.uname().machine, str(len(os.sched_getaffinity(0)))]
    return hashlib.sha256("\n".join(meaning).encode()).hexdigest()[:8]


def engine_versions() -> dict[str, str]:
    """The versions of the engines that are installed here."""
    found = {}
    for engine, package in PACKAGES.items():
        try:
            found[engine] = version(package)
        except PackageNotFoundError:
            continue
    return found
