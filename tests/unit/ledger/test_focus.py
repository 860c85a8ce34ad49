"""FOCUS invoices are read exactly, and what is none is refused by its line."""

import pytest

from tiffin.ledger.focus import read_invoice
from tiffin.types.money import PICO

HEAD = "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ServiceCategory,ServiceName\n"
LINE = "12.5,USD,2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,Compute,EC2\n"


def test_lines_are_read_and_those_of_nothing_left_out() -> None:
    text = HEAD + LINE + LINE.replace("12.5", "0") + LINE.replace("Compute,EC2", "Odd,Thing")
    first, second = read_invoice("\ufeff" + text)
    assert (first.kind, first.name, first.amount_pico) == ("machines", "EC2", 12 * PICO + PICO // 2)
    assert first.until_ns - first.since_ns == 30 * 86_400 * 10**9
    assert (second.kind, second.currency) == ("platform", "USD")


def test_credits_are_below_nothing_and_long_amounts_are_rounded() -> None:
    (line,) = read_invoice(HEAD + LINE.replace("12.5", "-0.1234567890125"))
    assert line.amount_pico == -123_456_789_012


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a,b\n1,2\n", "the columns BilledCost", id="no invoice"),
        pytest.param("", "the columns BilledCost", id="nothing"),
        pytest.param(HEAD + LINE + LINE.replace("12.5", "free"), "line 3: BilledCost", id="words"),
        pytest.param(HEAD + LINE.replace("12.5", "NaN"), "line 2: BilledCost", id="no number"),
        pytest.param(HEAD + LINE.replace("12.5", "1e30"), "nobody pays", id="too much"),
        pytest.param(HEAD + LINE.replace("USD", "usd"), "BillingCurrency", id="currency"),
        pytest.param(HEAD + LINE.replace("05-01T", "May"), "expected a date", id="date"),
        pytest.param(HEAD + LINE.replace("2026-05", "2026-03"), "is before", id="backwards"),
        pytest.param(HEAD + "12.5\n", "line 2: ", id="short line"),
        pytest.param(HEAD + LINE.strip() + ",more\n", "more values than columns", id="long line"),
        pytest.param("BilledCost," + HEAD + "1," + LINE, "BilledCost is there twice", id="twice"),
        pytest.param(HEAD + LINE.replace("2026-05", "9999-05"), "1970 to 2115", id="far away"),
        pytest.param(HEAD + LINE.replace("2026-04", "0001-04"), "1970 to 2115", id="long ago"),
        pytest.param(
            HEAD + LINE.replace("EC2", "x" * 140_000), "no CSV after line 1", id="long value"
        ),
        pytest.param(HEAD + LINE.replace("EC2", "E\rC"), "line 3: ", id="odd line end"),
        pytest.param(HEAD + LINE.replace("EC2", '"EC2') + LINE, "no CSV after", id="open quote"),
    ],
)
def test_what_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        read_invoice(text)
    assert said in str(refused.value)
