"""What asks for slots: a request, the work of each of its choices, and their places."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tiffin.errors import TiffinError


class Standing(Enum):
    """Where a ticket is: it goes from WAITING to HOLDING to GONE, or straight to GONE."""

    WAITING = "waiting"
    HOLDING = "holding"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Claim:
    """One request at the queue: all its choices queue as one. Moments are monotonic seconds.

    By `aim` it should be answered and by `first` begun; after `deadline` it isn't any more.
    `opened` is when it began (0: when it is asked), `weight` its tenant's part of what is shared,
    `foreseen` is for how long it was to wait.
    """

    tenant: str
    deadline: float = math.inf
    batch: bool = False
    aim: float = math.inf
    first: float = math.inf
    weight: float = 1.0
    opened: float = 0.0
    waiting: int = 0
    begun: bool = False
    foreseen: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What one choice takes: a prompt and at most `answer` tokens.

    Where there are no tokens, `size` is how much there is to be read, in any unit.
    """

    tokens: Sequence[int] = ()
    answer: int = 0
    size: float = 0.0


@dataclass(slots=True, eq=False)
class Ticket:
    """One choice's place, in the queue and then in a slot.

    `reuse_prefix` says that what the slot remembers is this tenant's own; `size` is how much of the
    prompt has to be read. `ran` is whether the engine has begun to answer: only then is it certain
    whose tokens the slot holds. `done` counts the answer's tokens so far; `ended` is whether it was
    whole, by itself. `reason` is why it went when it went.
    """

    claim: Claim
    work: Work
    asked: float
    number: int = 0
    cost: float = 1.0
    standing: Standing = Standing.WAITING
    slot: int = -1
    reuse_prefix: bool = False
    size: float = 0.0
    ran: bool = False
    done: int = 0
    ended: bool = False
    reason: str = ""
    started: float = 0.0
    seen: "Seen | None" = None
    refusal: TiffinError | None = None
    called: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Seen:
    """How far what an answer teaches has been learnt: tokens, moment, and the slots' use by then.

    `latest` is when its newest token came.
    """

    tokens: int
    at: float
    use: float
    latest: float
