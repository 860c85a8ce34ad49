"""The import's working folder: gone afterwards, and what a killed one left goes with the next."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiffin.cli.scratch import working_folder
from tiffin.errors import ArtifactUnavailable
from tiffin.types.paths import DataFolder

WORKING = """
import sys, time
from pathlib import Path
from tiffin.cli.scratch import working_folder
from tiffin.types.paths import DataFolder
with working_folder(DataFolder(Path(sys.argv[1]))) as folder:
    (folder / "large").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    time.sleep(60)
"""


def test_it_is_gone_afterwards(tmp_path: Path) -> None:
    with working_folder(DataFolder(tmp_path / "data")) as folder:
        (folder / "inner").mkdir()
        assert folder.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_next_clears_what_a_killed_one_left_and_nothing_of_the_living(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    with working_folder(data) as living:
        with subprocess.Popen(
            [sys.executable, "-c", WORKING, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            left = Path(other.stdout.readline().strip())
            with working_folder(data):
                assert (left / "large").exists(), "its maker lives"
            other.send_signal(signal.SIGKILL)
        assert left.exists()
        with working_folder(data) as mine:
            assert not left.exists()
            assert living.exists()
            names = {path.name for path in (tmp_path / "importing").iterdir()}
            assert names == {f"{one.name}{end}" for one in (mine, living) for end in ("", ".lock")}


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "importing").write_text("a file")
    with (
        pytest.raises(ArtifactUnavailable, match="can't be written"),
        working_folder(DataFolder(tmp_path)),
    ):
        pass
