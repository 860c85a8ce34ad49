"""One slot of an engine, and what it remembers of its last prompt; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tiffin.serving.lanes.claim import Ticket


@dataclass(slots=True, eq=False)
class Slot:
    """`tokens` are what its last holder, of `tenant`, left there; `used` is when that went."""

    number: int
    tenant: str = ""
    tokens: Sequence[int] = ()
    used: float = -math.inf
    holder: Ticket | None = None


def best_of(free: Sequence[Slot], ticket: Ticket) -> Slot:
    """The tenant's own slot that remembers most of the prompt, else the one idle for longest.

    A slot counts only where at least half of what it remembers is used again: a chat template's
    first words alone are no reason to overwrite another conversation.
    """
    best, most = None, 0
    for slot in free:
        if slot.tenant == ticket.claim.tenant != "":
            shared = shared_prefix(slot.tokens, ticket.work.tokens)
            if shared > most and 2 * shared >= len(slot.tokens):
                best, most = slot, shared
    return best or min(free, key=lambda slot: slot.used)


def shared_prefix(one: Sequence[int], two: Sequence[int]) -> int:
    """How many first tokens two prompts share."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
