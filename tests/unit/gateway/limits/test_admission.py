"""Admission refuses what is over a limit, spends nothing on refusals, and gets everything back."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateway.limits.desk import SHOP, Desk, Request, Running, at_once
from tiffin.adapters.stores.spent import SpentFile
from tiffin.dialects.dialect import Extent
from tiffin.errors import (
    ConcurrencyExceeded,
    Draining,
    InvalidRequest,
    Overloaded,
    Pace,
    QuotaExceeded,
    RateLimited,
    RunFailed,
    TiffinError,
    Unavailable,
)
from tiffin.gateway.admit import Admission, moments
from tiffin.telemetry.metrics import MeterState
from tiffin.testing.clock import FakeClock
from tiffin.types.limits import Limits, Rule
from tiffin.types.money import PICO
from tiffin.types.price import Price
from tiffin.types.snapshot import Principal, Snapshot
from tiffin.types.usage import Usage

TOKENS = Rule(of="tokens", amount=1000, per="minute")
MONEY = Rule(of="money", amount=2, per="month")
ONE_RUPEE = Price(currency="INR", request=PICO)
USED = Usage(prompt_tokens=50, completion_tokens=50)


def snapshot(**tenants: Limits) -> Snapshot:
    return Snapshot(
        number=1, config_hash="", published_ns=0, keys={}, tenant_limits=tenants, plans={}
    )


def test_a_new_snapshot_keeps_what_was_spent_and_takes_the_new_amount() -> None:
    admission = Admission(FakeClock(), 10)
    with at_once(admission.admit(SHOP, snapshot(shop=Limits(requests_per_minute=1)))):
        pass
    more = msgspec.structs.replace(
        snapshot(shop=Limits(requests_per_minute=2, burst=2, concurrency=5)), number=2
    )
    with at_once(admission.admit(SHOP, more)):
        pass
    with pytest.raises(RateLimited):
        at_once(admission.admit(SHOP, more))


def test_limits_that_nobody_has_any_more_are_forgotten_when_they_have_recovered() -> None:
    clock = FakeClock()
    admission = Admission(clock, 10)
    with at_once(
        admission.admit(SHOP, snapshot(shop=Limits(requests_per_minute=1, concurrency=1)))
    ):
        later = msgspec.structs.replace(snapshot(), number=2)
        with at_once(admission.admit(SHOP, later)):
            pass
        admission.sweep()
        assert len(admission.limits) == 2
    admission.sweep()
    assert len(admission.limits) == 1
    clock.advance(60)
    admission.sweep()
    assert len(admission.limits) == 0


def test_a_refusal_spends_nothing_and_says_when_and_how_the_limit_stands() -> None:
    clock = FakeClock()
    admission = Admission(clock, 10)
    own = Principal(tenant="t", key="k", limits=Limits(requests_per_minute=600, burst=1))
    shot = snapshot(t=Limits(requests_per_minute=60, burst=1))
    with at_once(admission.admit(own, shot)):
        pass
    with pytest.raises(RateLimited, match="over its limit of 60 requests a minute") as refused:
        at_once(admission.admit(own, shot))
    assert refused.value.retry_after == pytest.approx(1.0)
    assert refused.value.pace == Pace("requests", 60, 0, 1000)
    clock.advance(1.0)
    with at_once(admission.admit(own, shot)):
        pass


def test_concurrency_is_counted_by_tenant_over_all_its_keys() -> None:
    admission = Admission(FakeClock(), 10)
    shot = snapshot(t=Limits(concurrency=2))
    one, two = Principal(tenant="t", key="a"), Principal(tenant="t", key="b")
    with at_once(admission.admit(one, shot)), at_once(admission.admit(two, shot)):
        with pytest.raises(ConcurrencyExceeded):
            at_once(admission.admit(one, shot))
        with at_once(admission.admit(Principal(tenant="other", key="a"), shot)):
            pass
    assert not admission.running


def test_a_full_or_stopping_server_refuses_before_any_limit() -> None:
    admission = Admission(FakeClock(), 1)
    with at_once(admission.admit(SHOP, snapshot())), pytest.raises(Overloaded):
        at_once(admission.admit(SHOP, snapshot()))
    admission.draining = True
    with pytest.raises(Draining):
        at_once(admission.admit(SHOP, snapshot()))


def test_tokens_are_reserved_by_estimate_and_settled_by_use() -> None:
    desk = Desk(TOKENS)
    running = desk.come()
    reserved = 1000 - desk.left()
    assert reserved == 100 + 100 + 8  # the answer's most, the body's bytes in threes, the template
    running.end(USED)
    assert desk.left() == 900


def test_more_use_than_was_reserved_is_a_debt() -> None:
    desk = Desk(TOKENS)
    desk.come().end(Usage(prompt_tokens=1500, completion_tokens=500))
    with pytest.raises(RateLimited) as refused:
        desk.come()
    assert refused.value.retry_after == 120  # for as much as there may be: it expects that now
    desk.clock.advance(90)
    assert desk.left() == 500


def test_an_upstream_that_claims_anything_locks_nobody_out() -> None:
    desk = Desk(TOKENS, MONEY, price=Price(currency="INR", output_token=10**6))
    desk.come().end(Usage(prompt_tokens=10**15, completion_tokens=10**5))
    with pytest.raises(RateLimited) as refused:
        desk.come()
    assert 0 < (refused.value.retry_after or 0) < 12 * 60
    desk.clock.advance(12 * 60)
    desk.come().end(USED)


@pytest.mark.parametrize(
    "ends",
    [
        lambda running: running.end(),
        lambda running: running.end(error=RunFailed("broken")),
        lambda running: running.end(Usage()),
    ],
    ids=["never ran", "failed", "used nothing"],
)
def test_what_used_nothing_gives_everything_back(ends: Callable[[Running], None]) -> None:
    rules = (TOKENS, MONEY, Rule(of="output_tokens", amount=500, per="day"))
    desk = Desk(*rules, price=Price(currency="INR", output_token=10**9))
    running = desk.come()
    assert desk.left("output tokens") == 400
    ends(running)
    left = (desk.left("output tokens"), desk.left("money"), desk.left("tokens a minute"))
    assert left == (500, 2 * PICO, 1000)


def test_a_budget_for_two_lets_exactly_two_of_eight_in() -> None:
    desk = Desk(MONEY, price=ONE_RUPEE)
    inside, refused = [], []
    for _ in range(8):
        try:
            inside.append(desk.come())
        except QuotaExceeded as refusal:
            refused.append(refusal)
    assert (len(inside), len(refused)) == (2, 6)
    assert refused[0].retry_after is None
    assert "0 INR left of its 2 INR" in refused[0].message
    for running in inside:
        running.end(USED)
    assert desk.left() == 0


def test_who_begins_knows_what_was_spent_and_what_was_running(tmp_path: Path) -> None:
    lives = [Desk(MONEY, price=ONE_RUPEE)]
    for name in ("first", "second"):
        spent = SpentFile(tmp_path, name, lives[-1].clock.now_ns())
        lives.append(Desk(MONEY, price=ONE_RUPEE, spent=spent))
        lives[-1].admission.limits.meet(lives[-1].snapshot, moments(lives[-1].clock))
        assert lives[-1].left() == (2 * PICO if name == "first" else PICO)
        lives[-1].come()
        spent.close()
    with pytest.raises(QuotaExceeded):
        lives[-1].come()


def test_money_that_cant_be_counted_is_refused_and_a_shadow_of_it_isnt() -> None:
    desk = Desk(TOKENS, MONEY)
    with pytest.raises(Unavailable, match=r"money a month.*can't be counted.*'m' costs") as refused:
        desk.come()
    assert "[[prices.models]]" in str(refused.value)
    assert desk.left("tokens") == TOKENS.amount
    shadow = msgspec.structs.replace(MONEY, shadow=True)
    Desk(shadow).come().end(USED)
    other = msgspec.structs.replace(MONEY, models=("priced",))
    Desk(other).come().end(USED)
    free = Desk(MONEY, price=Price(currency="INR"))
    free.come().end(USED)


def test_what_is_refused_for_concurrency_spends_neither_tokens_nor_money() -> None:
    rules = (TOKENS, MONEY, Rule(of="concurrency", amount=1, models=("m",)))
    desk = Desk(*rules, price=ONE_RUPEE)
    running = desk.come()
    tokens = desk.left("tokens")
    with pytest.raises(ConcurrencyExceeded):
        desk.come()
    assert (desk.left("tokens"), desk.left("money")) == (tokens, PICO)
    running.end(USED)
    desk.come().end(USED)


def test_an_answer_of_unknown_length_is_expected_as_the_last_ones_were() -> None:
    desk = Desk(Rule(of="output_tokens", amount=10_000, per="minute"))
    unknown = Request(Extent(text=True, answer_tokens=None))
    running = desk.come(unknown)
    assert desk.left() == 10_000 - 512
    running.end(Usage(prompt_tokens=50, completion_tokens=20))
    for _ in range(60):
        desk.come(unknown).end(Usage(prompt_tokens=50, completion_tokens=20))
    before = desk.left()
    desk.come(unknown)
    assert before - desk.left() in range(20, 23)


def test_what_is_only_expected_makes_nothing_impossible_but_what_is_asked_for_does() -> None:
    desk = Desk(Rule(of="tokens", amount=1000, per="minute", burst=300))
    desk.come(Request(Extent(text=True, answer_tokens=None), size=9000)).end(USED)
    desk.clock.advance(60)
    with pytest.raises(InvalidRequest, match="may never have more than 300 at once"):
        desk.come(Request(Extent(text=True, answer_tokens=301)))


def test_limits_of_some_models_count_those_and_their_revisions() -> None:
    desk = Desk(Rule(of="requests", amount=2, per="hour", models=("m",)))
    desk.come(Request(model="other")).end(USED)
    desk.come(Request(model="m")).end(USED)
    desk.come(Request(model="m@next")).end(USED)
    with pytest.raises(RateLimited, match="requests an hour with m"):
        desk.come()


def test_every_level_has_its_own_and_a_request_needs_all_of_them() -> None:
    def one(each: str = "") -> Rule:
        return msgspec.convert({"of": "requests", "amount": 1, "per": "day", "each": each}, Rule)

    desk = Desk(one("key"), one("project"), one("end_user"), project=Limits(rules=(one(),)))
    by_level = {
        "key": (SHOP, "", SHOP, "x"),
        "project": (_key("a", "app"), "", _key("b", "app"), ""),
        "end user": (_key("c"), "ann", _key("d"), "ann"),
    }
    for level, (first, user, second, other) in by_level.items():
        desk.come(Request(end_user=user), first).end(USED)
        with pytest.raises(RateLimited, match=f"^{level} "):
            desk.come(Request(end_user=other), second)
    desk.come(Request(end_user="bob"), _key("e")).end(USED)


def test_an_end_user_s_name_is_nobody_else_s_limit() -> None:
    one = Rule(of="requests", amount=1, per="day", each="end_user")
    with_m = msgspec.structs.replace(one, amount=9, models=("m",))
    desk = Desk(one, with_m)
    desk.come(Request(end_user="m ann", model="n")).end(USED)
    desk.come(Request(end_user="ann")).end(USED)
    assert desk.left("requests a day with m of end user 'ann'") == 8
    assert desk.left("requests a day of end user 'm ann'") == 0


def _key(name: str, project: str = "") -> Principal:
    return Principal(tenant="shop", key=name, project=project)


def test_a_shadow_refuses_nothing_and_tells() -> None:
    desk = Desk(
        Rule(of="requests", amount=1, per="hour", shadow=True),
        Rule(of="tokens", amount=250, per="hour", shadow=True, each="end_user"),
    )
    asked = Request(end_user="an\r\nn")
    desk.come(asked).end(Usage(prompt_tokens=100, completion_tokens=100))
    running = desk.come(asked)
    running.end(USED)
    told = running.headers[b"x-tiffin-limit-shadow"]
    assert b"tokens an hour of end user 'an\\r\\nn' of tenant 'shop'" in told
    assert b"\n" not in told
    told_all = msgspec.json.decode(desk.meter.state(), type=MeterState)
    (family,) = [one for one in told_all.families if one.name == "tiffin_limit_refusals_total"]
    counted = {series.labels: series.numbers for series in family.series}
    assert counted == {
        ("requests", "tenant", "shadow"): (1,),
        ("tokens", "end_user", "shadow"): (1,),
    }


def test_headers_tell_of_the_tightest_limits() -> None:
    desk = Desk(TOKENS, tenant=Limits(requests_per_minute=60, burst=5, rules=(TOKENS,)))
    running = desk.come()
    assert running.headers == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"4",
        b"x-ratelimit-reset-requests": b"1s",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"792",
        b"x-ratelimit-reset-tokens": b"12.48s",
    }


def test_end_users_are_forgotten_when_they_owe_nothing_and_refused_when_all_do() -> None:
    desk = Desk(Rule(of="tokens", amount=600, per="minute", each="end_user"))
    desk.admission.limits._most = 3
    names = (f"u{number}" for number in count())
    for name in (next(names), next(names), next(names)):
        desk.come(Request(end_user=name)).end(USED)
    with pytest.raises(Overloaded, match="limits of 3 end users"):
        desk.come(Request(end_user=next(names)))
    desk.clock.advance(10)
    for _ in range(20):
        desk.come(Request(end_user=next(names))).end(Usage())
    assert len(desk.admission.limits) == 3


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # who
        st.integers(0, 200),  # bytes
        st.none() | st.integers(1, 200),  # the answer's most
        st.integers(0, 4),  # how one that runs ends, before this one comes
        st.integers(0, 30),  # seconds
    ),
    max_size=50,
)


@given(steps=STEPS)
def test_whatever_happens_everything_is_settled_or_given_back(
    steps: list[tuple[int, int, int | None, int, int]],
) -> None:
    rules = (
        TOKENS,
        MONEY,
        Rule(of="concurrency", amount=3),
        Rule(of="concurrency", amount=1, each="end_user"),
        Rule(of="output_tokens", amount=900, per="day"),
        Rule(of="input_tokens", amount=90, per="second", shadow=True),
    )
    price = Price(currency="INR", input_token=PICO // 1000, output_token=PICO // 500)
    desk = Desk(*rules, price=price)
    running: list[Running] = []
    for who, size, answer, ends, gap_s in steps:
        desk.clock.advance(gap_s)
        if running:
            finish(running.pop(ends % len(running)), ends)
        try:
            extent = Extent(text=True, answer_tokens=answer)
            running.append(desk.come(Request(extent, size, end_user="abc"[who - 1] if who else "")))
        except TiffinError:
            pass
        assert desk.admission.in_flight == len(running)
        assert all(0 < taken <= 3 for taken in desk.admission.running.values())
    for left in running:
        finish(left, 0)
    assert desk.admission.in_flight == 0
    assert not desk.admission.running
    desk.clock.advance(40 * 86_400)
    now = moments(desk.clock)
    assert all(limit.meter.rests(now[limit.clock]) for limit in desk.admission.limits)


def finish(running: Running, how: int) -> None:
    """Well, without use, with more than was thought, failed, or not at all."""
    match how:
        case 0:
            running.end(Usage(prompt_tokens=20, completion_tokens=30))
        case 1:
            running.end(Usage())
        case 2:
            running.end(Usage(prompt_tokens=400, completion_tokens=300))
        case 3:
            running.end(Usage(prompt_tokens=5), error=RunFailed("broken"))
        case _:
            running.end()
