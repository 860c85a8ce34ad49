"""What a place has refused: its like is refused without it, no longer and nobody else."""

from typing import cast

import pytest

from tiffin.dialects.openai.errors import error_from_reply, error_response, hop_error_response
from tiffin.errors import Overloaded, RunFailed
from tiffin.gateway.placement.full import MAX_KEPT, Ask, Full, Kind
from tiffin.gateway.placement.measures import Measures
from tiffin.gateway.placement.place import ClosableBackend, Place
from tiffin.gateway.station import Station
from tiffin.telemetry.metrics import Meter
from tiffin.types.snapshot import Target

MINE = Kind("a", batch=False)
NEXT = Ask(MINE, 0.5, 100)


def refused(for_s: float = 0.02) -> Full:
    full = Full()
    full.said(NEXT, Overloaded("later", retry_after=0.04, full_s=for_s), 1.0)
    return full


def test_its_like_is_refused_for_as_long_as_was_said_and_with_what_was_said() -> None:
    full = refused()
    error = full.refusal(NEXT, 1.01)
    assert error is not None
    assert error.message == "later"
    assert error.retry_after == 0.04
    assert full
    assert full.refusal(NEXT, 1.02) is None
    assert not full


@pytest.mark.parametrize(
    "ask",
    [
        Ask(Kind("b", batch=False), 0.5, 100),
        Ask(Kind("a", batch=True), 0.5, 100),
        Ask(MINE, 0.6, 100),
        Ask(MINE, 0.5, 50),
    ],
    ids=["another tenant", "less urgent", "has more time", "is smaller"],
)
def test_who_isnt_like_it_is_let_in(ask: Ask) -> None:
    assert refused().refusal(ask, 1.01) is None


def test_a_refusal_that_says_nothing_of_others_holds_for_nobody() -> None:
    assert not refused(for_s=0.0)


def test_what_is_remembered_is_bounded_and_what_is_over_is_forgotten_for_it() -> None:
    full = Full()
    for number in range(2 * MAX_KEPT):
        full.said(Ask(Kind(str(number), batch=False), 1.0, 1), Overloaded("", full_s=1.0), 0.0)
    kept = [full.refusal(Ask(Kind(str(n), batch=False), 1.0, 1), 0.5) for n in range(2 * MAX_KEPT)]
    assert sum(error is not None for error in kept) == MAX_KEPT
    full.said(NEXT, Overloaded("", full_s=1.0), 2.0)
    assert full.refusal(NEXT, 2.5) is not None


def test_a_replicas_word_comes_over_the_hop_exactly_and_no_further() -> None:
    error = Overloaded("later", retry_after=0.0425, full_s=0.0175)
    status, _, body = hop_error_response(error)
    told = error_from_reply(status, body, trusted=True, retry_after=1.0)
    assert isinstance(told, Overloaded)
    assert told.retry_after == pytest.approx(0.0425)
    assert told.full_s == pytest.approx(0.0175)
    assert b"full" not in error_response(told)[2]
    assert hop_error_response(RunFailed("no")) == error_response(RunFailed("no"))


def test_a_station_refuses_only_where_each_of_its_places_that_are_ready_would() -> None:
    nowhere = cast(ClosableBackend, None)
    places = [Place(backend=nowhere, ready=True) for _ in range(2)]
    target = Target(model="m", revision="r", kind="replica", max_concurrency=1, queue=1)
    station = Station(target, places, Measures(Meter("gateway", "e")))
    assert not station.full()
    for place in places:
        assert station.refusal(NEXT, 1.0) is None
        place.full.said(NEXT, Overloaded("later", full_s=0.02), 1.0)
    assert station.full()
    assert station.refusal(NEXT, 1.01) is not None
    places[0].full = Full()
    assert station.refusal(NEXT, 1.01) is None
    places[0].ready = False
    assert station.refusal(NEXT, 1.01) is not None
