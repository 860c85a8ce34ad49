"""What of a key's requests is odd, as values: declared thresholds, and what was seen."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Signal = Literal["repetition", "growth", "enumeration", "extraction"]
Times = Annotated[int, Meta(ge=0, le=1_000_000)]
Within = Annotated[float, Meta(gt=0, le=86_400)]
Whole = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Bits = Annotated[float, Meta(ge=0, le=20)]


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[anomalies.SIGNAL]`: `count` such requests of a key `within_s`; a count of 0 is never odd.

    Fewer within that time are never told of, twice as many always.
    """

    count: Times
    within_s: Within


class Anomalies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[anomalies]`: what is done where a key asks as programs do that run away, or that copy a
    model: nothing (`off`), an `alert`, or that and a `throttle` for `throttle_s`.

    A `repetition` is the same request again but for case, spaces, times and ids. `growth` is one
    that goes on where an earlier one ended. An `enumeration` is the same but for numbers, of which
    one moves in equal steps. An `extraction` is another request each time, with an answer of at
    least `long_answer_tokens` that is as long as it could be, or to a text that looks random: of
    `noise_bits` a character and more. Only chats, completions and responses are looked at, and no
    request of an `exempt` tenant.
    """

    action: Literal["off", "alert", "throttle"] = "off"
    repetition: Threshold = Threshold(count=60, within_s=60.0)
    growth: Threshold = Threshold(count=100, within_s=600.0)
    enumeration: Threshold = Threshold(count=300, within_s=3600.0)
    extraction: Threshold = Threshold(count=500, within_s=3600.0)
    long_answer_tokens: Whole = 512
    noise_bits: Bits = 5.2
    throttle_s: Within = 300.0
    throttle_per_minute: Whole = 6
    exempt: tuple[str, ...] = ()


class Oddity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """That a key's requests are odd since `since_ns` (UTC): `count` of them so far.

    `until_ns` is when its throttle ends, 0 where it has none.
    """

    tenant: str
    key: str
    signal: Signal
    since_ns: int
    count: int
    until_ns: int = 0


class Oddities(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway has seen lately, at a moment (UTC nanoseconds)."""

    at_ns: int = 0
    keys: tuple[Oddity, ...] = ()
