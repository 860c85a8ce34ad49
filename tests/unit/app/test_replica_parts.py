"""What a replica's process decides before and beside its serving."""

import stat
from pathlib import Path

import pytest

from tiffin.app.adapters import RUNTIMES, find
from tiffin.app.edges import listen
from tiffin.app.replica import State, StateFile, is_permanent
from tiffin.errors import (
    ArtifactUnavailable,
    ConfigInvalid,
    DigestMismatch,
    LoadFailed,
    RunFailed,
    TiffinError,
)
from tiffin.types.json_file import read_json


def because(error: TiffinError, cause: BaseException) -> TiffinError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (DigestMismatch("other bytes"), True),
        (LoadFailed("not a model"), True),
        (because(LoadFailed("bad"), ValueError("bad")), True),
        (because(LoadFailed("no memory"), MemoryError()), False),
        (because(LoadFailed("disk"), OSError()), False),
        (because(LoadFailed("the warm-up failed"), RunFailed("no tokens")), False),
        (ArtifactUnavailable("can't be read"), False),
        (RuntimeError("a defect"), False),
    ],
    ids=lambda value: "" if isinstance(value, bool) else repr(value),
)
def test_only_what_another_start_can_t_mend_is_permanent(error: Exception, permanent: bool) -> None:
    assert is_permanent(error) is permanent


def test_a_replica_s_socket_is_its_owner_s_and_replaces_a_stale_one(tmp_path: Path) -> None:
    path = tmp_path / "r.sock"
    path.write_text("left behind")
    sock = listen(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    sock.close()


def test_a_kind_is_found_by_its_import_path() -> None:
    table = {"path": "pathlib:Path"}
    assert find(table, "path") is Path


def test_an_unknown_kind_is_told_with_those_that_exist() -> None:
    with pytest.raises(ConfigInvalid, match=r"no runtime 'vlm'.*echo, .*llamacpp"):
        find(RUNTIMES, "vlm")


def test_how_a_start_goes_is_told_when_the_disk_has_room_for_it(tmp_path: Path) -> None:
    path = tmp_path / "r.state.json"
    blocked = path.with_name(path.name + ".tmp")
    blocked.mkdir()
    states = StateFile(path)
    states.tell(phase="warming", load_ms=7)
    states.tell(phase="ready")
    assert not path.exists()
    blocked.rmdir()
    states.retry()
    told = read_json(path, State)
    assert (told.phase, told.load_ms) == ("ready", 7)
