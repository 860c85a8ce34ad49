"""Who is next: shares of tenants by weight, interactive before batch, batch work's own share."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.serving.lanes.claim import Claim, Ticket, Work
from tiffin.serving.lanes.waiting import BATCH_SHARE, FORGET_AT, Waiting

WORK = Work(range(10), 10)


def put(
    waiting: Waiting, tenant: str, *, batch: bool = False, weight: float = 1.0, cost: float = 1.0
) -> Ticket:
    claim = Claim(tenant, batch=batch, weight=weight)
    ticket = Ticket(claim, WORK, 0.0, cost=cost)
    waiting.put(claim, [ticket])
    return ticket


def test_a_flood_doesn_t_stand_before_who_asks_little() -> None:
    waiting = Waiting()
    for _ in range(20):
        put(waiting, "flood")
    waiting.take()
    few = put(waiting, "few")
    ticket, reason = waiting.take()
    assert (ticket, reason) == (few, "fair")
    assert waiting.take()[1] == "turn"


@pytest.mark.parametrize("weight", [1.0, 3.0, 0.5])
def test_tenants_share_by_their_weights(weight: float) -> None:
    waiting = Waiting()
    for _ in range(200):
        put(waiting, "one")
        put(waiting, "other", weight=weight)
    taken = Counter(waiting.take()[0].claim.tenant for _ in range(120))
    assert taken["other"] / taken["one"] == pytest.approx(weight, rel=0.06)


def test_a_weight_that_changes_holds_though_some_of_its_tenant_always_wait() -> None:
    waiting = Waiting()
    for _ in range(10):
        put(waiting, "one")
        put(waiting, "other")
    for _ in range(300):
        put(waiting, "one")
        put(waiting, "other", weight=3.0)
    taken = Counter(waiting.take()[0].claim.tenant for _ in range(200))
    assert taken["other"] / taken["one"] == pytest.approx(3.0, rel=0.1)


def test_costly_requests_count_for_more() -> None:
    waiting = Waiting()
    for _ in range(100):
        put(waiting, "short", cost=1.0)
        put(waiting, "long", cost=4.0)
    taken = Counter(waiting.take()[0].claim.tenant for _ in range(50))
    assert taken["short"] == pytest.approx(4 * taken["long"], abs=4)


def test_who_held_a_slot_for_longer_than_thought_waits_for_longer() -> None:
    waiting = Waiting()
    for _ in range(10):
        put(waiting, "a")
        put(waiting, "b")
    first, _ = waiting.take()
    waiting.settle(first, 4.0)
    assert [waiting.take()[0].claim.tenant for _ in range(4)] == ["b"] * 4


def test_batch_work_has_its_share_and_no_more_while_others_wait() -> None:
    waiting = Waiting()
    for _ in range(400):
        put(waiting, "a")
        put(waiting, "b", batch=True)
    reasons = Counter(waiting.take()[1] for _ in range(200))
    assert reasons["batch_share"] == pytest.approx(200 * BATCH_SHARE, abs=1)


def test_batch_work_goes_at_once_where_nobody_else_waits() -> None:
    waiting = Waiting()
    put(waiting, "b", batch=True)
    assert waiting.take()[1] == "turn"


def test_those_before_a_newcomer_are_those_that_go_before_it() -> None:
    waiting = Waiting()
    flood = [put(waiting, "flood") for _ in range(5)]
    own = put(waiting, "own")
    assert waiting.before(Claim("own"), [1.0]) == [flood[0], own, flood[1]]
    assert len(waiting.before(Claim("own", weight=0.25), [1.0])) == 6


def test_room_is_made_by_who_has_more_than_its_share() -> None:
    waiting = Waiting()
    flood = [put(waiting, "flood") for _ in range(3)]
    assert waiting.last_of_most(Claim("flood")) is None
    assert waiting.last_of_most(Claim("few")) is flood[-1]
    put(waiting, "few")
    put(waiting, "few")
    assert waiting.last_of_most(Claim("few")) is None
    assert waiting.last_of_most(Claim("few", weight=2.0)) is flood[-1]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0.1, 9.0), st.booleans()),
        max_size=60,
    )
)
def test_whatever_is_put_in_comes_out_once_and_a_tenant_s_own_keep_their_order(
    asked: list[tuple[str, bool, float, bool]],
) -> None:
    waiting = Waiting()
    inside: list[Ticket] = []
    out: list[Ticket] = []
    for tenant, batch, cost, leaves in asked:
        inside.append(put(waiting, tenant, batch=batch, cost=cost))
        if leaves:
            waiting.remove(inside.pop(len(inside) // 2))
    assert len(waiting) == len(inside)
    while len(waiting):
        first = waiting.first()
        out.append(waiting.take()[0])
        assert out[-1] is first
    assert sorted(t.number for t in out) == [t.number for t in inside]
    for tenant in "abc":
        for batch in (False, True):
            own = [t.number for t in out if (t.claim.tenant, t.claim.batch) == (tenant, batch)]
            assert own == sorted(own)
    assert waiting.claims(batch=False) == waiting.claims(batch=True) == 0


def test_tenants_that_came_and_went_are_forgotten() -> None:
    waiting = Waiting()
    put(waiting, "stays", cost=1e9)
    for number in range(10 * FORGET_AT):
        put(waiting, f"t{number}", cost=0.1)
        waiting.take()
    assert len(waiting._interactive._uses) <= 2 * FORGET_AT
