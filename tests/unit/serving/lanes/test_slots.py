"""The queue before an engine's slots: its laws, whatever the order of events."""

import asyncio
import contextlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tiffin.errors import DeadlineExceeded, Draining, Overloaded
from tiffin.serving.lanes.claim import Claim, Standing, Ticket, Work
from tiffin.serving.lanes.lane import shared_prefix
from tiffin.serving.lanes.slots import Lanes
from tiffin.serving.lanes.turn import Turn
from tiffin.testing.clock import FakeClock

A, B = "tenant-a", "tenant-b"


def one(lanes: Lanes, tenant: str = A, tokens: tuple[int, ...] = (1,), **claim: object) -> Ticket:
    [ticket] = lanes.ask(Claim(tenant, **claim), [Work(tokens)])  # type: ignore[arg-type]
    return ticket


def used(lanes: Lanes, tenant: str, tokens: tuple[int, ...]) -> int:
    """Run a prompt to its end; the slot it had."""
    ticket = one(lanes, tenant, tokens)
    ticket.ran = True
    lanes.leave(ticket)
    return ticket.slot


def test_a_free_slot_is_given_at_once_and_its_place_to_the_next_in_line() -> None:
    lanes = Lanes(1, 8, FakeClock())
    first, second, third = one(lanes), one(lanes), one(lanes)
    assert [t.standing for t in (first, second, third)] == [
        Standing.HOLDING,
        Standing.WAITING,
        Standing.WAITING,
    ]
    lanes.leave(first)
    assert second.standing is Standing.HOLDING
    assert third.standing is Standing.WAITING


def test_interactive_goes_before_batch() -> None:
    lanes = Lanes(1, 8, FakeClock())
    running = one(lanes)
    batch, interactive = one(lanes, batch=True), one(lanes)
    lanes.leave(running)
    assert interactive.standing is Standing.HOLDING
    assert batch.standing is Standing.WAITING


def test_a_full_queue_refuses_with_the_time_that_the_queue_will_take() -> None:
    clock = FakeClock()
    lanes = Lanes(2, 3, clock)
    running = [one(lanes), one(lanes)]
    clock.advance(8.0)
    for ticket in running:
        lanes.came(ticket, 1)
        lanes.leave(ticket)
    for _ in range(2 + 3):
        one(lanes)
    with pytest.raises(Overloaded) as refused:
        one(lanes)
    assert refused.value.retry_after == 12.0  # three wait, 8 s each, two at once


def test_a_queue_of_none_still_serves_what_finds_a_slot() -> None:
    lanes = Lanes(1, 0, FakeClock())
    ticket = one(lanes)
    with pytest.raises(Overloaded):
        one(lanes)
    lanes.leave(ticket)
    assert one(lanes).standing is Standing.HOLDING


def test_all_choices_of_a_request_queue_as_one() -> None:
    lanes = Lanes(1, 1, FakeClock())
    tickets = lanes.ask(Claim(A), [Work((1,))] * 5)
    assert lanes.waiting == 1
    for number, ticket in enumerate(tickets):
        assert [t.standing for t in tickets[number:]].count(Standing.HOLDING) == 1
        lanes.leave(ticket)
    assert (lanes.running, lanes.waiting) == (0, 0)


def test_what_comes_after_its_deadline_is_refused_at_once() -> None:
    clock = FakeClock()
    lanes = Lanes(1, 8, clock)
    with pytest.raises(DeadlineExceeded):
        one(lanes, deadline=clock.monotonic())
    assert (lanes.running, lanes.waiting) == (0, 0)


def test_what_waited_past_its_deadline_never_starts() -> None:
    clock = FakeClock()
    lanes = Lanes(1, 8, clock)
    running = one(lanes)
    late, patient = one(lanes, deadline=clock.monotonic() + 1.0), one(lanes)
    clock.advance(1.0)
    lanes.leave(running)
    assert isinstance(late.refusal, DeadlineExceeded)
    assert patient.standing is Standing.HOLDING


