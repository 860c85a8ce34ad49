"""What a revision is: the bytes and options that decide its answers, named by their digest."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tiffin.config.models import (
    EchoModel,
    LaunchedModel,
    LlamacppModel,
    Model,
    OnnxModel,
    PipelineModel,
    PythonModel,
    RemoteModel,
    RulesModel,
    WhisperModel,
    files_of,
)
from tiffin.types.ids import RevisionId

MANIFEST_FORMAT = 1
_ALONE: Final[Mapping[str, Model]] = MappingProxyType({})


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of a revision: equal manifests answer alike.

    How much it gets (slots, threads, queue, time limits) belongs to its deployment and isn't here.
    `files` are the digests of the model's files by the name that its runtime knows them under.
    """

    format: int = MANIFEST_FORMAT
    runtime: str
    files: dict[str, str] = {}
    options: dict[str, Any] = {}


# The settings that decide a model's answers, by its section.
_DECIDING: dict[type[Model], str] = {
    LlamacppModel: "context tools",
    OnnxModel: "graph task pooling normalize max_tokens dimensions best_of decision",
    PythonModel: "code class_name",
    PipelineModel: "steps outputs",
    WhisperModel: "precision",
    LaunchedModel: "engine model executable args context chat tools",
    RemoteModel: "url protocol model tools",
    RulesModel: "answer rules context",
    EchoModel: "context tools fail_after",
}

# Told only where they aren't what they have always been: known revisions keep their names.
_USUAL: dict[type[Model], dict[str, Any]] = {
    LlamacppModel: {
        "engine": "llamacpp",
        "cache_type": "f16",
        "task": "generate",
        "pooling": "",
        "dimensions": False,
    },
    RemoteModel: {"profile": "", "api_version": ""},
}


def manifest_of(model: Model, others: Mapping[str, Model] = _ALONE) -> Manifest:
    """The manifest of a model of the configuration; `others` has the models that it calls."""
    digests = {name: file.sha256.lower() for name, file in files_of(model).items()}
    options = _options(model, _DECIDING[type(model)])
    if isinstance(model, PipelineModel):
        peers = {name: revision_of(others[name], others) for name in peers_of(model)}
        options |= {"models": peers}
    for name, usual in _USUAL.get(type(model), {}).items():
        if (value := getattr(model, name)) != usual:
            options[name] = value
    return Manifest(runtime=str(model.__struct_config__.tag), files=digests, options=options)


def _options(model: Model, names: str) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(model, name)) for name in names.split()}


def peers_of(model: Model) -> list[str]:
    """The names of the models that a model calls, in alphabetical order."""
    if not isinstance(model, PipelineModel):
        return []
    return sorted({step.model for step in model.steps if step.model})


def revision_of(model: Model, others: Mapping[str, Model] = _ALONE) -> RevisionId:
    """The revision of a model of the configuration; `others` has the models that it calls."""
    return revision_id(manifest_of(model, others))


def canonical(manifest: Manifest) -> bytes:
    """The manifest as the one JSON text that is hashed: sorted keys, no spaces, every field."""
    return msgspec.json.encode(manifest, order="sorted")


def revision_id(manifest: Manifest) -> RevisionId:
    """`sha256:` and 64 hex digits."""
    return RevisionId("sha256:" + hashlib.sha256(canonical(manifest)).hexdigest())
