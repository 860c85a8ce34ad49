"""`slo`: what a model or route promises, declared once for everything that has to keep it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

DAY_MS: Final = 86_400_000

Latency = Annotated[float, Meta(ge=0, le=DAY_MS)]
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=1e12)]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.slo]`, `[routes.NAME.slo]`: the objectives; 0 is none.

    A request whose client names no timeout is refused at once where its answer would take longer
    than `p95_ms` (less a tenth, for the way), and ends after four times that; where a language
    model's first token would come after `ttft_p95_ms` it is refused too. The others are kept with
    the model and shown with it: nothing acts on them yet. A route without a section of its own has
    that of its first model.
    """

    p50_ms: Latency = 0.0
    p95_ms: Latency = 0.0
    ttft_p95_ms: Latency = 0.0
    availability: Share = 0.0
    error_rate: Share = 0.0
    requests_per_s: Amount = 0.0
    cost_per_1000: Amount = 0.0
    accuracy: Share = 0.0


ACTED_ON: Final = ("p95_ms", "ttft_p95_ms")
"""The objectives that something acts on; the others are only kept."""


def declared(slo: Slo) -> dict[str, float]:
    """The objectives that there are, by name."""
    return {name: value for name, value in msgspec.structs.asdict(slo).items() if value}


def only_kept(slo: Slo) -> list[str]:
    """The declared objectives that nothing acts on yet."""
    return [name for name in declared(slo) if name not in ACTED_ON]
