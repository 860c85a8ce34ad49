"""By when a request must be answered, and by when it should be."""

import math
from typing import Final, NamedTuple

from tiffin.errors import InvalidRequest
from tiffin.types.snapshot import Plan

MAX_TIMEOUT_MS: Final = 86_400_000
PATIENCE: Final = 4.0
"""How often a plan's objective is over before its request is given up."""
AIMED: Final = 0.9
"""The part of an objective that is aimed at: the way to a replica and back needs some too."""


class Due(NamedTuple):
    """Moments on the loop's clock: the `deadline`, after which there is no answer any more.

    What can't be whole by `aim`, or begun by `first`, is better refused before it queues. `named`
    is whether the client itself gave the time, else objectives and settings did.
    """

    deadline: float
    aim: float = math.inf
    first: float = math.inf
    named: bool = False

    def after(self, waited_s: float) -> "Due":
        """The time that is left after a wait that isn't the request's own, as for a model to load:
        the same for a client that named its time, later by the wait for others."""
        if self.named:
            return self
        return Due(self.deadline + waited_s, self.aim + waited_s, self.first + waited_s)


def due(
    said: bytes | None, asked_s: float, plan: Plan, opened: float, *, batch: bool = False
) -> Due:
    """By the client's header, else its dialect's own field (0: none), else the plan's objectives.

    Those are for who waits for an answer: batch work has all of the plan's limit, which nothing
    outlasts. Raises `InvalidRequest` for a header that is no timeout.
    """
    limit_s = plan.timeout_s
    given_s = asked_s if said is None else _timeout_s(said)
    if given_s:
        return Due(opened + min(limit_s, given_s), named=True)
    aim = first = math.inf
    if batch:
        return Due(opened + limit_s)
    if plan.p95_ms:
        aim = opened + AIMED * plan.p95_ms / 1000
        limit_s = min(limit_s, PATIENCE * plan.p95_ms / 1000)
    if plan.ttft_p95_ms:
        first = opened + AIMED * plan.ttft_p95_ms / 1000
    return Due(opened + limit_s, aim, first)


def _timeout_s(header: bytes) -> float:
    digits = header.strip()
    if not (digits.isdigit() and len(digits) <= 8 and 0 < int(digits) <= MAX_TIMEOUT_MS):
        shown = digits[:40].decode("latin-1")
        raise InvalidRequest(
            f"x-request-timeout-ms is '{shown}'; give whole milliseconds from 1 to {MAX_TIMEOUT_MS}"
        )
    return int(digits) / 1000
