"""Prices that can't be right are refused, by where they stand and with the mend."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.prices import Prices, moment_ns, offset_of
from tiffin.errors import ConfigInvalid

MACHINE = '[[prices.machines]]\nname = "node"\nhourly = "42.5"\nsince = "2026-01-01"\n'
RATE = '[[prices.rates]]\nof = "USD"\nrate = "88.75"\nsince = "2026-02-01"\n'
CLOUD = '[models.cloud]\nruntime = "remote"\nurl = "http://127.0.0.1:9/v1"\n'


def price(model: str = "cloud", more: str = "", since: str = "2026-01-01") -> str:
    return f'[[prices.models]]\nmodel = "{model}"\nsince = "{since}"\n{more}\n'


def load(text: str) -> Prices:
    return load_text(text.encode(), {}).config.prices


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        pytest.param(
            MACHINE.replace('"42.5"', "42.5"), "prices.machines[0].hourly", "in quotes", id="float"
        ),
        pytest.param(
            MACHINE.replace("42.5", "-1"), "prices.machines[0].hourly", "decimal", id="negative"
        ),
        pytest.param(
            MACHINE.replace("2026-01-01", "2026-02-30"),
            "prices.machines[0].since",
            "there is no 2026-02-30",
            id="no such day",
        ),
        pytest.param(
            MACHINE.replace("2026-01-01", "0001-01-01"),
            "prices.machines[0].since",
            "found 0001-01-01, expected 1970-01-01 or later",
            id="before any ledger",
        ),
        pytest.param(
            MACHINE + 'terms = "owned"\npurchase = "1"\nyears = 9000',
            "prices.machines[0].years",
            "found 9000, expected at most 100",
            id="lasts too long",
        ),
        pytest.param(
            MACHINE.replace('since = "2026-01-01"', ""),
            "prices.machines[0].since",
            "missing",
            id="undated",
        ),
        pytest.param(
            MACHINE + 'until = "2025-12-31"', "prices.machines[0].until", "later than", id="ends"
        ),
        pytest.param(
            MACHINE + MACHINE,
            "prices.machines[1].since",
            "node has another price then, of prices.machines[0]",
            id="twice",
        ),
        pytest.param(
            MACHINE + 'until = "2026-06-01"\n' + MACHINE.replace("-01-01", "-03-01"),
            "prices.machines[1].since",
            "until no later than 2026-03-01",
            id="overlapping",
        ),
        pytest.param(
            MACHINE + 'watts = "100"', "prices.machines[0].watts", "owned", id="not owned"
        ),
        pytest.param(
            MACHINE + 'terms = "owned"', "prices.machines[0]", "purchase", id="owned for nothing"
        ),
        pytest.param(
            MACHINE + 'currency = "USD"\n' + RATE,
            "prices.machines[0].currency",
            "no rate of USD on 2026-01-01",
            id="no rate yet",
        ),
        pytest.param(
            RATE.replace("USD", "INR"), "prices.rates[0].of", "needs no rate", id="own rate"
        ),
        pytest.param(
            CLOUD + price("clod"),
            "prices.models[0].model",
            "did you mean cloud?",
            id="unknown model",
        ),
        pytest.param(
            CLOUD + price(more='request = "4611687"'),
            "prices.models[0].request",
            "found 4611687, expected at most 4611686: no request may cost more",
            id="dearer than an account holds",
        ),
        pytest.param(
            RATE
            + CLOUD
            + price(more='output = "51962688657"\ncurrency = "USD"', since="2026-02-01"),
            "prices.models[0].output",
            "expected at most 51962",
            id="dear in another currency",
        ),
        pytest.param(
            MACHINE.replace("42.5", "8301034834") + "count = 2",
            "prices.machines[0].hourly",
            "found 8301034834, expected at most 8301034833: no second may cost more",
            id="dear machines",
        ),
    ],
)
def test_what_cannot_be_is_refused(text: str, where: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load(text)
    assert refused.value.where == where
    assert said in str(refused.value)


def test_prices_of_one_name_follow_each_other() -> None:
    later = MACHINE.replace("-01-01", "-04-01")
    assert len(load(MACHINE + later).machines) == 2
    assert len(load(MACHINE + 'until = "2026-02-01"\n' + later).machines) == 2


def test_a_price_that_ended_may_be_of_a_model_that_went() -> None:
    assert load(price("gone", 'until = "2026-03-01"')).models[0].model == "gone"


def test_days_begin_at_the_offset() -> None:
    zone = offset_of(Prices(utc_offset="+05:30"))
    utc = offset_of(Prices())
    assert moment_ns("2026-04-01", utc) - moment_ns("2026-04-01", zone) == 19_800_000_000_000
    said = moment_ns("2026-04-01T00:00+05:30", utc)
    assert said == moment_ns("2026-04-01", zone)