def test_closing_refuses_who_waits_but_lets_the_begun_have_all_their_choices() -> None:
    lanes = Lanes(1, 8, FakeClock())
    begun = lanes.ask(Claim(A), [Work((1,))] * 2)
    waiting = one(lanes)
    lanes.close(lambda: Draining("stopping"))
    assert isinstance(waiting.refusal, Draining)
    with pytest.raises(Draining):
        one(lanes)
    lanes.leave(begun[0])
    assert begun[1].standing is Standing.HOLDING


def test_the_slot_that_remembers_most_of_the_prompt_is_taken() -> None:
    lanes = Lanes(3, 8, FakeClock())
    long, short = (1, 2, 3, 4), (1, 2)
    tickets = [one(lanes, A, long), one(lanes, A, short), one(lanes, B, (*long, 5))]
    for ticket in tickets:
        ticket.ran = True
        lanes.leave(ticket)
    again = one(lanes, A, (*long, 5, 6))
    assert (again.slot, again.reuse_prefix) == (tickets[0].slot, True)


def test_another_conversation_is_not_overwritten_for_a_template_s_first_words() -> None:
    clock = FakeClock()
    lanes = Lanes(2, 8, clock)
    first = used(lanes, A, (1, 2, 3, 4, 5, 6))
    clock.advance(1.0)
    assert used(lanes, A, (1, 2, 9, 9, 9, 9)) != first
    assert one(lanes, A, (1, 2, 3, 4, 5, 6, 7)).slot == first


def test_without_a_memory_to_use_the_slot_idle_for_longest_is_taken() -> None:
    clock = FakeClock()
    lanes = Lanes(2, 8, clock)
    both = [one(lanes, A, (1,)), one(lanes, A, (2,))]
    for ticket in reversed(both):
        clock.advance(1.0)
        lanes.leave(ticket)
    assert one(lanes, B, (3,)).slot == both[1].slot


@pytest.mark.parametrize("tenant", [B, ""], ids=["another", "nobody"])
def test_no_other_tenant_reuses_a_prefix(tenant: str) -> None:
    lanes = Lanes(1, 8, FakeClock())
    used(lanes, A if tenant else "", (1, 2, 3))
    assert not one(lanes, tenant, (1, 2, 3)).reuse_prefix


def test_a_slot_whose_run_never_answered_is_nobody_s() -> None:
    lanes = Lanes(1, 8, FakeClock())
    used(lanes, A, (1, 2, 3))
    lanes.leave(one(lanes, B, (1, 2, 3)))  # left before the engine took it up
    assert not one(lanes, B, (1, 2, 3)).reuse_prefix


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_the_shared_prefix_is_the_longest(one: list[int], two: list[int]) -> None:
    length = shared_prefix(one, two)
    assert one[:length] == two[:length]
    assert length == min(len(one), len(two)) or one[length] != two[length]


