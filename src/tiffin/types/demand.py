"""What a gateway's requests need of models that are loaded on demand: `run/NAME.demand.json`."""

import msgspec


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """One model's. `waiting` requests are held for it, the first of them since `since_ns`.

    `outstanding` are being answered; `used_ns` is when it was last known to be in use, 0 where it
    wasn't. Moments are UTC nanoseconds.
    """

    waiting: int = 0
    since_ns: int = 0
    outstanding: int = 0
    used_ns: int = 0


Demands = dict[str, Demand]
"""By model; one that isn't here has no demand."""
