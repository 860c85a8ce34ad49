"""What a revision is: the bytes and options that decide its answers, named by their digest."""

import hashlib

import msgspec

from tiffin.config.schema import EchoModel, LlamacppModel, Model, RemoteModel
from tiffin.types.ids import RevisionId

MANIFEST_FORMAT = 1


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of a revision: equal manifests answer alike.

    How much it gets (slots, threads, queue, time limits) belongs to its deployment and isn't here.
    `artifact_bytes` is the declared size, 0 where none is.
    """

    format: int = MANIFEST_FORMAT
    runtime: str
    artifact_sha256: str = ""
    artifact_bytes: int = 0
    options: dict[str, str | int | bool] = {}


def manifest_of(model: Model) -> Manifest:
    """The manifest of a model of the configuration."""
    match model:
        case LlamacppModel():
            return Manifest(
                runtime="llamacpp",
                artifact_sha256=model.sha256.lower(),
                artifact_bytes=model.size_bytes,
                options={"context": model.context, "tools": model.tools},
            )
        case RemoteModel():
            return Manifest(
                runtime="remote",
                options={"url": model.url, "model": model.model, "tools": model.tools},
            )
        case EchoModel():
            return Manifest(
                runtime="echo",
                options={
                    "context": model.context,
                    "tools": model.tools,
                    "fail_after": model.fail_after,
                },
            )


def canonical(manifest: Manifest) -> bytes:
    """The manifest as the one JSON text that is hashed: sorted keys, no spaces, every field."""
    return msgspec.json.encode(manifest, order="sorted")


def revision_id(manifest: Manifest) -> RevisionId:
    """`sha256:` and 64 hex digits."""
    return RevisionId("sha256:" + hashlib.sha256(canonical(manifest)).hexdigest())