class LanesMachine(RuleBasedStateMachine):
    """Any order of asking, running, leaving and time passing."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.lanes = Lanes(3, 4, self.clock)
        self.tickets: list[Ticket] = []
        self.started: set[Ticket] = set()
        self.memory = [""] * 3  # whose tokens the engine's lanes really hold
        self.closed = False

    def notice_starts(self) -> None:
        for ticket in self.tickets:
            if ticket.standing is Standing.HOLDING and ticket not in self.started:
                self.started.add(ticket)
                assert ticket.claim.deadline > self.clock.monotonic()
                if ticket.reuse_prefix:
                    assert self.memory[ticket.slot] == ticket.claim.tenant
                for other in self.tickets:
                    alike = (other.claim.tenant, other.claim.batch) == (
                        ticket.claim.tenant,
                        ticket.claim.batch,
                    )
                    earlier = alike and other.asked < ticket.asked
                    assert not (earlier and other.standing is Standing.WAITING)

    @rule(
        tenant=st.sampled_from([A, B]),
        choices=st.integers(1, 5),
        patience=st.sampled_from([0.0, 1.0, 1e9]),
        batch=st.booleans(),
        tokens=st.lists(st.integers(0, 1), max_size=4),
    )
    def ask(
        self, tenant: str, choices: int, patience: float, batch: bool, tokens: list[int]
    ) -> None:
        self.clock.advance(0.001)
        claim = Claim(tenant, self.clock.monotonic() + patience, batch)
        with contextlib.suppress(Overloaded, DeadlineExceeded, Draining):
            self.tickets += self.lanes.ask(claim, [Work(tokens)] * choices)
            assert not self.closed
            assert patience > 0
        self.notice_starts()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), answered=st.booleans())
    def leave(self, data: st.DataObject, answered: bool) -> None:
        ticket = data.draw(st.sampled_from(self.tickets))
        if ticket.standing is Standing.HOLDING and answered:
            self.lanes.came(ticket, 1)
            self.memory[ticket.slot] = ticket.claim.tenant
        self.tickets.remove(ticket)
        self.lanes.leave(ticket)
        self.lanes.leave(ticket)
        self.notice_starts()

    @rule(seconds=st.sampled_from([0.1, 2.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: len(self.tickets) > 6)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.lanes.close(lambda: Draining("stopping"))

    @invariant()
    def slots_have_one_holder_each_and_no_more_than_there_are(self) -> None:
        held = [t.slot for t in self.tickets if t.standing is Standing.HOLDING]
        assert len(held) == len(set(held)) == self.lanes.running <= 3

    @invariant()
    def the_queue_is_bounded_and_nobody_waits_for_a_free_slot(self) -> None:
        waiting = {t.claim for t in self.tickets if t.standing is Standing.WAITING}
        assert len(waiting) == self.lanes.waiting
        assert max(sum(c.batch for c in waiting), sum(not c.batch for c in waiting)) <= 4
        assert not waiting or self.lanes.running == 3

    def teardown(self) -> None:
        for ticket in self.tickets:
            self.lanes.leave(ticket)
        assert (self.lanes.running, self.lanes.waiting) == (0, 0)
        if not self.closed:
            assert one(self.lanes).standing is Standing.HOLDING


TestLanesMachine = LanesMachine.TestCase


async def test_a_turn_waits_for_its_slot_and_gives_it_back() -> None:
    lanes = Lanes(1, 8, FakeClock())
    first, second = one(lanes), one(lanes)
    async with Turn(lanes, first):
        waiting = asyncio.ensure_future(Turn(lanes, second).__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
    assert (await waiting).standing is Standing.HOLDING


async def test_cancelling_a_turn_that_waits_frees_its_place() -> None:
    lanes = Lanes(1, 8, FakeClock())
    first, second = one(lanes), one(lanes)
    waiting = asyncio.ensure_future(Turn(lanes, second).__aenter__())
    await asyncio.sleep(0)
    lanes.leave(first)  # granted, but cancelled before it could notice
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_turn_raises_its_ticket_s_refusal() -> None:
    lanes = Lanes(1, 8, FakeClock())
    one(lanes)
    second = one(lanes)
    waiting = asyncio.ensure_future(Turn(lanes, second).__aenter__())
    await asyncio.sleep(0)
    lanes.close(lambda: Draining("stopping"))
    with pytest.raises(Draining):
        await waiting


FIRST_S, TOKEN_S = 0.2, 0.02
"""What reading any prompt and writing a token take, in the engine that these tests play."""
TOPICS = itertools.count()


def play(lanes: Lanes, clock: FakeClock, running: dict[Ticket, float]) -> None:
    """What an engine does until the clock's moment: tokens come, and whole answers leave."""
    now = clock.monotonic()
    for ticket in list(running):
        due = int((now - ticket.started - FIRST_S) / TOKEN_S + 1e-6) + 1
        more = min(due, ticket.work.answer) - ticket.done
        if more > 0 or (due > 0 and ticket.seen is None):
            lanes.came(ticket, more)
        if ticket.done >= ticket.work.answer:
            del running[ticket]
            lanes.leave(ticket)


