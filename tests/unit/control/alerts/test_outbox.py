"""What waits to be told, over restarts, full disks and full boxes."""

from pathlib import Path

import pytest

from tiffin.control.alerts import outbox as module
from tiffin.control.alerts.marks import Mark
from tiffin.control.alerts.outbox import KEEP_MESSAGES_NS, MOST, Message, Outbox
from tiffin.errors import Unavailable
from tiffin.telemetry.metrics import Meter

MARKS = {"ops: x": Mark(since_ns=10, told=("50",))}


def message(number: int, at_ns: int = 10, to: str = "ops") -> Message:
    return Message(id=f"alr_{number}", to=to, at_ns=at_ns, body="{}")


def opened(path: Path) -> Outbox:
    outbox = Outbox(path / "alerts.json", Meter("control", ""))
    outbox.open()
    return outbox


def test_the_next_life_finds_what_waits_and_what_was_told(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.put([message(1), message(2)], MARKS)
    first.strike(message(1))
    second = opened(tmp_path)
    assert second.waiting == (message(2),)
    assert second.told == MARKS
    assert second.origin == first.origin != opened(tmp_path / "..").origin


def test_of_too_many_the_oldest_go(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.put([message(number) for number in range(MOST + 2)], {})
    assert len(outbox.waiting) == MOST
    assert outbox.waiting[0] == message(2)


def test_what_is_too_old_or_for_nobody_goes(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    now = KEEP_MESSAGES_NS + 20
    outbox.put([message(1), message(2, now), message(3, now, "gone")], {})
    outbox.tidy(["ops"], now)
    assert outbox.waiting == (message(2, now),)


def test_what_cant_be_kept_isnt_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = opened(tmp_path)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(module, "replace_file", full)
        with pytest.raises(Unavailable, match="can't be kept"):
            outbox.put([message(1)], MARKS)
    assert (outbox.waiting, outbox.told) == ((), {})


def test_a_file_that_makes_no_sense_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "alerts.json").write_text("not JSON")
    outbox = opened(tmp_path)
    outbox.put([message(1)], {})
    assert opened(tmp_path).waiting == (message(1),)
