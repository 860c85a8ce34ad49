"""The memory's policy in virtual time: replicas load, answer, drain; requests come and wait."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.control.fleet.residency import Lodger, Presence, decide

STEP_S = 0.1


@dataclass
class Machine:
    """A machine on which everything happens as decided; times are seconds."""

    budget: int
    lodgers: dict[str, Lodger]
    load_s: float = 1.0
    answer_s: float = 0.2
    now: float = 0.0
    held: dict[str, list[float]] = field(default_factory=dict)
    running: dict[str, list[float]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    stays: list[float] = field(default_factory=list)

    def ask(self, model: str) -> None:
        ready = [one for one in self.of(model) if one.presence is Presence.READY]
        if ready:
            self.answer(ready[0].name, self.now)
        else:
            self.held.setdefault(model, []).append(self.now)

    def of(self, model: str) -> list[Lodger]:
        return [one for one in self.lodgers.values() if one.model == model]

    def answer(self, name: str, asked: float) -> None:
        self.waits.append(self.now - asked)
        self.running.setdefault(name, []).append(self.now + self.answer_s)
        self.put(name, used_s=self.now)

    def put(self, name: str, **changed: Any) -> None:
        self.lodgers[name] = replace(self.lodgers[name], **changed)

    def step(self) -> None:
        self.now += STEP_S
        for one in list(self.lodgers.values()):
            self._live(one)
        seen = tuple(self._seen(one) for one in self.lodgers.values())
        decision = decide(self.budget, seen, self.now)
        assert decision == decide(self.budget, seen, self.now)
        for retired in decision.retire:
            one = self.lodgers[retired.name]
            assert one.presence in (Presence.READY, Presence.FAILED)
            self.stays.append(self.now - one.since_s)
            if "successor" not in retired.reason and one.presence is Presence.READY:
                assert self.now - one.since_s >= one.hold_s
            self.put(retired.name, presence=Presence.STOPPING, since_s=self.now)
        for woken in decision.wake:
            self.loads.append(woken.name)
            self.put(woken.name, presence=Presence.STARTING, since_s=self.now)
        assert self.used() <= self.budget

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def at(self, name: str) -> Presence:
        return self.lodgers[name].presence

    def used(self) -> int:
        return sum(one.need_bytes for one in self.lodgers.values() if one.resident)

    def _live(self, one: Lodger) -> None:
        self.running[one.name] = [end for end in self.running.get(one.name, []) if end > self.now]
        if one.presence is Presence.STARTING and self.now - one.since_s >= self.load_s:
            self.put(one.name, presence=Presence.READY, since_s=self.now)
            for asked in self.held.pop(one.model, []):
                self.answer(one.name, asked)
        elif one.presence is Presence.STOPPING and not self.running[one.name]:
            self.put(one.name, presence=Presence.ABSENT, since_s=self.now)

    def _seen(self, one: Lodger) -> Lodger:
        held = self.held.get(one.model, [])
        return replace(
            one,
            outstanding=len(self.running[one.name]),
            waiting=len(held),
            waiting_since_s=min(held, default=0.0),
        )


def lodger(name: str, need: int = 10, **more: Any) -> Lodger:
    chosen: dict[str, Any] = {
        "model": name,
        "on_demand": True,
        "hold_s": 2.0,
        "idle_s": 30.0,
        **more,
    }
    return Lodger(name=name, need_bytes=need, **chosen)


def machine(budget: int, *lodgers: Lodger, **more: Any) -> Machine:
    return Machine(budget, {one.name: one for one in lodgers}, **more)


def test_memory_for_one_and_requests_for_three_take_two_swaps() -> None:
    one = machine(10, lodger("A"), lodger("B"), lodger("C"))
    for model in "ABAACABC":
        one.ask(model)
        one.step()
    one.run(20)
    assert len(one.waits) == 8
    assert one.loads == ["A", "B", "C"]


def test_rivals_with_steady_traffic_take_turns_of_their_hold() -> None:
    one = machine(10, lodger("A"), lodger("B"))
    for _ in range(600):
        one.ask("A")
        one.ask("B")
        one.step()
    assert abs(one.loads.count("A") - one.loads.count("B")) <= 1
    assert min(one.stays) >= 2.0
    # A turn is the hold, the drain and the load.
    assert 60 / 3.6 <= len(one.loads) <= 60 / 2.8
    assert max(one.waits) < 5.0


def test_what_nobody_uses_is_unloaded_and_comes_back() -> None:
    one = machine(100, lodger("A", idle_s=5.0))
    one.ask("A")
    one.run(6)
    assert one.at("A") is Presence.READY
    one.run(2)
    assert one.at("A") is Presence.ABSENT
    one.ask("A")
    one.run(1.5)
    assert one.at("A") is Presence.READY


def test_the_least_recently_used_goes_and_no_more_than_must() -> None:
    one = machine(30, lodger("A"), lodger("B"), lodger("C"), lodger("D"))
    for model in "ABC":
        one.ask(model)
    one.run(3)
    for model in "BA":
        one.ask(model)
        one.step()
    one.run(1)
    one.ask("D")
    one.run(2)
    here = {name for name, lodged in one.lodgers.items() if lodged.resident}
    assert here == {"A", "B", "D"}


def test_a_busy_model_isnt_ended_before_its_rival_has_waited_for_its_hold() -> None:
    busy = lodger("A", presence=Presence.READY, since_s=0.0, outstanding=1)
    rival = lodger("B", waiting=1, waiting_since_s=99.0)
    assert decide(10, (busy, rival), 100.0).retire == ()
    assert [r.name for r in decide(10, (busy, rival), 101.0).retire] == ["A"]


def test_who_waits_for_room_keeps_it_free_of_those_that_came_later() -> None:
    held = lodger("A", 6, presence=Presence.READY, since_s=100.0)
    big = lodger("B", 10, waiting=1, waiting_since_s=98.0)
    small = lodger("C", 4, waiting=1, waiting_since_s=99.0)
    decision = decide(10, (held, big, small), 101.0)
    assert (decision.wake, decision.retire) == ((), ())
    # Where the bigger one will have room all the same, the smaller one needn't wait.
    assert [w.name for w in decide(14, (held, big, small), 101.0).wake] == ["C"]


def test_always_loaded_ones_come_first_and_what_cant_be_is_refused_with_the_mend() -> None:
    mib = 1 << 20
    decision = decide(
        100 * mib,
        (
            lodger("asked", 50 * mib, waiting=1, waiting_since_s=0.0),
            lodger("big", 200 * mib, on_demand=False),
            lodger("first", 60 * mib, on_demand=False),
            lodger("second", 60 * mib, on_demand=False),
        ),
        1.0,
    )
    assert [woken.name for woken in decision.wake] == ["first"]
    refused = dict(decision.refused)
    assert set(refused) == {"asked", "big", "second"}
    assert "needs 200 MB" in refused["big"]
    assert "100 MB" in refused["big"]
    assert "memory_mb" in refused["big"]
    assert "first" in refused["second"]
    assert "on-demand" in refused["second"]


def old_and_new(**of_new: Any) -> tuple[Lodger, Lodger]:
    old = lodger("old", model="M", on_demand=False, presence=Presence.READY, outstanding=1)
    return old, lodger("new", model="M", on_demand=False, age=1, **of_new)


def test_a_new_generation_comes_before_the_old_one_goes() -> None:
    decision = decide(20, old_and_new(), 100.0)
    assert [woken.name for woken in decision.wake] == ["new"]
    assert decision.retire == ()


def test_where_memory_is_for_one_generation_the_old_one_goes_first_and_that_is_said() -> None:
    decision = decide(10, old_and_new(), 100.0)
    assert decision.wake == ()
    [retired] = decision.retire
    assert retired.name == "old"
    assert "successor" in retired.reason


def test_rivals_make_room_for_a_new_generation_before_the_old_one_does() -> None:
    idle = lodger("idle", presence=Presence.READY)
    assert [r.name for r in decide(20, (*old_and_new(), idle), 100.0).retire] == ["idle"]


def test_the_old_generation_comes_back_where_the_new_one_fails() -> None:
    old, new = old_and_new(failed=True, presence=Presence.FAILED)
    gone = replace(old, presence=Presence.ABSENT, outstanding=0)
    assert [r.name for r in decide(10, (gone, new), 100.0).retire] == ["new"]
    ended = replace(new, presence=Presence.ABSENT)
    assert [w.name for w in decide(10, (gone, ended), 100.0).wake] == ["old"]
    # And the failed one takes nothing from it any more.
    assert decide(10, (old, ended), 100.0).retire == ()


def test_more_replicas_of_a_model_in_use_come_where_room_is_left() -> None:
    first = lodger("A-0", model="A", presence=Presence.READY, used_s=99.0)
    more = lodger("A-1", model="A")
    other = lodger("B", presence=Presence.READY, used_s=99.0)
    assert [w.name for w in decide(30, (first, more, other), 100.0).wake] == ["A-1"]
    assert decide(20, (first, more, other), 100.0).retire == ()


def test_where_replicas_grew_idle_ones_end() -> None:
    grown = lodger("A", 15, presence=Presence.READY, outstanding=1)
    idle = lodger("B", 10, presence=Presence.READY)
    assert [r.name for r in decide(20, (grown, idle), 100.0).retire] == ["B"]


@pytest.mark.parametrize("presence", [Presence.READY, Presence.FAILED])
def test_nothing_is_done_where_nothing_is_asked(presence: Presence) -> None:
    decision = decide(20, (lodger("A", presence=presence, since_s=90.0), lodger("B")), 100.0)
    assert (decision.wake, decision.retire, decision.refused) == ((), (), ())


needs = st.integers(1, 10)
SIMULATED_S = 30


@settings(max_examples=40, deadline=None)
@given(
    budget=st.integers(10, 25),
    on_demand=st.lists(st.tuples(needs, st.sampled_from([0.0, 0.5, 2.0])), min_size=1, max_size=5),
    always=st.lists(needs, max_size=2),
    asked=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 4)), max_size=40),
    load_s=st.sampled_from([0.1, 1.0]),
    answer_s=st.sampled_from([0.0, 0.3, 3.0]),
)
def test_whatever_is_asked_the_budget_holds_and_everybody_gets_an_answer(
    *,
    budget: int,
    on_demand: list[tuple[int, float]],
    always: list[int],
    asked: list[tuple[int, int]],
    load_s: float,
    answer_s: float,
) -> None:
    loaded = [lodger(f"L{n}", need, on_demand=False) for n, need in enumerate(always)]
    mine = [lodger(f"D{n}", need, hold_s=hold) for n, (need, hold) in enumerate(on_demand)]
    one = machine(budget, *loaded, *mine, load_s=load_s, answer_s=answer_s)
    room = budget - sum(always) if sum(always) <= budget else 0
    possible = {each.name for each in mine if each.need_bytes <= room}
    requests = 0
    for step in range(100):
        for at, model in asked:
            if at == step and f"D{model}" in possible:
                one.ask(f"D{model}")
                requests += 1
        one.step()
    one.run(SIMULATED_S * 3)
    assert len(one.waits) == requests
    # Each load of an on-demand model was asked for by somebody.
    assert sum(name.startswith("D") for name in one.loads) <= requests
    if room:
        assert {each.name for each in loaded} <= set(one.loads)
