"""Invoices as FOCUS has them (FinOps' cost and usage specification, as CSV), read line by line.

https://focus.finops.org: `BilledCost`, `BillingCurrency`, `ChargePeriodStart`, `ChargePeriodEnd`,
`ServiceCategory` and `ServiceName` are all that is read; dates are UTC where they say nothing else.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from tiffin.ledger.segments import FOREVER_NS, moment
from tiffin.ports.ledger import InvoiceLine
from tiffin.types.money import PICO

COLUMNS: Final = ("BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargePeriodEnd")
_MORE: Final = ("ServiceCategory", "ServiceName")
MAX_LINES: Final = 1_000_000
_KINDS: Final = {
    "AI and Machine Learning": "models",
    "Compute": "machines",
    "Databases": "storage",
    "Storage": "storage",
    "Networking": "network",
    "Management and Governance": "logs",
}
_OTHER: Final = "platform"
_MOST: Final = Decimal(10) ** 12


def read_invoice(text: str) -> list[InvoiceLine]:
    """An invoice's lines, those that cost nothing left out; raises `ValueError` with the line.

    A service of a category that isn't one of a bill's kinds is `platform`.
    """
    # Strict, as a quote that nothing closes would swallow every line after it.
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        _check_columns(reader.fieldnames or ())
        return list(_lines(reader))
    except csv.Error as cause:
        raise ValueError(f"no CSV after line {reader.line_num}: {cause}") from cause


def _check_columns(names: Sequence[str]) -> None:
    if missing := [name for name in COLUMNS if name not in names]:
        raise ValueError(f"no FOCUS invoice: the columns {', '.join(missing)} are missing")
    if twice := [name for name in (*COLUMNS, *_MORE) if names.count(name) > 1]:
        raise ValueError(f"no FOCUS invoice: the column {twice[0]} is there twice")


def _lines(reader: "csv.DictReader[str]") -> Iterator[InvoiceLine]:
    for number, row in enumerate(reader, start=2):
        if number > MAX_LINES + 1:
            raise ValueError(f"over {MAX_LINES} lines; give it in parts")
        try:
            line = _line(row)
        except ValueError as cause:
            raise ValueError(f"line {number}: {cause}") from cause
        if line.amount_pico:
            yield line


def _line(row: dict[str, str]) -> InvoiceLine:
    if None in row:
        raise ValueError("more values than columns; one with a comma needs quotes around it")
    currency = (row["BillingCurrency"] or "").strip()
    if not (len(currency) == 3 and currency.isascii() and currency.isupper()):
        raise ValueError(f"BillingCurrency is '{currency[:20]}', expected one such as INR")
    since = _moment(row["ChargePeriodStart"], "ChargePeriodStart")
    until = _moment(row["ChargePeriodEnd"], "ChargePeriodEnd")
    if until < since:
        raise ValueError("ChargePeriodEnd is before ChargePeriodStart")
    return InvoiceLine(
        since_ns=since,
        until_ns=until,
        name=(row.get("ServiceName") or "").strip()[:128],
        kind=_KINDS.get((row.get("ServiceCategory") or "").strip(), _OTHER),
        amount_pico=_amount(row["BilledCost"] or ""),
        currency=currency,
    )


def _amount(text: str) -> int:
    """An amount in pico-units; clouds bill more digits than that, which are rounded half even."""
    try:
        told = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"BilledCost is '{text[:20]}', expected a decimal number") from None
    if not told.is_finite() or abs(told) > _MOST:
        raise ValueError(f"BilledCost is '{text[:20]}', which nobody pays")
    return int((told * PICO).to_integral_value())


def _moment(text: str | None, name: str) -> int:
    try:
        told = datetime.fromisoformat((text or "").strip())
    except ValueError:
        raise ValueError(f"{name} is '{(text or '')[:30]}', expected a date") from None
    at_ns = moment(told if told.tzinfo else told.replace(tzinfo=UTC))
    if not 0 <= at_ns < FOREVER_NS:
        raise ValueError(f"{name} is '{(text or '')[:30]}', expected a date from 1970 to 2115")
    return at_ns