def pass_time(lanes: Lanes, clock: FakeClock, running: dict[Ticket, float], seconds: float) -> None:
    for _ in range(round(seconds / TOKEN_S)):
        clock.advance(TOKEN_S)
        play(lanes, clock, running)


def answering(lanes: Lanes, answer: int, tenant: str = A, **claim: object) -> Ticket:
    """A request for so many tokens, about something new."""
    about = next(TOPICS)
    work = Work(range(10 * about, 10 * about + 10), answer)
    [ticket] = lanes.ask(Claim(tenant, **claim), [work])  # type: ignore[arg-type]
    return ticket


def busy_lanes(slots: int = 2, answer: int = 101) -> tuple[Lanes, FakeClock, dict[Ticket, float]]:
    """Lanes that have learnt, and whose slots have all just been taken; an answer takes 2.2 s."""
    clock = FakeClock()
    lanes = Lanes(slots, 100, clock)
    for _ in range(3):
        running = dict.fromkeys([answering(lanes, answer) for _ in range(slots)], 0.0)
        while running:
            clock.advance(TOKEN_S)
            play(lanes, clock, running)
    return lanes, clock, dict.fromkeys([answering(lanes, answer) for _ in range(slots)], 0.0)


def test_who_would_come_too_late_is_refused_at_once_and_told_when_it_would_fit() -> None:
    lanes, clock, running = busy_lanes()
    with pytest.raises(Overloaded) as refusal:
        answering(lanes, 101, deadline=clock.monotonic() + 3.4)
    assert refusal.value.retry_after == pytest.approx(1.0, abs=0.05)
    pass_time(lanes, clock, running, 1.06)
    assert answering(lanes, 101, deadline=clock.monotonic() + 3.4).standing is Standing.WAITING
    assert (lanes.refusals["late"], lanes.refusals["full"]) == (1, 0)


def test_few_tokens_fit_a_short_time_though_others_take_long() -> None:
    lanes, clock, running = busy_lanes()
    pass_time(lanes, clock, running, 2.0)
    short = answering(lanes, 4, deadline=clock.monotonic() + 0.6)
    with pytest.raises(Overloaded):
        answering(lanes, 101, deadline=clock.monotonic() + 2.3)
    pass_time(lanes, clock, running, 0.2)
    assert short.standing is Standing.HOLDING


def test_what_is_too_long_by_itself_is_told_so() -> None:
    lanes, clock, _ = busy_lanes()
    with pytest.raises(DeadlineExceeded, match="needs about"):
        answering(lanes, 101, deadline=clock.monotonic() + 2.0)
    assert lanes.refusals["long"] == 1


def test_a_free_slot_is_given_however_short_the_time_is() -> None:
    lanes, clock, running = busy_lanes()
    lanes.leave(next(iter(running)))
    now = clock.monotonic()
    claimed = answering(lanes, 101, deadline=now + 0.1, aim=now + 0.05, first=now + 0.01)
    assert claimed.standing is Standing.HOLDING
    assert (claimed.reason, lanes.dispatches["turn"]) == ("idle", 0)


def test_an_objective_for_the_first_token_refuses_who_would_wait_longer_for_it() -> None:
    lanes, clock, _ = busy_lanes()
    with pytest.raises(Overloaded):
        answering(lanes, 101, first=clock.monotonic() + 2.3)
    later = answering(lanes, 101, first=clock.monotonic() + 2.5)
    assert later.standing is Standing.WAITING


def test_an_objective_that_no_answer_keeps_refuses_nobody_within_its_deadline() -> None:
    lanes, clock, _ = busy_lanes()
    now = clock.monotonic()
    waits = answering(lanes, 101, aim=now + 1.0, deadline=now + 5.0)
    assert waits.standing is Standing.WAITING


