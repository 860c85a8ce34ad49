"""Revisions: equal content is one revision, and the name is the content's digest."""

import hashlib

import pytest

from tiffin.config.models import EchoModel, LlamacppModel, Model, RemoteModel
from tiffin.control.catalogue.revision import canonical, manifest_of, revision_id

MODEL = LlamacppModel(sources=["file:/w"], sha256="a" * 64, size_bytes=7, context=512)


def identity(model: Model) -> str:
    return revision_id(manifest_of(model))


def test_the_manifest_is_one_canonical_json_text() -> None:
    assert canonical(manifest_of(MODEL)) == (
        b'{"files":{"model.gguf":"' + b"a" * 64 + b'"},"format":1,'
        b'"options":{"context":512,"tools":false},"runtime":"llamacpp"}'
    )
    digest = hashlib.sha256(canonical(manifest_of(MODEL))).hexdigest()
    assert identity(MODEL) == f"sha256:{digest}"


@pytest.mark.parametrize(
    "same",
    [
        LlamacppModel(sources=["hf:a/b/w"], sha256="A" * 64, size_bytes=7, context=512),
        LlamacppModel(
            sources=["file:/w"], sha256="a" * 64, size_bytes=7, context=512, slots=1, threads=2
        ),
    ],
    ids=["another source", "other resources"],
)
def test_what_doesn_t_change_answers_keeps_the_revision(same: LlamacppModel) -> None:
    assert identity(same) == identity(MODEL)


@pytest.mark.parametrize(
    "other",
    [
        LlamacppModel(sources=["file:/w"], sha256="b" * 64, size_bytes=7, context=512),
        LlamacppModel(sources=["file:/w"], sha256="a" * 64, size_bytes=7, context=513),
        LlamacppModel(sources=["file:/w"], sha256="a" * 64, size_bytes=7, context=512, tools=True),
        EchoModel(context=512),
        RemoteModel(url="https://host/v1"),
    ],
    ids=["bytes", "context", "tools", "echo", "remote"],
)
def test_what_changes_answers_makes_a_new_revision(other: Model) -> None:
    assert identity(other) != identity(MODEL)


def test_a_remote_s_revision_is_where_it_is() -> None:
    one = RemoteModel(url="https://host/v1", model="a")
    assert identity(one) == identity(RemoteModel(url="https://host/v1", model="a", key_env="K"))
    assert identity(one) != identity(RemoteModel(url="https://host/v1", model="b"))
