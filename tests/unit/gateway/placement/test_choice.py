"""A request goes to one place for one reason; warmth never unbalances the load."""

import random
from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from tiffin.gateway.placement.choice import Choice, Chooser, Reason, Standing, Wish
from tiffin.gateway.placement.health import Verdict
from tiffin.gateway.placement.prefixes import BLOCK_BYTES, chain_of

NOBODY = Wish()


def places(count: int, slots: int = 4) -> list[Standing]:
    return [Standing(slots) for _ in range(count)]


def wish(text: str, tenant: str = "a") -> Wish:
    blocks = b"".join(bytes([ord(letter)]) * BLOCK_BYTES for letter in text)
    return Wish(tenant, chain_of(blocks))


def ended(choice: Choice[Standing]) -> None:
    if choice.line is not None:
        choice.place.memory.give(choice.line)


def test_the_least_busy_is_chosen_then_the_one_idle_longest() -> None:
    one, two, three = group = places(3)
    one.outstanding, two.outstanding, three.outstanding = 2, 1, 1
    chooser: Chooser[Standing] = Chooser()
    assert [chooser.choose(group, NOBODY, 0.0).place for _ in range(3)] == [two, three, two]


def test_a_text_goes_where_it_is_warm_and_only_for_its_tenant() -> None:
    group, chooser = places(2), Chooser[Standing]()
    first = chooser.choose(group, wish("xyz"), 0.0)
    ended(first)
    again = chooser.choose(group, wish("xyzw"), 0.0)
    ended(again)
    assert (again.place, again.reason) == (first.place, Reason.PREFIX)
    assert chooser.choose(group, wish("xyz", "b"), 0.0).reason is Reason.SPREAD


def test_new_beginnings_are_spread_evenly() -> None:
    group, chooser = places(2), Chooser[Standing]()
    homes = Counter(id(chooser.choose(group, wish(c * 3), 0.0).place) for c in "abcdefgh")
    assert set(homes.values()) == {4}


def test_a_warm_place_that_is_busy_is_passed_over() -> None:
    group, chooser = places(2), Chooser[Standing]()
    home = chooser.choose(group, wish("xyz"), 0.0)
    ended(home)
    home.place.outstanding = 3
    assert chooser.choose(group, wish("xyz"), 0.0).place is not home.place


def test_one_request_tries_a_place_that_was_set_aside() -> None:
    group, chooser = places(2), Chooser[Standing]()
    group[0].health.settle(Verdict.GONE, 0.0, 0.0)
    assert chooser.choose(group, NOBODY, 0.1).place is group[1]
    assert chooser.choose(group, Wish(may_try=False), 9.0).place is group[1]
    assert chooser.choose(group, NOBODY, 9.0)[:2] == (group[0], Reason.PROBE)
    assert chooser.choose(group, NOBODY, 9.0).place is group[1]


def test_where_all_are_set_aside_the_least_bad_is_used() -> None:
    group, chooser = places(2), Chooser[Standing]()
    for at in (0.0, 1.0):
        group[0].health.settle(Verdict.GONE, at, at)
    group[1].health.settle(Verdict.GONE, 1.0, 1.0)
    assert chooser.choose(group, NOBODY, 1.1)[:2] == (group[1], Reason.PANIC)


@given(st.integers(2, 4), st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**32))
def test_load_is_never_skewed_by_warmth(count: int, texts: int, running: int, seed: int) -> None:
    """However unequally texts are asked for, no place gets half as much again as another."""
    rnd = random.Random(seed)
    group, chooser = places(count), Chooser[Standing]()
    now: deque[Choice[Standing]] = deque()
    placed: Counter[int] = Counter()
    for _ in range(400):
        letter = "abcdefgh"[min(int(rnd.expovariate(1)), texts - 1)]
        choice = chooser.choose(group, wish(letter * 6), 0.0)
        placed[id(choice.place)] += 1
        choice.place.outstanding += 1
        now.append(choice)
        if len(now) >= running:
            over = now.popleft()
            over.place.outstanding -= 1
            ended(over)
    assert max(placed.values()) <= 1.5 * min(placed[id(place)] for place in group)


def test_eight_beginnings_stay_warm_at_two_places_with_room_for_them() -> None:
    rnd = random.Random(7)
    group, chooser = places(2, slots=4), Chooser[Standing]()
    warm = 0
    for _ in range(400):
        choice = chooser.choose(group, wish(rnd.choice("abcdefgh") * 20), 0.0)
        warm += choice.reason is Reason.PREFIX
        ended(choice)
    assert warm >= 0.9 * 400


@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_what_was_warm_before_makes_room_evenly(count: int, slots: int, seed: int) -> None:
    """As many new beginnings as there is room for are all warm after one turn each."""
    rnd = random.Random(seed)
    group, chooser = places(count, slots), Chooser[Standing]()
    room = count * slots
    for _ in range(4 * room):  # of an earlier time, placed unevenly
        choice = chooser.choose(group, wish(rnd.choice("abcdefgh") * 6), 0.0)
        ended(choice)
    new = "ijklmnopqrstuvwxyz"[:room]
    for letter in new:
        ended(chooser.choose(group, wish(letter * 6), 0.0))
    assert all(any(one.memory.warm("a", wish(c * 6).chain) for one in group) for c in new)
