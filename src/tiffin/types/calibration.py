"""What was measured of engines that could run a model here, and which of them is to."""

import msgspec


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's figures on one machine; `failed` says why it has none.

    `tokens_per_s` are all answers' together, by how many ran at once. `ttft_ms` is until the first
    token of a lone prompt of 128. `drift` is how far the log-probability of its first choice lies
    from the reference's, in natural logarithms and on average; `same` the share of places where
    both chose the same token.
    """

    engine: str
    failed: str = ""
    load_ms: int = 0
    ttft_ms: float = 0.0
    tokens_per_s: dict[int, float] = {}
    memory_bytes: int = 0
    drift: float = 0.0
    same: float = 1.0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """All engines' figures of one revision on one machine, and the choice with its reason.

    `versions` are those of the engines; with others, the figures say nothing any more.
    """

    revision: str
    machine: str
    taken_ns: int
    versions: dict[str, str]
    measured: list[Measured]
    engine: str
    why: str
