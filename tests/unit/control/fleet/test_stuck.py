from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.fleet.stuck import Patience, Vitals, Watch

LOOK_S = 0.25


class Subject:
    """A process under a watch, and the clock that both live by."""

    def __init__(self, patience: Patience | None = None, **vitals: object) -> None:
        start = {"heartbeat": 0, "steps": 0, "outstanding": 0, "ready": True}
        self.vitals = Vitals(**{**start, "cpu_s": 0.0, "state": "S", **vitals})  # type: ignore[arg-type]
        self.now = 1000.0
        self.watch = Watch(patience or Patience(), self.now)
        self.watch.look(self.vitals, self.now)

    def live(
        self, seconds: float, *, beat: bool = True, step: bool = False, cpu: float = 0.0
    ) -> str:
        """Let time pass; stops at the first verdict and returns it."""
        for _ in range(round(seconds / LOOK_S)):
            self.now += LOOK_S
            self.vitals = replace(
                self.vitals,
                heartbeat=self.vitals.heartbeat + beat,
                steps=self.vitals.steps + step,
                cpu_s=self.vitals.cpu_s + cpu * LOOK_S,
            )
            if verdict := self.watch.look(self.vitals, self.now):
                return verdict
        return ""


def test_an_idle_process_with_a_heartbeat_is_never_stuck() -> None:
    assert Subject().live(10_000, cpu=0.002) == ""


@pytest.mark.parametrize("outstanding", [0, 3], ids=["idle", "with work"])
def test_a_stopped_process_is_stuck_within_seven_seconds(outstanding: int) -> None:
    subject = Subject(outstanding=outstanding)
    subject.live(60, step=outstanding > 0, cpu=0.5)
    began = subject.now
    assert "nothing moved" in subject.live(20, beat=False)
    assert 6.0 <= subject.now - began <= 7.0


def test_a_process_that_waits_for_the_disk_gets_more_time() -> None:
    subject = Subject(state="D")
    assert subject.live(29, beat=False) == ""
    assert "nothing moved" in subject.live(2, beat=False)


def test_an_engine_that_holds_the_gil_is_busy_not_stuck() -> None:
    assert Subject(outstanding=1).live(599, beat=False, cpu=1.0) == ""


def test_an_engine_that_never_lets_go_is_stuck_in_the_end() -> None:
    subject = Subject(outstanding=1)
    assert "although it is busy" in subject.live(1000, beat=False, cpu=1.0)
    assert subject.now - 1000.0 <= 601


def test_a_live_loop_whose_engine_does_nothing_is_stuck() -> None:
    subject = Subject(outstanding=2)
    assert "no progress" in subject.live(100, cpu=0.02)
    assert 30.0 <= subject.now - 1000.0 <= 31.0


def test_a_long_prefill_is_no_lack_of_progress() -> None:
    assert Subject(outstanding=1).live(500, cpu=0.9) == ""


def test_waiting_for_work_beforehand_doesnt_count_against_the_work() -> None:
    subject = Subject()
    subject.live(5000, cpu=0.01)
    subject.vitals = replace(subject.vitals, outstanding=1)
    assert subject.live(29, cpu=0.01) == ""


def test_a_gateway_may_wait_for_others_as_long_as_its_loop_turns() -> None:
    patience = Patience(by_work=False, silent_s=30.0)
    assert Subject(patience, outstanding=9).live(5000, cpu=0.001) == ""
    assert Subject(patience, outstanding=9).live(31, beat=False, cpu=1.0) != ""


def test_loading_may_hold_the_gil_or_wait_for_the_disk_until_its_time_is_up() -> None:
    subject = Subject(Patience(start_s=100.0), ready=False)
    assert subject.live(50, beat=False, cpu=1.0) == ""
    assert subject.live(49, beat=False) == ""
    assert "not ready after 100 s" in subject.live(2, beat=False)


def test_a_process_stopped_while_it_loads_is_stuck_soon() -> None:
    assert "stopped" in Subject(ready=False, state="T").live(7, beat=False)


def test_the_watchers_own_absence_blames_nobody() -> None:
    subject = Subject(Patience(start_s=100.0), outstanding=1, ready=False)
    subject.now += 5000.0
    assert subject.watch.look(subject.vitals, subject.now) == ""
    subject.vitals = replace(subject.vitals, ready=True)
    subject.live(1, beat=False)
    subject.now += 5000.0
    assert subject.watch.look(subject.vitals, subject.now) == ""
    assert subject.live(5, beat=False) == ""


moves = st.tuples(st.booleans(), st.booleans(), st.floats(min_value=0.0, max_value=2.0))


@given(st.lists(moves, max_size=200), st.integers(min_value=0, max_value=5))
def test_whoever_steps_at_least_every_five_seconds_is_never_stuck(
    life: list[tuple[bool, bool, float]], outstanding: int
) -> None:
    subject = Subject(outstanding=outstanding)
    for beat, step, cpu in life:
        assert subject.live(4.5, beat=beat, step=step, cpu=cpu) == ""
        assert subject.live(0.25, step=True) == ""


@given(st.lists(moves, max_size=60), st.integers(min_value=0, max_value=5), st.booleans())
def test_whoever_does_nothing_at_all_is_found_out_whatever_came_before(
    life: list[tuple[bool, bool, float]], outstanding: int, by_work: bool
) -> None:
    subject = Subject(Patience(by_work=by_work), outstanding=outstanding)
    for beat, step, cpu in life:
        if subject.live(1, beat=beat, step=step, cpu=cpu):
            return
    assert subject.live(7, beat=False) != ""
