"""What a gateway leaves alone outlives it, with what is left of it by the wall clock."""

from pathlib import Path

import pytest

from tiffin.app.left_alone import LeftAlone
from tiffin.gateway.placement.circuit import Held
from tiffin.testing.clock import FakeClock
from tiffin.types.paths import DataFolder, left_alone

HELD = {"big https://x/v1": {"": Held(3, 8.0), "key ONE": Held(0, 0.0, 40.0)}}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


def test_the_next_gateway_goes_on_with_what_is_left(folder: DataFolder) -> None:
    clock = FakeClock()
    LeftAlone(folder, "gateway", clock).write(HELD)
    clock.advance(5)
    found = LeftAlone(folder, "gateway-2", clock).read()
    assert found == {"big https://x/v1": {"": Held(3, 3.0), "key ONE": Held(0, 0.0, 35.0)}}
    assert left_alone(folder, "gateway").stat().st_mode & 0o077 == 0


def test_a_clock_that_went_back_makes_nothing_longer(folder: DataFolder) -> None:
    LeftAlone(folder, "gateway", FakeClock()).write(HELD)
    assert LeftAlone(folder, "gateway", FakeClock(at_ns=5)).read() == HELD


def test_it_is_written_when_it_changed_alone_and_goes_when_nothing_is_left(
    folder: DataFolder,
) -> None:
    clock, path = FakeClock(), left_alone(folder, "gateway")
    kept = LeftAlone(folder, "gateway", clock)
    kept.write({})
    assert not path.exists()
    kept.write(HELD)
    path.write_text("mark")
    clock.advance(5)
    kept.write({"big https://x/v1": {"": Held(3, 3.2), "key ONE": Held(0, 0.0, 35.0)}})
    assert path.read_text() == "mark", "only time has passed"
    kept.write({"big https://x/v1": {"": Held(4, 16.0)}})
    assert kept.read() == {"big https://x/v1": {"": Held(4, 16.0)}}
    kept.write({})
    assert not path.exists()


def test_what_a_disk_refused_is_written_at_the_next_look(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    kept = LeftAlone(folder, "gateway", FakeClock())
    kept.write(HELD)  # there is no folder
    left_alone(folder, "gateway").parent.mkdir(parents=True)
    kept.write(HELD)
    assert kept.read() == HELD


def test_a_file_that_makes_no_sense_is_nothing(folder: DataFolder) -> None:
    left_alone(folder, "gateway").write_text('{"at_ns": 1, "held": [')
    assert LeftAlone(folder, "gateway", FakeClock()).read() == {}
