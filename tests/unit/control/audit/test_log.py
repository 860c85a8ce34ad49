"""The audit log's file over crashes, full disks and somebody's hand."""

import os
from pathlib import Path

import pytest

from tiffin.control.audit import log as audit_log
from tiffin.control.audit.chain import Verdict
from tiffin.control.audit.log import AuditLog, read_head, verify_files
from tiffin.errors import Unavailable
from tiffin.testing.clock import FakeClock

ME = ("acme/boss", "admin")


class Disk:
    """A folder with a log in it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.head = folder / "audit.jsonl", folder / "audit.head.json"
        self.log = self.start()

    def start(self) -> AuditLog:
        return AuditLog(self.path, self.head, FakeClock())

    def write(self, *actions: str) -> None:
        for action in actions:
            self.log.record(ME, action, "thing")

    def verdict(self) -> Verdict:
        return verify_files(self.path, self.head)

    @property
    def ends(self) -> int:
        head = read_head(self.head)
        return head.n if head else -1


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_what_is_recorded_can_be_read_and_checked(disk: Disk) -> None:
    disk.write("a", "b", "c")
    assert [one.action for one in disk.log.entries()] == ["a", "b", "c"]
    assert [one.action for one in disk.log.entries(after=1, limit=1)] == ["b"]
    assert disk.log.entries()[0].by == "acme/boss"
    assert disk.verdict().intact
    assert disk.ends == 3
    assert disk.path.stat().st_mode & 0o777 == 0o600


def test_another_start_goes_on_behind_it(disk: Disk) -> None:
    disk.write("a", "b")
    disk.log = disk.start()
    disk.write("c")
    assert (disk.verdict().intact, disk.ends) == (True, 3)
    assert not disk.log.fault


def test_a_line_that_a_crash_cut_was_never_there(disk: Disk) -> None:
    disk.write("a")
    with disk.path.open("ab") as file:
        file.write(b"0123 {half a line")
    assert disk.verdict().intact
    disk.log = disk.start()
    disk.write("b")
    assert disk.verdict().intact
    assert [one.n for one in disk.log.entries()] == [1, 2]


def test_a_crash_between_line_and_head_is_no_fault(disk: Disk) -> None:
    disk.write("a")
    before = disk.head.read_bytes()
    disk.write("b")
    disk.head.write_bytes(before)
    disk.log = disk.start()
    disk.write("c")
    assert disk.verdict().intact
    assert not disk.log.fault


def test_lines_cut_off_are_found_even_after_control_went_on(disk: Disk) -> None:
    disk.write("a", "b", "c")
    lines = disk.path.read_bytes().splitlines(keepends=True)
    disk.path.write_bytes(b"".join(lines[:1]))
    assert not disk.verdict().intact
    disk.log = disk.start()
    disk.write("d")
    assert "it ends with entry 1" in disk.log.fault
    [finding] = disk.verdict().findings
    assert finding.line == 2
    assert lines[2][:64].decode() in finding.problem


def test_a_whole_log_that_went_is_found(disk: Disk) -> None:
    disk.write("a", "b")
    disk.path.unlink()
    assert not disk.verdict().intact
    disk.log = disk.start()
    disk.write("c")
    assert not disk.verdict().intact


def test_a_changed_line_stays_found_and_the_log_goes_on(disk: Disk) -> None:
    disk.write("a", "b")
    disk.path.write_bytes(disk.path.read_bytes().replace(b'"a"', b'"x"'))
    disk.log = disk.start()
    disk.write("c")
    assert [one.line for one in disk.verdict().findings] == [1]


def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write("a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "replace_file", full)
        with pytest.raises(Unavailable, match="No space left"):
            disk.write("b")
    disk.write("c")
    assert [one.action for one in disk.log.entries()] == ["a", "c"]
    assert disk.verdict().intact


def test_a_full_log_refuses(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write("a")
    monkeypatch.setattr(audit_log, "MAX_BYTES", 10)
    with pytest.raises(Unavailable, match="full"):
        disk.write("b")


@pytest.mark.parametrize("head", [b"", b"nonsense", None])
@pytest.mark.parametrize("left", [1, 2])
def test_lines_cut_off_with_the_word_of_where_it_ends_are_found(
    disk: Disk, left: int, head: bytes | None
) -> None:
    disk.write("a", "b", "c")
    lines = disk.path.read_bytes().splitlines(keepends=True)
    disk.path.write_bytes(b"".join(lines[:left]))
    disk.head.unlink() if head is None else disk.head.write_bytes(head)
    assert not disk.verdict().intact
    assert not disk.log.verify().intact
    disk.log = disk.start()
    disk.write("d")
    assert disk.log.fault
    assert not disk.verdict().intact


def test_a_running_log_knows_its_own_end(disk: Disk) -> None:
    disk.write("a")
    before = disk.head.read_bytes()
    disk.write("b")
    disk.path.write_bytes(disk.path.read_bytes().splitlines(keepends=True)[0])
    disk.head.write_bytes(before)
    assert disk.verdict().intact
    assert not disk.log.verify().intact


def test_who_dies_before_the_first_line_leaves_no_fault(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "died")))
        with pytest.raises(Unavailable):
            disk.write("a")
    disk.log = disk.start()
    disk.write("a")
    assert disk.verdict().intact
    assert not disk.log.fault
