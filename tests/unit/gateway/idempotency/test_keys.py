"""The table of keys: made of facts in whatever order, one claim a key, never over its bounds."""

import random
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.errors import (
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    Indeterminate,
    Overloaded,
    RateLimited,
    TiffinError,
)
from tiffin.gateway.idempotency.keys import AROUND_BYTES, Bounds, Entry, Keys, Wanted
from tiffin.ports.key_log import Fact, Place, Standing

HOUR_NS = 3_600_000_000_000
BOUNDS = Bounds(
    keep_ns=24 * HOUR_NS,
    keys=8,
    bytes=20_000,
    tenant_keys=5,
    tenant_bytes=12_000,
    answer_bytes=1_000,
)
ENDINGS = (Standing.DONE, Standing.LOST, Standing.RELEASED)


def wanted(key: int = 0, body: bytes = b"body", tenant: str = "acme") -> Wanted:
    return Wanted(b"%s-%d" % (tenant.encode(), key), body, tenant, f"req_{key}")


class Gateway:
    """A table, and the log of its own facts."""

    def __init__(self, epoch: str = "ep_1", bounds: Bounds = BOUNDS) -> None:
        self.keys = Keys(bounds)
        self.epoch = epoch
        self.log: list[tuple[Fact, Place]] = []

    def claim(self, asks: Wanted, now_ns: int = 0) -> Fact | Entry:
        found = self.keys.claim(asks, self.epoch, now_ns)
        if isinstance(found, Fact):
            self.tell(found, now_ns=now_ns)
        return found

    def tell(self, fact: Fact, content: int = 0, now_ns: int = 0) -> None:
        place = Place(self.epoch, len(self.log), 100 + content, content)
        self.log.append((fact, place))
        self.keys.learn(fact, place, now_ns)

    def stands(self, fact: Fact, standing: Standing, content: int = 0) -> None:
        self.tell(msgspec.structs.replace(fact, standing=standing), content)


def fresh(found: Fact | Entry) -> Fact:
    assert isinstance(found, Fact)
    return found


def facts_of(keys: Keys) -> dict[bytes, Fact]:
    return {entry.fact.scope: entry.fact for entry in keys}


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing.RUNNING, IdempotencyKeyInUse),
        (Standing.PAYING, IdempotencyKeyInUse),
        (Standing.LOST, Indeterminate),
    ],
)
def test_a_key_that_is_used_is_refused_by_how_it_stands(
    standing: Standing, expected: type[TiffinError]
) -> None:
    gateway = Gateway()
    gateway.stands(fresh(gateway.claim(wanted())), standing)
    with pytest.raises(expected, match="req_0"):
        gateway.claim(wanted())


@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.RELEASED])
def test_another_request_with_the_same_key_is_told_so_however_the_first_stands(
    standing: Standing,
) -> None:
    gateway = Gateway()
    gateway.stands(fresh(gateway.claim(wanted())), standing)
    with pytest.raises(IdempotencyKeyReused, match="another request"):
        gateway.claim(wanted(body=b"other"))


def test_what_is_done_is_found_until_it_is_old_and_then_the_key_is_free() -> None:
    gateway = Gateway()
    gateway.stands(fresh(gateway.claim(wanted())), Standing.DONE, 300)
    found = gateway.claim(wanted(), BOUNDS.keep_ns - 1)
    assert isinstance(found, Entry)
    assert found.place.content_bytes == 300
    assert fresh(gateway.claim(wanted(body=b"other"), BOUNDS.keep_ns)).seq == 2


def test_a_released_key_is_free_for_any_request() -> None:
    gateway = Gateway()
    gateway.stands(fresh(gateway.claim(wanted())), Standing.RELEASED)
    assert len(gateway.keys) == gateway.keys.all.bytes == 0
    assert fresh(gateway.claim(wanted(body=b"other"))).standing is Standing.RUNNING


def test_what_ran_when_a_gateway_ended_is_free_unless_somebody_may_have_charged_for_it() -> None:
    gateway = Gateway()
    ran, paid, done = (fresh(gateway.claim(wanted(key))) for key in range(3))
    gateway.stands(paid, Standing.PAYING)
    gateway.stands(done, Standing.DONE)
    gateway.keys.bury("ep_other")
    assert len(gateway.keys) == 3
    gateway.keys.bury("ep_1")
    assert fresh(gateway.claim(wanted(0))).seq > ran.seq
    with pytest.raises(Indeterminate):
        gateway.claim(wanted(1))
    assert isinstance(gateway.claim(wanted(2)), Entry)


