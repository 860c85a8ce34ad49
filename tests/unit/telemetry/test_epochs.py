"""Locks that tell the living from the dead."""

from pathlib import Path

import pytest

from tiffin.telemetry import epochs


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ep.lock"
    epochs.hold(path)
    with pytest.raises(BlockingIOError):
        epochs.hold(path)
    with epochs.seize(path) as dead:
        assert not dead


def test_while_somebody_cleans_up_nobody_begins(tmp_path: Path) -> None:
    path = tmp_path / "ep.lock"
    path.touch()
    with epochs.seize(path) as dead:
        assert dead
        with pytest.raises(BlockingIOError):
            epochs.hold(path)
        path.unlink()
    epochs.hold(path)
    assert path.exists()


def test_a_file_that_was_never_there_is_nobodys(tmp_path: Path) -> None:
    with epochs.seize(tmp_path / "ep.lock") as dead:
        assert dead
