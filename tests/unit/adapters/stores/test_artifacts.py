"""The content-addressed store and its landings."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.adapters.stores.artifacts import STALE_S, LocalArtifactStore, free_bytes, verify
from tiffin.adapters.stores.landing import PartialFile
from tiffin.errors import ArtifactError, ArtifactUnavailable, DigestMismatch, Draining
from tiffin.ports.artifacts import Artifact

CONTENT = b"weights"
ONE = Artifact(model="m", sha256=hashlib.sha256(CONTENT).hexdigest(), sources=("test:a", "test:b"))


def silent(*_: object) -> None:
    """No progress wanted."""


@pytest.fixture
def store(tmp_path: Path) -> LocalArtifactStore:
    """An empty store at tmp_path."""
    return LocalArtifactStore(tmp_path)


@contextmanager
def claimed(store: LocalArtifactStore, source: str = "test:a") -> Iterator[PartialFile]:
    """A landing under a claim."""
    never = threading.Event()
    with store.claim(ONE, never), store.landing(ONE, source, silent, never) as landing:
        yield landing


def test_a_finished_file_is_read_only_and_alone(store: LocalArtifactStore, tmp_path: Path) -> None:
    with store.claim(ONE, threading.Event()):
        with store.landing(ONE, "test:a", silent, threading.Event()) as landing:
            landing.write(CONTENT)
        path = store.accept(ONE, "test:a")
    assert store.find(ONE.sha256) == path
    assert path.stat().st_mode & 0o777 == 0o400
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


def test_verify_names_both_digests(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(CONTENT)
    verify(file, ONE.sha256)
    with pytest.raises(DigestMismatch, match=f"{ONE.sha256}.*expected {'0' * 64}"):
        verify(file, "0" * 64)
    with pytest.raises(ArtifactUnavailable, match="No such file"):
        verify(tmp_path / "absent", ONE.sha256)


def test_verify_deletes_what_the_store_keeps_under_a_wrong_name(tmp_path: Path) -> None:
    linked, kept = tmp_path / "weights", tmp_path / ONE.sha256
    linked.write_bytes(CONTENT)
    kept.hardlink_to(linked)
    verify(kept, ONE.sha256)
    linked.write_bytes(b"other weights")
    with pytest.raises(DigestMismatch):
        verify(kept, ONE.sha256)
    assert not kept.exists()
    assert linked.read_bytes() == b"other weights"


def test_only_one_holds_a_digest_and_a_waiter_can_leave(store: LocalArtifactStore) -> None:
    stop = threading.Event()
    with store.claim(ONE, stop):
        stop.set()
        with pytest.raises(Draining), store.claim(ONE, stop):
            pass
    with store.claim(ONE, stop):
        pass


def test_many_claims_never_overlap(store: LocalArtifactStore) -> None:
    inside: list[int] = []
    most: list[int] = []

    def claim() -> None:
        for _ in range(5):
            with store.claim(ONE, threading.Event()):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


def test_leftovers_of_sources_that_are_gone_are_deleted(
    store: LocalArtifactStore, tmp_path: Path
) -> None:
    with claimed(store, "test:b"), claimed_by(store, "test:gone") as landing:
        landing.write(b"some")
    with claimed(store):
        kept = {folder.name for folder in (tmp_path / "partial" / ONE.sha256).iterdir()}
    assert len(kept) == 2


@contextmanager
def claimed_by(store: LocalArtifactStore, source: str) -> Iterator[PartialFile]:
    """A landing, the claim being held already."""
    with store.landing(ONE, source, silent, threading.Event()) as landing:
        yield landing


def age(folder: Path) -> None:
    """Make everything in the folder look old."""
    old = time.time() - STALE_S - 60
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (old, old))


def test_sweeping_deletes_what_is_stale_only(store: LocalArtifactStore, tmp_path: Path) -> None:
    with claimed(store) as landing:
        landing.write(b"some")
        landing.mark("")
    store.sweep()
    assert list((tmp_path / "partial").iterdir()) != []
    (tmp_path / "partial" / f"{'0' * 64}.lock").touch()
    age(tmp_path / "partial")
    store.sweep()
    assert list((tmp_path / "partial").iterdir()) == []


def test_sweeping_leaves_what_somebody_holds(store: LocalArtifactStore, tmp_path: Path) -> None:
    with claimed(store) as landing:
        landing.write(b"some")
        age(tmp_path / "partial")
        store.sweep()
        landing.mark("still here")
    with claimed(store) as landing:
        assert landing.note == "still here"


def test_sweeping_deletes_what_a_pull_left_behind_that_died_at_the_very_end(
    store: LocalArtifactStore, tmp_path: Path
) -> None:
    with claimed(store) as landing:
        landing.write(CONTENT)
        landing.mark("")
    (tmp_path / "sha256" / ONE.sha256).write_bytes(CONTENT)
    store.sweep()
    assert list((tmp_path / "partial").iterdir()) == []


def test_sweeping_an_empty_store_is_nothing(store: LocalArtifactStore, tmp_path: Path) -> None:
    store.sweep()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_can_t_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalArtifactStore(tmp_path / "file")
    with pytest.raises(ArtifactUnavailable, match="can't be written"), claimed(store):
        pass


def test_an_adopted_file_is_shared_and_unchanged(store: LocalArtifactStore, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(CONTENT)
    mine.chmod(0o640)
    with store.claim(ONE, threading.Event()):
        with claimed_by(store, "test:a") as landing:
            assert landing.adopt(mine)
        path = store.accept(ONE, "test:a")
    assert path.samefile(mine)
    assert mine.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_adopted_in_a_broken_pull_is_not_written_to(
    store: LocalArtifactStore, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"another file")
    with claimed(store) as landing:
        landing.adopt(mine)
    with claimed(store) as landing:
        assert landing.offset == 0
        landing.restart()
        landing.write(CONTENT)
    assert mine.read_bytes() == b"another file"


def test_expecting_more_than_declared_or_free_is_refused(tmp_path: Path) -> None:
    landing = opened(tmp_path, size_bytes=10)
    landing.expect(4, last=False)
    for more, last in ((11, False), (9, True)):
        with pytest.raises(ArtifactError, match="expected 10"):
            landing.expect(more, last=last)
    landing.close()
    tight = PartialFile(
        tmp_path,
        size_bytes=0,
        free_bytes=lambda _: 3,
        stop=threading.Event(),
        report=lambda _: None,
    )
    with pytest.raises(ArtifactUnavailable, match="4 bytes are needed, 3 are free"):
        tight.expect(4, last=True)
    tight.close()


@pytest.mark.parametrize("mark", [b"", b"nonsense", b'[99,"past the end"]', b"[3]"])
def test_a_mark_that_can_t_be_true_starts_over(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "content").write_bytes(b"abc")
    (tmp_path / "mark").write_bytes(mark)
    landing = opened(tmp_path)
    assert (landing.offset, landing.note) == (0, "")
    landing.close()


def opened(folder: Path, size_bytes: int = 0) -> PartialFile:
    return PartialFile(
        folder,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        stop=threading.Event(),
        report=lambda _: None,
    )


steps = st.one_of(
    st.tuples(st.just("write"), st.binary(max_size=40)),
    st.tuples(st.just("mark"), st.sampled_from([b"", b"1", b'"etag"'])),
    st.tuples(st.sampled_from(["restart", "crash"]), st.just(b"")),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=20))
def test_what_is_marked_survives_a_crash_and_nothing_else_does(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    written, marked, note = b"", b"", ""
    landing = opened(folder)
    for step, content in plan:
        match step:
            case "write":
                landing.write(content)
                written += content
            case "mark":
                note = content.decode()
                landing.mark(note)
                marked = written
            case "restart":
                landing.restart()
                written, marked, note = b"", b"", ""
            case "crash":
                landing.close()
                landing = opened(folder)
                written = marked
        assert (landing.offset, landing.note) == (len(written), note)
        assert (folder / "content").read_bytes() == written
    landing.close()
