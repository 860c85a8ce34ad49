"""What a request used: counted quantities, never prices."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Quantities of one reply; `measured` is false where the engine didn't report and we counted.

    Times are nanoseconds: `queue_ns` waited for a slot, `device_ns` held one.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queue_ns: int = 0
    device_ns: int = 0
    measured: bool = True
