"""Places that refuse what is too much, through the whole walk in virtual time: hints are heeded."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.gateway.test_places import House, Replica
from tests.virtual_time import LoopClock, in_virtual_time
from tiffin.errors import Overloaded, TiffinError
from tiffin.gateway.placement.full import LONGEST_S
from tiffin.testing.exchange import FakeExchange

BATCH = [(b"x-tiffin-priority", b"batch")]


class Crowded(Replica):
    """Refuses until a moment of the loop's clock, and claims that it will for `claims` of that."""

    def __init__(self) -> None:
        super().__init__()
        self.until = 0.0
        self.claims = 0.25

    def crowd(self, seconds: float) -> None:
        self.until = max(self.until, asyncio.get_running_loop().time() + seconds)

    def refuses(self) -> TiffinError | None:
        left_s = self.until - asyncio.get_running_loop().time()
        if left_s <= 0:
            return None
        return Overloaded("later", retry_after=left_s, full_s=self.claims * left_s)


class Street(House):
    """A house over crowded replicas."""

    kind = Crowded

    def __init__(self, *sockets: str) -> None:
        super().__init__(*sockets, clock=LoopClock())

    def at(self, socket: str = "/a") -> Crowded:
        replica = self.replicas[socket]
        assert isinstance(replica, Crowded)
        return replica


def error_of(answer: FakeExchange) -> tuple[int, bytes]:
    return answer.status, bytes(answer.sent)


def test_a_place_that_refused_isnt_asked_for_the_like_until_its_hint_ends() -> None:
    async def main() -> None:
        async with Street("/a") as house:
            await house.ready()
            house.at().crowd(0.4)
            first = await house.ask()
            again = [await house.ask() for _ in range(3)]
            assert {error_of(one) for one in again} == {error_of(first)}
            assert first.status == 503
            assert house.at().asked == 1
            await asyncio.sleep(0.11)
            await house.ask()
            assert house.at().asked == 2
            await asyncio.sleep(0.3)
            assert (await house.ask()).status == 200

    in_virtual_time(main)


def test_each_refusal_is_an_attempt_and_an_entry() -> None:
    async def main() -> None:
        async with Street("/a") as house:
            await house.ready()
            house.at().crowd(0.4)
            for _ in range(3):
                await house.ask()
            closed = house.ledger.closed
            assert [len(one.attempts) for one in closed] == [1, 1, 1]
            assert {one.attempts[0].error for one in closed} == {"overloaded"}
            assert {one.outcome.value for one in closed} == {"refused"}

    in_virtual_time(main)


@pytest.mark.parametrize(
    "asking",
    [{"more": BATCH}, {"text": "h"}, {"timeout_ms": 600_000}],
    ids=["less urgent", "smaller", "has more time"],
)
def test_who_isnt_like_it_is_asked_for(asking: dict[str, Any]) -> None:
    async def main() -> None:
        async with Street("/a") as house:
            await house.ready()
            house.at().crowd(0.4)
            await house.ask("hello " * 50, timeout_ms=1000)
            await house.ask(**{"text": "hello " * 50, "timeout_ms": 1000, **asking})
            assert house.at().asked == 2

    in_virtual_time(main)


def test_where_another_place_may_take_it_nobody_is_refused() -> None:
    async def main() -> None:
        async with Street("/a", "/b") as house:
            await house.ready()
            house.at("/a").crowd(0.4)
            got = [await house.ask() for _ in range(4)]
            assert got[-1].status == 200
            assert house.at("/a").asked + house.at("/b").asked >= 4

    in_virtual_time(main)


def test_a_place_that_isnt_ready_has_no_say() -> None:
    async def main() -> None:
        async with Street("/a", "/b") as house:
            await house.ready()
            house.at("/b").ready = False
            await asyncio.sleep(1.5)
            house.at("/a").crowd(0.4)
            for _ in range(3):
                await house.ask()
            assert (house.at("/a").asked, house.at("/b").asked) == (1, 0)

    in_virtual_time(main)


@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.sampled_from([0.0, 0.0, 0.05, 2.0])), max_size=30),
    st.floats(0, 0.99),
)
@settings(max_examples=50, deadline=None)
def test_what_an_idle_place_would_take_is_never_refused(
    events: list[tuple[float, float]], claims: float
) -> None:
    async def main() -> None:
        async with Street("/a") as house:
            await house.ready()
            house.at().claims = claims
            for pause_s, crowd_s in events:
                await asyncio.sleep(pause_s)
                if crowd_s:
                    house.at().crowd(crowd_s)
                would = house.at().refuses() is None
                got = (await house.ask()).status
                assert got == (200 if would else 503)

    in_virtual_time(main)


def test_a_hint_that_claims_too_much_is_over_a_second_after_the_crowd() -> None:
    async def main() -> None:
        async with Street("/a") as house:
            await house.ready()
            house.at().claims = 1000.0
            house.at().crowd(0.4)
            assert (await house.ask()).status == 503
            await asyncio.sleep(0.4 + LONGEST_S)
            assert (await house.ask()).status == 200

    in_virtual_time(main)
