"""Pulling: the first source with the right bytes, and never a wrong file in the store."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.pull import artifacts_of, check, pull, pull_each, smallest_first
from tiffin.errors import ArtifactError, ArtifactUnavailable, ConfigInvalid, Draining
from tiffin.ports.artifacts import Artifact, Landing, shown

CONTENT = b"weights" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()

Script = Callable[[Landing], None]


class ScriptedSource:
    """Does what the URI says: `test:right`, `test:wrong`, `test:short`, ..."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def check(self, uri: str) -> None:
        """Only what is scripted."""
        if uri.removeprefix("test:") not in SCRIPTS:
            raise ConfigInvalid("not scripted", where=uri)

    def fetch(self, uri: str, landing: Landing) -> None:
        """Play the script."""
        self.fetched.append(uri)
        SCRIPTS[uri.removeprefix("test:")](landing)


def right(landing: Landing) -> None:
    """Go on from where the landing is."""
    landing.write(CONTENT[landing.offset :])


def wrong(landing: Landing) -> None:
    """As long, but other bytes."""
    landing.write(bytes(len(CONTENT) - landing.offset))


def short(landing: Landing) -> None:
    """End too early, without a word."""
    landing.write(CONTENT[landing.offset : -1])


def long(landing: Landing) -> None:
    """Go on past the end."""
    landing.write(CONTENT[landing.offset :] + b"!")


def broken(landing: Landing) -> None:
    """Break off after a marked half and some more."""
    landing.restart()
    landing.write(CONTENT[: len(CONTENT) // 2])
    landing.mark("half")
    landing.write(b"unmarked")
    raise ArtifactError("it broke off")


def absent(landing: Landing) -> None:
    """There is no such file."""
    raise ArtifactError("it isn't there")


def full(landing: Landing) -> None:
    """The disk is full."""
    raise ArtifactUnavailable("the disk is full")


SCRIPTS: dict[str, Script] = {
    "right": right,
    "wrong": wrong,
    "short": short,
    "long": long,
    "broken": broken,
    "full": full,
    "absent": absent,
    "nothing": lambda _: None,
}


def artifact(*scripts: str, size: int = 0, model: str = "m") -> Artifact:
    return Artifact(
        model=model, sha256=DIGEST, size_bytes=size, sources=tuple(f"test:{s}" for s in scripts)
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalArtifactStore:
    """An empty store."""
    return LocalArtifactStore(tmp_path / "store")


def test_a_file_that_is_there_asks_no_source(store: LocalArtifactStore) -> None:
    source = ScriptedSource()
    first = pull(artifact("right"), store, {"test": source})
    assert pull(artifact("right"), store, {"test": source}) == first
    assert source.fetched == ["test:right"]


def test_sources_are_tried_in_order_until_one_is_right(store: LocalArtifactStore) -> None:
    source = ScriptedSource()
    path = pull(artifact("wrong", "broken", "right", "nothing"), store, {"test": source})
    assert path.read_bytes() == CONTENT
    assert source.fetched == ["test:wrong", "test:broken", "test:right"]


def test_when_all_fail_every_reason_is_given(store: LocalArtifactStore) -> None:
    with pytest.raises(ArtifactUnavailable) as caught:
        pull(artifact("wrong", "broken", "absent"), store, {"test": ScriptedSource()})
    for reason in (
        "m can't be had",
        "test:wrong gave sha256",
        "test:broken: it broke off",
        "test:absent: it isn't there",
    ):
        assert reason in caught.value.message


def test_an_unknown_scheme_is_a_reason_too(store: LocalArtifactStore) -> None:
    one = Artifact(model="m", sha256=DIGEST, sources=("ftp://host/x", "test:right"))
    assert pull(one, store, {"test": ScriptedSource()}).read_bytes() == CONTENT
    with pytest.raises(ConfigInvalid, match=r"models\.m\.sources\[0\].*ftp"):
        check(one, {"test": ScriptedSource()})


def test_a_full_disk_ends_the_pull_at_once(store: LocalArtifactStore) -> None:
    source = ScriptedSource()
    with pytest.raises(ArtifactUnavailable, match="m: the disk is full"):
        pull(artifact("full", "right"), store, {"test": source})
    assert source.fetched == ["test:full"]


def test_once_stopped_nothing_is_written(store: LocalArtifactStore) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Draining):
        pull(artifact("right", "right"), store, {"test": ScriptedSource()}, stop=stop)
    assert store.find(DIGEST) is None


def test_a_digest_can_t_be_a_path(store: LocalArtifactStore) -> None:
    evil = Artifact(model="m", sha256="../../etc/passwd", sources=("test:right",))
    with pytest.raises(ConfigInvalid, match=r"models\.m\.sha256"):
        pull(evil, store, {"test": ScriptedSource()})


def test_the_smallest_comes_first_and_a_failure_holds_nobody_up(
    store: LocalArtifactStore,
) -> None:
    some = [
        artifact("right", model="unknown"),
        artifact("wrong", size=9_000_000, model="large"),
        artifact("right", size=len(CONTENT), model="small"),
    ]
    assert [one.model for one in smallest_first(some)] == ["small", "large", "unknown"]
    other = Artifact(model="bad", sha256="0" * 64, size_bytes=1, sources=("test:broken",))
    results = {
        one.model: result
        for one, result in pull_each([*some, other], store, {"test": ScriptedSource()})
    }
    assert isinstance(results["bad"], ArtifactUnavailable)
    assert isinstance(results["small"], Path)


def test_a_model_of_the_configuration_becomes_an_artifact() -> None:
    model = LlamacppModel(sources=["test:right"], sha256=DIGEST.upper(), size_bytes=5)
    [needed] = artifacts_of("m", model)
    same = artifact("right", size=5)
    assert needed == msgspec.structs.replace(same, where="models.m", chats=True)
    check(needed, {"test": ScriptedSource()})


def test_a_model_without_sources_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="at least one"):
        check(artifact(), {})


def test_secrets_in_an_address_are_not_shown() -> None:
    assert shown("https://user:pass@host/a@b?sig=1#x") == "https://host/a@b"
    assert shown("hf:acme/tiny@v1/w.gguf") == "hf:acme/tiny@v1/w.gguf"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tries=st.lists(
        st.lists(st.sampled_from([*SCRIPTS]), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    known=st.booleans(),
)
def test_a_file_in_the_store_is_always_whole_and_right(
    tmp_path_factory: pytest.TempPathFactory, tries: list[list[str]], known: bool
) -> None:
    root = tmp_path_factory.mktemp("store")
    store = LocalArtifactStore(root)
    for scripts in tries:
        one = artifact(*scripts, size=len(CONTENT) if known else 0)
        usable = scripts[: scripts.index("full")] if "full" in scripts else scripts
        expected = store.find(DIGEST) is not None or "right" in usable
        try:
            assert pull(one, store, {"test": ScriptedSource()}).read_bytes() == CONTENT
            assert expected
        except ArtifactUnavailable:
            assert not expected
        finished = [path.read_bytes() for path in (root / "sha256").iterdir()]
        assert finished == ([CONTENT] if expected else [])
        if expected:
            assert list((root / "partial").iterdir()) == []


def test_the_smallest_that_chats_leads() -> None:
    some = [
        artifact("right", size=1, model="vectors"),
        msgspec.structs.replace(artifact("right", size=9, model="large"), chats=True),
        msgspec.structs.replace(artifact("right", size=5, model="small"), chats=True),
    ]
    assert [one.model for one in smallest_first(some)] == ["small", "vectors", "large"]
