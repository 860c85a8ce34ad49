"""What a failed try says about trying again: one table, by how far the try came; pure.

Only what is somebody else's is tried again at the same place: a replica of ours has its own queue,
and another of its places takes over where one goes.
"""

from enum import Enum
from typing import Final, NamedTuple

from tiffin.errors import (
    ContextLengthExceeded,
    Rejected,
    RunFailed,
    TiffinError,
    UpstreamUnavailable,
)

FIRST_WAIT_S: Final = 0.5
MAX_WAIT_S: Final = 5.0
JITTER: Final = (0.8, 1.2)
"""A wait is this part of what it would be, at random, so that those who failed together part."""


class Phase(Enum):
    """How far a try had come when it failed; nothing of it had gone to the client."""

    REACH = "reach"
    """There was no connection, or none of a reply came over it."""
    STATUS = "status"
    """A reply came, with the status of an error."""
    ANSWER = "answer"
    """A reply came that broke off or was no answer."""


class Blame(Enum):
    """Whom a failure counts against."""

    SERVER = "server"
    KEY = "key"
    """Our key there was refused: it may be refused for every request."""
    NOBODY = "nobody"


class Rule(NamedTuple):
    """`again` is whether the same target may do better after a while, `key` whether it may with
    another key. Every failure that is a target's may go on to the next one."""

    again: bool
    key: bool = False
    blame: Blame = Blame.NOBODY


class Fault(NamedTuple):
    """What a failed call says of whom it was made to: who is to blame, when that one said to come
    again, and whether it may pass by itself."""

    blame: Blame = Blame.NOBODY
    retry_after_s: float = 0.0
    passes: bool = True


_SERVERS: Final = Rule(again=True, blame=Blame.SERVER)
_STATUSES: Final[dict[int, Rule]] = {
    401: Rule(again=False, key=True, blame=Blame.KEY),
    402: Rule(again=False, key=True, blame=Blame.KEY),
    403: Rule(again=False, key=True),
    408: Rule(again=True),
    409: Rule(again=True),
    425: Rule(again=True),
    429: Rule(again=True, key=True, blame=Blame.KEY),
    500: _SERVERS,
    502: _SERVERS,
    503: _SERVERS,
    504: _SERVERS,
    # What those say that stand before a server, and Anthropic of being overloaded.
    **dict.fromkeys(range(520, 530), _SERVERS),
}
_OTHERWISE: Final = Rule(again=False)


def rule_of(phase: Phase, status: int) -> Rule:
    """What holds of a failure in a phase; `status` is the reply's, 0 where none came."""
    if phase is Phase.STATUS:
        return _STATUSES.get(status, _OTHERWISE)
    return _SERVERS


def is_the_targets(error: TiffinError) -> bool:
    """Whether it is the target that failed, so that another may do better."""
    return error.retryable or isinstance(error, RunFailed)


def another_may(error: TiffinError) -> bool:
    """Whether another target may do better: also one with a longer context."""
    return is_the_targets(error) or isinstance(error, ContextLengthExceeded)


def may_come_again(error: TiffinError, phase: Phase, status: int) -> bool:
    """Whether an upstream that failed with this may do better after a while."""
    return not isinstance(error, Rejected) and error.retryable and rule_of(phase, status).again


def fault_of(error: BaseException, phase: Phase, status: int) -> Fault:
    """What the end of a call says of the upstream that it was made to, or of the key.

    A refusal of ours, a client that left and a deadline that passed say nothing.
    """
    if not isinstance(error, TiffinError) or isinstance(error, Rejected):
        return Fault()
    if not is_the_targets(error) or (isinstance(error, UpstreamUnavailable) and error.stale):
        return Fault()
    rule = rule_of(phase, status)
    return Fault(rule.blame, error.retry_after or 0.0, rule.again)


def wait_s(failed: int, error: TiffinError, chance: float) -> float:
    """How long to wait after so many failures of a target (1 or more), of which this was the last.

    `chance` is from 0 up to 1; never sooner than the target itself says. A connection that was only
    found closed is made anew at once.
    """
    if failed == 1 and isinstance(error, UpstreamUnavailable) and error.stale:
        return 0.0
    least, most = JITTER
    usual = min(MAX_WAIT_S, FIRST_WAIT_S * 2.0 ** (failed - 1))
    return max(usual * (least + (most - least) * chance), error.retry_after or 0.0)
