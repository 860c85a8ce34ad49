from pathlib import Path

from tiffin.control.fleet.measured import MOST, TRUSTED_LOOKS, Measured

MIB = 1 << 20


def test_more_than_was_thought_counts_at_once(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "measured.json")
    measured.memory("g", 200 * MIB, worked=False)
    assert measured.need_bytes("g", 100 * MIB) >= 200 * MIB


def test_less_than_was_thought_counts_only_once_it_was_seen_at_work(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "measured.json")
    for _ in range(TRUSTED_LOOKS):
        measured.memory("g", 50 * MIB, worked=False)
    assert measured.need_bytes("g", 100 * MIB) == 100 * MIB
    for _ in range(TRUSTED_LOOKS):
        measured.memory("g", 50 * MIB, worked=True)
    assert 50 * MIB <= measured.need_bytes("g", 100 * MIB) < 60 * MIB


def test_the_most_is_kept_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    measured = Measured(path)
    for megabytes in (10, 30, 20):
        measured.memory("g", megabytes * MIB, worked=True)
    measured.ready("g", 1234)
    measured.save()
    again = Measured(path).of("g")
    assert (again.memory_bytes, again.ready_ms) == (30 * MIB, 1234)


def test_what_was_measured_long_ago_is_forgotten(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "measured.json")
    for n in range(MOST + 1):
        measured.ready(f"g{n}", 1)
    assert measured.of("g0").ready_ms == 0
    assert measured.of(f"g{MOST}").ready_ms == 1


def test_a_broken_file_is_no_reason_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text("{")
    measured = Measured(path)
    assert measured.need_bytes("g", 7) == 7
    measured.ready("g", 5)
    measured.save()
    assert Measured(path).of("g").ready_ms == 5