@pytest.mark.parametrize("way_s", [0.0, 3.0], ids=["a short way is possible", "it never was"])
def test_the_way_here_counts_as_waiting_where_it_can_be_shorter(way_s: float) -> None:
    lanes, clock, _ = busy_lanes()
    begun = clock.monotonic() - way_s
    # Behind what runs an answer comes after some 4.4 s; alone, it would after 2.2 s.
    first = answering(lanes, 101, opened=begun, aim=begun + 4.6)
    assert first.standing is Standing.WAITING
    begun = clock.monotonic() - 3.0
    if way_s:
        assert answering(lanes, 101, opened=begun, aim=begun + 4.6).standing is Standing.WAITING
    else:
        with pytest.raises(Overloaded):
            answering(lanes, 101, opened=begun, aim=begun + 4.6)


def test_who_would_wait_for_longer_than_one_may_is_refused_at_once() -> None:
    lanes, _, _ = busy_lanes()
    lanes._patience_s = 2.0
    with pytest.raises(Overloaded, match="queue_timeout_s"):
        answering(lanes, 101)


@pytest.mark.parametrize("times", [4, 10])
@pytest.mark.parametrize("lengths", [(101,), (20, 60, 101, 400)], ids=["alike", "mixed"])
def test_overloaded_lanes_answer_in_time_whatever_they_take(
    times: int, lengths: tuple[int, ...]
) -> None:
    slots, within_s, seconds = 4, 12.0, 120.0
    lanes, clock, running = busy_lanes(slots)
    draw = random.Random(7)
    mean_s = FIRST_S + TOKEN_S * (sum(lengths) / len(lengths) - 1)
    took, waiting, arrived = [], list[Ticket](), 0.0
    busy_s = 0.0
    began = clock.monotonic()
    while (now := clock.monotonic()) < began + seconds:
        play(lanes, clock, running)
        while began + arrived <= now:
            arrived += draw.expovariate(times * slots / mean_s)
            with contextlib.suppress(Overloaded):
                claim = {"aim": now + within_s, "deadline": now + 4 * within_s}
                waiting.append(answering(lanes, draw.choice(lengths), draw.choice("ab"), **claim))
        for ticket in [t for t in waiting if t.standing is not Standing.WAITING]:
            waiting.remove(ticket)
            if ticket.standing is Standing.HOLDING:
                running[ticket] = now
                end = now + FIRST_S + TOKEN_S * (ticket.work.answer - 1)
                took.append(end - ticket.asked)
                busy_s += end - now
        clock.advance(TOKEN_S)
    took.sort()
    # What is aimed at is nine tenths of what is promised.
    assert took[int(0.95 * len(took))] <= within_s / 0.9
    assert busy_s >= 0.95 * seconds * slots
    assert lanes.refusals["overtaken"] + lanes.refusals["expired"] == 0


@given(
    st.lists(st.tuples(st.integers(1, 400), st.floats(0.05, 20.0)), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.1, 3.0]),
)
def test_nobody_is_refused_who_would_be_in_time_with_a_quarter_to_spare(
    asked: list[tuple[int, float]], later_s: float
) -> None:
    """Against an oracle that knows these speeds and every length, and whose order is the same."""
    lanes, clock, running = busy_lanes()
    pass_time(lanes, clock, running, later_s)
    now = clock.monotonic()
    free_at = [max(0.0, t.started + FIRST_S + 100 * TOKEN_S - now) for t in running]
    free_at += [0.0] * (2 - len(free_at))
    for answer, within_s in asked:
        start = min(free_at)
        hold_s = FIRST_S + TOKEN_S * (answer - 1)
        try:
            answering(lanes, answer, deadline=now + within_s)
        except (Overloaded, DeadlineExceeded):
            assert start + hold_s > within_s / 1.25 - TOKEN_S
        else:
            assert start == 0 or start + hold_s < within_s * 1.25 + TOKEN_S
            free_at[free_at.index(start)] = start + hold_s
