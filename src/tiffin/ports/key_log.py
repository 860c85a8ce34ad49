"""Where facts about idempotency keys are written, for all gateways of one data folder.

Contract:
- A fact that was appended is read by every other gateway, and by those that start later, also when
  its writer was killed right after. Facts of one writer are read in the order that it wrote them.
- While one gateway has the turn no other has it. Whoever has it and has read until nothing more
  comes knows every fact that was appended in an earlier turn.
- An epoch that has ended appends nothing any more.
- A fact that was damaged isn't read, and all others are; `damage` says of whose epoch it was.
- `append` of a fact without content finds room, as long as no more than a few thousand are begun.
"""

from contextlib import AbstractContextManager
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec


class Standing(Enum):
    """How a keyed request stands, in the order in which one may follow another.

    `paying` is running at somebody who charges for each try, `lost` was that when its gateway
    ended, `released` makes its key as if it had never been used.
    """

    RUNNING = "running"
    PAYING = "paying"
    LOST = "lost"
    DONE = "done"
    RELEASED = "released"


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What became of the request `request` under a key, whole each time.

    `seq` orders claims of all gateways; `scope` is the digest of whose key it is and of the key,
    `fingerprint` that of the request. `at_ns` is when the key was claimed, `epoch` by which life of
    a gateway. `kept` is false for an answer that was too large.
    """

    seq: int
    standing: Standing
    scope: bytes
    fingerprint: bytes
    tenant: str
    request: str
    epoch: str
    at_ns: int
    kept: bool = False


class Place(NamedTuple):
    """Where a fact lies, and how many bytes it takes there, of which its content takes some."""

    segment: str
    offset: int
    bytes: int
    content_bytes: int


Told = tuple[Fact, Place]


class Damage(NamedTuple):
    """Facts that were lost: the first in `segment` at `offset`, no more than `lost` of them, none
    written later than `at_ns` (UTC)."""

    segment: str
    offset: int
    lost: int
    at_ns: int


class KeyLog(Protocol):
    """One gateway's end of the log; `epoch` is its own. `damage` is what was lost of others' facts,
    by epoch, as far as they were read."""

    epoch: str
    damage: dict[str, Damage]

    def turn(self) -> AbstractContextManager[bool]:
        """Have the turn while inside, unless it is false; raises `Unavailable`."""
        ...

    def read(self, most: int) -> list[Told]:
        """The next facts that others wrote, up to `most` of them."""
        ...

    def ended(self) -> set[str]:
        """The epochs with facts here whose process has ended."""
        ...

    def append(self, fact: Fact, content: bytes = b"") -> Place:
        """Write; raises `Unavailable` where there is no room."""
        ...

    def content(self, place: Place) -> bytes:
        """The content there; raises `Unavailable`."""
        ...

    def movable(self) -> list[list[tuple[str, int]]]:
        """Segments that nobody writes any more, with their bytes: ours, and those of epochs that
        have ended. A list for each epoch, oldest first: in that order they may be dropped."""
        ...

    def drop(self, segment: str) -> None:
        """Remove a segment; nothing that counts is left there."""
        ...