def test_a_tenant_at_its_bound_is_refused_and_no_other_is() -> None:
    gateway = Gateway()
    for key in range(BOUNDS.tenant_keys):
        gateway.claim(wanted(key))
    with pytest.raises(RateLimited, match="5 idempotency keys") as told:
        gateway.claim(wanted(99))
    assert told.value.retry_after == pytest.approx(24 * 3600)
    fresh(gateway.claim(wanted(99, tenant="b")))


def test_room_for_the_answer_is_taken_when_the_key_is() -> None:
    gateway = Gateway(bounds=Bounds(24 * HOUR_NS, 100, 10**6, 100, 2 * (AROUND_BYTES + 1000), 1000))
    first = fresh(gateway.claim(wanted(1)))
    gateway.claim(wanted(2))
    with pytest.raises(RateLimited, match="bytes"):
        gateway.claim(wanted(3))
    gateway.stands(first, Standing.DONE, 0)
    with pytest.raises(RateLimited):
        gateway.claim(wanted(3))
    assert gateway.keys.share("acme").bytes == 2 * AROUND_BYTES + 1000


def test_all_tenants_together_are_bounded_too() -> None:
    gateway = Gateway()
    for key in range(BOUNDS.keys):
        gateway.claim(wanted(key, tenant=f"t{key % 3}"))
    with pytest.raises(Overloaded, match="no room"):
        gateway.claim(wanted(99, tenant="new"))


def test_keys_that_come_and_go_leave_nothing_behind() -> None:
    gateway = Gateway()
    for key in range(20_000):
        gateway.stands(fresh(gateway.claim(wanted(key))), Standing.RELEASED)
    assert len(gateway.keys._expiring) < 3_000
    assert not gateway.keys._shares
    assert not gateway.keys._in_segment


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # which gateway
        st.integers(0, 3),  # which key
        st.booleans(),  # paid
        st.sampled_from((None, *ENDINGS)),
    ),
    max_size=30,
)


def play(steps: list[tuple[int, int, bool, Standing | None]]) -> list[Gateway]:
    """Two gateways that take turns and read each other; a step claims, and may end the claim."""
    gateways = [Gateway("ep_1"), Gateway("ep_2")]
    read: dict[int, int] = defaultdict(int)
    running: dict[bytes, tuple[int, Fact]] = {}
    for who, key, paid, ending in steps:
        gateway, other = gateways[who], gateways[1 - who]
        for fact, place in other.log[read[who] :]:
            gateway.keys.learn(fact, place, 0)
        read[who] = len(other.log)
        asks = wanted(key)
        if asks.scope in running:
            holder, claim = running.pop(asks.scope)
            gateways[holder].stands(claim, ending or Standing.RELEASED)
            continue
        try:
            found = gateway.claim(asks)
        except TiffinError:
            continue
        if isinstance(found, Fact):
            if paid:
                gateway.stands(found, Standing.PAYING)
            if ending is None:
                running[asks.scope] = who, found
            else:
                gateway.stands(found, ending)
    return gateways


@given(steps=STEPS, order=st.randoms(use_true_random=False))
def test_a_table_is_the_same_however_the_logs_that_it_is_read_from_are_mixed(
    steps: list[tuple[int, int, bool, Standing | None]], order: random.Random
) -> None:
    logs = [list(gateway.log) for gateway in play(steps)]
    straight = Keys(BOUNDS)
    for fact, place in (*logs[0], *logs[1]):
        straight.learn(fact, place, 0)
    mixed = Keys(BOUNDS)
    while any(logs):
        log = order.choice([log for log in logs if log])
        mixed.learn(*log.pop(0), 0)
    assert facts_of(mixed) == facts_of(straight)
    assert mixed.all == straight.all


@given(steps=STEPS)
def test_what_counts_is_exactly_what_is_there(
    steps: list[tuple[int, int, bool, Standing | None]],
) -> None:
    for gateway in play(steps):
        keys = gateway.keys
        assert keys.all.keys == len(keys)
        assert keys.all.bytes == sum(entry.weight for entry in keys)
        assert keys.share("acme") == keys.all
        there = [entry for name in keys._in_segment for entry in keys.in_segment(name)]
        assert len(there) == len(keys)
        keys.expire(BOUNDS.keep_ns)
        assert (len(keys), keys.all.bytes) == (0, 0)
