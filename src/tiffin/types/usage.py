"""What a request used: counted quantities, never prices."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Quantities of one reply; `measured` is false where the engine didn't report and we counted.

    `cached_tokens` are of the prompt, `reasoning_tokens` of the completion.
    Times are nanoseconds: `queue_ns` waited for a slot, `device_ns` held one (of a batch: this
    request's share of it by rows or tokens), `prepare_ns` went into reading and shaping the input.
    `rows` are a tensor request's rows, `pages` and `pixels` a document's, `audio_ms` a sound's
    length. `reason` is why it went when it went: `idle` (a slot was free), `turn`, `fair` (its
    tenant's share came first), `batch_share`, or a batch's own; empty where nothing queued.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    queue_ns: int = 0
    device_ns: int = 0
    prepare_ns: int = 0
    rows: int = 0
    pages: int = 0
    pixels: int = 0
    audio_ms: int = 0
    measured: bool = True
    reason: str = ""
