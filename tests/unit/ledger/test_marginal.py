"""What one request costs: every unit at its price, none twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.ledger.marginal import MOST_PICO, marginal
from tiffin.types.price import Price
from tiffin.types.usage import Usage

PRICE = Price(
    currency="INR", request=1, input_token=10, cached_token=3, output_token=100, row=7, page=11,
    device_second=1000, audio_second=500,
)  # fmt: skip


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        pytest.param(Usage(), 1, id="nothing but the request"),
        pytest.param(Usage(prompt_tokens=5), 51, id="input"),
        pytest.param(Usage(prompt_tokens=5, cached_tokens=2), 37, id="cached input isn't input"),
        pytest.param(Usage(cached_tokens=9), 1, id="cached tokens of no prompt"),
        pytest.param(Usage(completion_tokens=2), 201, id="output"),
        pytest.param(Usage(completion_tokens=2, reasoning_tokens=1), 201, id="reasoning is output"),
        pytest.param(Usage(rows=2, pages=3), 48, id="rows and pages"),
        pytest.param(Usage(device_ns=1_500_000_000), 1501, id="device time"),
        pytest.param(Usage(device_ns=400_000, audio_ms=1), 2, id="parts are rounded together"),
        pytest.param(Usage(prompt_tokens=-5, device_ns=-(10**12)), 1, id="no use below none"),
    ],
)
def test_every_unit_has_its_price(usage: Usage, cost: int) -> None:
    assert marginal(PRICE, usage) == cost


def test_no_claim_costs_more_than_numbers_can_say() -> None:
    price = Price(currency="INR", output_token=MOST_PICO)
    assert marginal(price, Usage(completion_tokens=2**53)) == MOST_PICO


def test_reasoning_may_have_a_price_of_its_own() -> None:
    price = Price(currency="USD", output_token=10, reasoning_token=4)
    assert marginal(price, Usage(completion_tokens=5, reasoning_tokens=3)) == 32


COUNT = st.integers(0, 10**9)
USAGES = st.builds(
    Usage, prompt_tokens=COUNT, completion_tokens=COUNT, cached_tokens=COUNT, device_ns=COUNT
)


@given(USAGES, COUNT)
def test_more_use_never_costs_less(usage: Usage, more: int) -> None:
    longer = Usage(
        prompt_tokens=usage.prompt_tokens + more,
        completion_tokens=usage.completion_tokens + more,
        cached_tokens=usage.cached_tokens,
        device_ns=usage.device_ns + more,
    )
    assert marginal(PRICE, longer) >= marginal(PRICE, usage) >= PRICE.request
