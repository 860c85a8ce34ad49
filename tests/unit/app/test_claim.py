import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tiffin.app.claim import claim, listen, url
from tiffin.config.schema import Server
from tiffin.errors import ConfigInvalid, Conflict
from tiffin.types.paths import DataFolder, replica_name, sockets


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_folder_is_made_private_whatever_it_was(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "data")
    folder.run.mkdir(parents=True, mode=0o755)
    with claim(folder):
        made = (folder.root, folder.run, folder.logs, folder.journal, folder.metrics)
        assert {mode(path) for path in made} == {0o700}
        assert mode(folder.supervisor_lock) == 0o600


def test_a_second_claim_names_the_holder_and_leaves_its_files(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with claim(folder):
        (folder.run / "gateway.progress").touch()
        with pytest.raises(Conflict, match=f"pid {os.getpid()}.*{tmp_path}"), claim(folder):
            pass
        assert (folder.run / "gateway.progress").exists()


def test_the_next_holder_finds_nothing_stale(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with claim(folder):
        pass
    folder.supervisor_lock.write_text("999999\n")
    for name in ("r-x.sock", "r-x.progress", "r-x.state.json", "status.json", "status.json.tmp"):
        (folder.run / name).touch()
    with claim(folder):
        assert list(folder.run.iterdir()) == []
        assert folder.supervisor_lock.read_text() == f"{os.getpid()}\n"


def test_on_leaving_nothing_stays_in_the_run_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with claim(folder):
        (folder.run / "status.json").touch()
        (folder.run / "control.sock").touch()
        (folder.run / "r-m-01234567.files" / "files-1").mkdir(parents=True)
    assert list(folder.run.iterdir()) == []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Starts processes that look like children of the supervisor of a data folder."""
    package = tmp_path / "stand-in" / "tiffin" / "app"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "replica.py").write_text("import time\nprint(flush=True)\ntime.sleep(60)\n")
    started: list[subprocess.Popen[bytes]] = []

    def start(data: Path) -> subprocess.Popen[bytes]:
        argument = msgspec.json.encode(
            {"role": "replica", "data": str(data), "parent_pid": 1}
        ).decode()
        argv = [sys.executable, "-m", "tiffin.app.replica", argument]
        process = subprocess.Popen(argv, cwd=package.parent.parent, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_children_of_a_dead_holder_are_ended_and_those_of_others_are_not(
    tmp_path: Path, start: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    ours, other = start(tmp_path / "ours"), start(tmp_path / "other")
    reaper = threading.Thread(target=ours.wait)
    reaper.start()
    with claim(DataFolder(tmp_path / "ours")):
        reaper.join(10)
        assert ours.returncode == -signal.SIGKILL
        assert other.poll() is None


def test_a_folder_that_cant_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigInvalid, match=r"server\.data"), claim(DataFolder(tmp_path / "file")):
        pass


def test_a_path_that_is_too_long_for_sockets_gets_a_short_way_for_as_long_as_it_is_held(
    tmp_path: Path,
) -> None:
    folder = DataFolder(tmp_path / ("long" * 30))
    way = sockets(folder.run)
    way.symlink_to("/nonexistent")  # A dead holder's.
    with claim(folder):
        assert way.samefile(folder.run)
        path = folder.replica_socket(replica_name("m" * 200, "0" * 64, 0)).with_suffix(
            ".engine.sock"
        )
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(path))
        assert [path.name] == [entry.name for entry in folder.run.iterdir()]
    assert not way.is_symlink()


def test_a_short_path_needs_no_other_way() -> None:
    assert sockets(Path("/home/asha/.tiffin/run")) == Path("/home/asha/.tiffin/run")


def test_port_zero_takes_a_free_one_and_says_which() -> None:
    with listen(Server(port=0)) as listener:
        assert url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_taken_port_is_an_error_with_the_mend() -> None:
    with listen(Server(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=f"{port} is taken.*TIFFIN__SERVER__PORT"):
            listen(Server(port=port))


def test_a_taken_port_for_grpc_is_an_error_too() -> None:
    with listen(Server(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=f"{port} is taken.*TIFFIN__SERVER__GRPC_PORT"):
            listen(Server(port=0, grpc_port=port))


def test_a_foreign_address_is_an_error() -> None:
    with pytest.raises(ConfigInvalid, match=r"server\.host"):
        listen(Server(host="192.0.2.1", port=0))


def test_an_address_for_everybody_is_shown_as_one_that_works_here() -> None:
    with listen(Server(host="0.0.0.0", port=0)) as listener:
        assert url(listener).startswith("http://127.0.0.1:")


def test_an_address_of_version_six_is_shown_in_brackets() -> None:
    with socket.socket(socket.AF_INET6) as six:
        try:
            six.bind(("::1", 0))
        except OSError as failure:
            pytest.skip(f"this machine has no IPv6: {failure}")
        assert url(six).startswith("http://[::1]:")
