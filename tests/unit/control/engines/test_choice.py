"""The engine that is chosen is a right one, and clearly better than the reference, or that."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.engines.choice import MARGIN, REFERENCE, Aim, agrees, choose, pace
from tiffin.types.calibration import Measured

RATES = st.fixed_dictionaries({many: st.floats(1, 1000) for many in (1, 4, 8, 16)})
AIMS = st.builds(
    Aim, ttft_ms=st.sampled_from([0.0, 50.0, 500.0]), slots=st.sampled_from([1, 4, 16])
)


def engines(name: str) -> st.SearchStrategy[Measured]:
    return st.builds(
        Measured,
        engine=st.just(name),
        failed=st.sampled_from(["", "", "", "it crashed"]),
        ttft_ms=st.floats(1, 1000),
        tokens_per_s=RATES,
        drift=st.floats(0, 0.3),
        same=st.floats(0.7, 1),
    )


FIELDS = st.tuples(engines(REFERENCE), engines("openvino"), engines("other"))


def figures(engine: str, rate: float, **given: Any) -> Measured:
    given = {"ttft_ms": 100.0} | given
    return Measured(engine=engine, tokens_per_s=dict.fromkeys((1, 4, 8, 16), rate), **given)


OWN = figures(REFERENCE, 100.0)


@given(field=FIELDS, aim=AIMS)
def test_what_fails_or_answers_differently_is_never_chosen(
    field: tuple[Measured, ...], aim: Aim
) -> None:
    choice = choose(field, aim)
    [chosen] = [one for one in field if one.engine == choice.engine]
    assert choice.why
    assert choice.engine == REFERENCE or (not chosen.failed and agrees(chosen))


@given(field=FIELDS, aim=AIMS, order=st.permutations(range(3)))
def test_the_order_of_figures_does_not_matter(
    field: tuple[Measured, ...], aim: Aim, order: list[int]
) -> None:
    assert choose(field, aim).engine == choose([field[at] for at in order], aim).engine


@given(field=FIELDS, aim=AIMS, factor=st.floats(1, 4))
def test_what_is_chosen_stays_so_when_it_gets_faster(
    field: tuple[Measured, ...], aim: Aim, factor: float
) -> None:
    chosen = choose(field, aim).engine
    faster = [
        msgspec.structs.replace(
            one,
            ttft_ms=one.ttft_ms / factor,
            tokens_per_s={many: rate * factor for many, rate in one.tokens_per_s.items()},
        )
        if one.engine == chosen
        else one
        for one in field
    ]
    assert choose(faster, aim).engine == chosen


@given(field=FIELDS, slots=st.sampled_from([1, 4, 16]))
def test_without_an_objective_for_the_first_token_a_rival_is_faster_by_the_margin(
    field: tuple[Measured, ...], slots: int
) -> None:
    choice = choose(field, Aim(slots=slots))
    by_name = {one.engine: one for one in field}
    if choice.engine != REFERENCE and not by_name[REFERENCE].failed:
        own = pace(by_name[REFERENCE], slots)
        assert pace(by_name[choice.engine], slots) >= MARGIN * own * (1 - 1e-9)


@pytest.mark.parametrize(
    ("rival", "aim", "chosen"),
    [
        pytest.param(figures("openvino", 200.0), Aim(), "openvino", id="twice as fast"),
        pytest.param(figures("openvino", 110.0), Aim(), REFERENCE, id="within the noise"),
        pytest.param(figures("openvino", 200.0, drift=0.3), Aim(), REFERENCE, id="fast and wrong"),
        pytest.param(figures("openvino", 200.0, same=0.7), Aim(), REFERENCE, id="other choices"),
        pytest.param(Measured(engine="openvino", failed="x"), Aim(), REFERENCE, id="can't read it"),
        pytest.param(
            figures("openvino", 90.0, ttft_ms=40.0), Aim(ttft_ms=50.0), "openvino", id="in time"
        ),
        pytest.param(
            figures("openvino", 300.0, ttft_ms=400.0), Aim(ttft_ms=150.0), REFERENCE, id="too late"
        ),
    ],
)
def test_the_choice(rival: Measured, aim: Aim, chosen: str) -> None:
    assert choose([OWN, rival], aim).engine == chosen


def test_where_the_reference_cannot_run_it_the_other_does_and_it_says_why() -> None:
    broken = Measured(engine=REFERENCE, failed="no memory")
    choice = choose([broken, figures("openvino", 1.0)], Aim())
    assert choice.engine == "openvino"
    assert "no memory" in choice.why


def test_a_lone_answer_must_not_get_much_slower() -> None:
    many = Measured(engine="openvino", tokens_per_s={1: 50.0, 4: 400.0, 8: 400.0}, ttft_ms=1.0)
    assert choose([OWN, many], Aim(slots=8)).engine == REFERENCE
