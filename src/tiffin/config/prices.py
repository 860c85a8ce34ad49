"""`[prices]`: what everything costs and what tenants are charged: dated, in exact decimals.

An entry is in force from `since` until `until`, or until the next of its name begins.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tiffin.config.fields import Count, Positive, Text

_AMOUNT: Final = "[0-9]{1,12}([.][0-9]{1,18})?"
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = "T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})"
_MOMENT: Final = f"{_DAY}({_CLOCK})?"
_NUMBER: Final = 'a decimal number in quotes, as "0.15"'
_WHEN: Final = 'a day in quotes, as "2026-04-01", or a moment, as "2026-04-01T00:00:00+05:30"'

Amount = Annotated[str, Meta(pattern=f"^{_AMOUNT}$", description=_NUMBER)]
AmountOrNone = Annotated[str, Meta(pattern=f"^({_AMOUNT})?$", description=_NUMBER)]
Moment = Annotated[str, Meta(pattern=f"^{_MOMENT}$", description=_WHEN)]
MomentOrNone = Annotated[str, Meta(pattern=f"^({_MOMENT})?$", description=_WHEN)]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", description='three capitals, as "INR"')]
CurrencyOrNone = Annotated[
    str, Meta(pattern="^([A-Z]{3})?$", description='three capitals, as "INR"')
]
Offset = Annotated[
    str, Meta(pattern="^[+-](0[0-9]|1[0-4]):[03]0$", description='hours from UTC, as "+05:30"')
]
FixedKind = Literal["storage", "network", "transfer", "logs", "platform", "people", "support"]
BillKind = Literal[
    "machines",
    "models",
    "storage",
    "network",
    "transfer",
    "logs",
    "platform",
    "people",
    "support",
]


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.rates]]`: what one unit of the currency `of` is worth in that of `[prices]`.

    The last one that has begun is in force.
    """

    of: Currency
    rate: Amount
    since: Moment


class MachinePrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.machines]]`: what a machine costs, `count` of a kind.

    What is `reserved` or `owned` costs at all hours, `on-demand` and `spot` while the server runs.
    An owned one costs its `purchase` with a `spare` share for replacements, less the `residual`,
    evenly over its `years`, and `watts` at the price of a `kwh`, with a `cooling` share on top.
    `hourly` is everything else. One with `accelerators` is shared by their time, else by that of
    its processors.
    """

    name: Text
    terms: Literal["on-demand", "reserved", "spot", "owned"] = "on-demand"
    hourly: Amount = "0"
    accelerators: Count = 0
    count: Positive = 1
    purchase: Amount = "0"
    residual: Amount = "0"
    years: Count = 0
    spare: Amount = "0"
    watts: Amount = "0"
    kwh: Amount = "0"
    cooling: Amount = "0"
    currency: CurrencyOrNone = ""
    since: Moment
    until: MomentOrNone = ""


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.models]]`: what use of a model costs, such as an upstream's tokens.

    `input`, `cached`, `output` and `reasoning` are for a million tokens; `cached` is as `input` and
    `reasoning` as `output` where nothing is said. A model of ours without one costs its device's
    time.
    """

    model: Text
    input: Amount = "0"
    cached: AmountOrNone = ""
    output: Amount = "0"
    reasoning: AmountOrNone = ""
    request: Amount = "0"
    row: Amount = "0"
    page: Amount = "0"
    audio_minute: Amount = "0"
    currency: CurrencyOrNone = ""
    since: Moment
    until: MomentOrNone = ""


class FixedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.fixed]]`: what costs the same whatever is asked: `quantity` times `amount`.

    Storage by the gigabyte and month, traffic between regions, logs and traces that are kept, the
    hours of people and of support.
    """

    name: Text
    kind: FixedKind
    amount: Amount
    quantity: Amount = "1"
    per: Literal["hour", "day", "month", "year"] = "month"
    currency: CurrencyOrNone = ""
    since: Moment
    until: MomentOrNone = ""


class Credit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.credits]]`: a grant that pays for what it `covers` (empty: everything).

    What isn't used until `until` expires; of several the one that expires first is used first.
    """

    name: Text
    amount: Amount
    covers: list[BillKind] = []
    currency: CurrencyOrNone = ""
    since: Moment
    until: MomentOrNone = ""


class PricePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[prices.plans]]`: what a tenant is charged.

    That is `monthly`, so much for a million tokens and a request, and the requests' own cost times
    `markup`.
    """

    tenant: Text
    monthly: Amount = "0"
    input: Amount = "0"
    output: Amount = "0"
    request: Amount = "0"
    markup: Amount = "0"
    currency: CurrencyOrNone = ""
    since: Moment
    until: MomentOrNone = ""


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[prices]`: everything is told in `currency`; days and months begin at `utc_offset`."""

    currency: Currency = "INR"
    utc_offset: Offset = "+00:00"
    rates: list[Rate] = []
    machines: list[MachinePrice] = []
    models: list[ModelPrice] = []
    fixed: list[FixedPrice] = []
    credits: list[Credit] = []
    plans: list[PricePlan] = []


Dated = Rate | MachinePrice | ModelPrice | FixedPrice | Credit | PricePlan


def offset_of(prices: Prices) -> timezone:
    """When days begin."""
    sign = -1 if prices.utc_offset.startswith("-") else 1
    hours, minutes = map(int, prices.utc_offset[1:].split(":"))
    return timezone(sign * timedelta(hours=hours, minutes=minutes))


def seconds_east(prices: Prices) -> int:
    """How long before those of UTC days begin."""
    return int(offset_of(prices).utcoffset(None).total_seconds())


def moment_ns(text: str, zone: timezone) -> int:
    """A day or moment as UTC nanoseconds; raises `ValueError` for one that isn't."""
    if not re.fullmatch(_MOMENT, text):
        raise ValueError(f"'{text}' is no day and no moment")
    told = datetime.fromisoformat(text)
    whole = told if told.tzinfo else told.replace(tzinfo=zone)
    return int((whole - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)) * 1_000_000_000


def until_of(entry: Dated) -> str:
    """When an entry ends, empty where nothing is said."""
    return "" if isinstance(entry, Rate) else entry.until


def name_of(entry: Dated) -> str:
    """What an entry is a price of: those of one name follow each other."""
    match entry:
        case Rate():
            return entry.of
        case ModelPrice():
            return entry.model
        case PricePlan():
            return entry.tenant
    return entry.name
