"""What the slots of a replica remember, as far as it follows from what was sent there; pure.

It mirrors how a replica chooses a slot (`serving/lanes/lane.py`): one of the same tenant of which
at least half is used again, else the one that was used least recently. Wrong guesses cost time,
never isolation: who may reuse what is decided at the replica.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES: Final = 256
MAX_BLOCKS: Final = 256

Chain = Sequence[int]
"""A hash for each block of a text, of it and all before it: equal only where all before is."""


def chain_of(text: bytes) -> Chain:
    """The whole blocks of a text, up to a bound. Only for this process: the hashes are keyed."""
    chain: list[int] = []
    known = 0
    for end in range(BLOCK_BYTES, min(len(text), MAX_BLOCKS * BLOCK_BYTES) + 1, BLOCK_BYTES):
        known = hash((known, text[end - BLOCK_BYTES : end]))
        chain.append(known)
    return chain


@dataclass(slots=True, eq=False)
class Line:
    """One slot's: whose text it holds, which, since when, and whether a request has it now."""

    tenant: str
    chain: Chain
    turn: int = 0
    busy: bool = True


class Memory:
    """At most `slots` lines, the least recently used first."""

    __slots__ = ("_lines", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = max(1, slots)
        self._lines: list[Line] = []

    def __len__(self) -> int:
        return len(self._lines)

    def warm(self, tenant: str, chain: Chain) -> int:
        """How many first blocks of a tenant's text are remembered, and free to be used again."""
        line = self._best(tenant, chain)
        return shared_blocks(line.chain, chain) if line is not None else 0

    @property
    def loses(self) -> float:
        """When the text came that a new one would replace: 0 with room, endless if all are busy."""
        if len(self._lines) < self._slots:
            return 0
        return next((line.turn for line in self._lines if not line.busy), math.inf)

    def take(self, tenant: str, chain: Chain, turn: int = 0) -> Line | None:
        """A tenant's text goes there; the line to give back, none where all are busy."""
        line = self._best(tenant, chain)
        if line is None and len(self._lines) >= self._slots:
            line = next((one for one in self._lines if not one.busy), None)
            if line is None:
                return None
        if line is not None:
            self._lines.remove(line)
        taken = Line(tenant, chain, turn)
        self._lines.append(taken)
        return taken

    def give(self, line: Line) -> None:
        """The request that had it is over."""
        line.busy = False
        if line in self._lines:
            self._lines.remove(line)
            self._lines.append(line)

    def _best(self, tenant: str, chain: Chain) -> Line | None:
        best, most = None, 0
        for line in self._lines:
            if line.tenant == tenant and not line.busy:
                shared = shared_blocks(line.chain, chain)
                if shared > most and 2 * shared >= len(line.chain):
                    best, most = line, shared
        return best


def shared_blocks(one: Chain, two: Chain) -> int:
    """How many first blocks two texts share."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == two[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
