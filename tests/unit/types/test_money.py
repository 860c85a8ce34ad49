from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.types.money import PICO, pico, shown, split

amounts = st.integers(-(10**24), 10**24)


@given(amounts, st.lists(st.integers(0, 10**18), min_size=1, max_size=30))
def test_shares_add_up_and_are_off_by_less_than_a_unit(amount: int, weights: list[int]) -> None:
    shares = split(amount, weights)
    assert sum(shares) == amount
    total = sum(weights)
    if total:
        assert all(
            abs(share * total - amount * weight) < total
            for share, weight in zip(shares, weights, strict=True)
        )


def test_nobody_and_less_than_nothing_share_nothing() -> None:
    for weights in ([], [1, -1]):
        with pytest.raises(ValueError, match="weights"):
            split(10, weights)
    assert split(10, [0, 0, 0]) == [4, 3, 3]


@given(amounts)
def test_what_is_shown_is_exact(amount: int) -> None:
    number, currency = shown(amount, "INR").split()
    assert currency == "INR"
    assert pico(number) == amount


@pytest.mark.parametrize("amount", ["0.0000000000001", "nan", "inf", "a", Decimal("1e-13")])
def test_what_is_no_whole_number_of_them_is_refused(amount: str | Decimal) -> None:
    with pytest.raises(ValueError, match=str(amount)):
        pico(amount)
    assert pico("1.5") == 3 * PICO // 2
