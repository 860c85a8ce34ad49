"""Where accounts end up: entries that can be asked for, and how far each journal has been read.

Contract:
- `absorb` takes a batch with its position whole or not at all: one that is read again after a crash
  is one that never came. An account that is opened and closed in different batches becomes one
  entry. A closing whose account has its entry already makes no second; one whose opening nobody
  knows makes an entry of nobody.
- `abandon` ends what an epoch left open as `lost`; `forget` drops the position once the epoch's
  files are gone.
- Every method raises `Unavailable` while the store can't be used, and works again when it can.
- One task writes at a time; reading goes on beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from tiffin.types.usage import Usage


class Opening(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="opened"):
    """An account's opening, as a journal's line has it. `at_ns` is UTC."""

    id: str
    at_ns: int
    tenant: str = ""
    key: str = ""
    endpoint: str = ""
    trace_id: str = ""
    client_id: str = ""
    project: str = ""
    end_user: str = ""
    tag: str = ""


class Closing(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="closed"):
    """An account's closing, as a journal's line has it; `attempts` stays JSON."""

    id: str
    at_ns: int
    outcome: str
    status: int = 0
    error: str = ""
    model: str = ""
    revision: str = ""
    snapshot: int = 0
    cache: str = ""
    kept_inputs: int = 0
    duration_ns: int = 0
    ttft_ns: int = 0
    usage: Usage = Usage()
    cost_pico: int = 0
    loss_pico: int = 0
    currency: str = ""
    retried_ns: int = 0
    target: str = ""
    upstream: bool = False
    end_user: str = ""
    attempts: msgspec.Raw = msgspec.Raw(b"[]")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far an epoch has been read: up to the byte `offset` of `segment`."""

    segment: int = 0
    offset: int = 0


@dataclass(slots=True)
class Batch:
    """What a stretch of one epoch's journal came to, and where the next begins.

    `settled` were opened and closed in it; `opened` are still open; `closed` were opened earlier.
    """

    epoch: str
    position: Position
    settled: list[tuple[Opening, Closing]] = field(default_factory=list)
    opened: list[Opening] = field(default_factory=list)
    closed: list[Closing] = field(default_factory=list)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One account. `seq` grows in the order of ending; `attempts` is a list of events as JSON."""

    seq: int
    id: str
    tenant: str
    key: str
    endpoint: str
    model: str
    revision: str
    outcome: str
    status: int
    error: str
    cache: str
    kept_inputs: int
    opened_ns: int
    closed_ns: int
    duration_ns: int
    ttft_ns: int
    queue_ns: int
    device_ns: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    prepare_ns: int
    rows: int
    pages: int
    pixels: int
    audio_ms: int
    measured: bool
    snapshot: int
    trace_id: str
    client_id: str
    project: str
    end_user: str
    tag: str
    cost_pico: int
    loss_pico: int
    currency: str
    retried_ns: int
    target: str
    upstream: bool
    attempts: msgspec.Raw


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries, newest first; an empty text asks for all.

    `before` and `after` are numbers of entries (`seq`) and bounds of which none is included; 0 is
    none. `slower_ms` asks for those that took at least so long.
    """

    limit: int = 100
    tenant: str = ""
    project: str = ""
    key: str = ""
    end_user: str = ""
    tag: str = ""
    endpoint: str = ""
    model: str = ""
    outcome: str = ""
    error: str = ""
    id: str = ""
    trace_id: str = ""
    slower_ms: int = 0
    before: int = 0
    after: int = 0


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What all accounts of a tenant, model and outcome come to, those included that are gone."""

    tenant: str
    model: str
    outcome: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    device_ns: int


class Accounts(Protocol):
    """The store of accounts."""

    async def positions(self) -> Mapping[str, Position]:
        """How far every epoch has been read."""
        ...

    async def absorb(self, batch: Batch) -> None:
        """Make entries of a batch and move its epoch's position, in one step."""
        ...

    async def abandon(self, epoch: str, at_ns: int) -> int:
        """End what an epoch left open as lost at a moment; returns how many were."""
        ...

    async def forget(self, epoch: str) -> None:
        """Drop the position of an epoch."""
        ...

    async def trim(self, *, before_ns: int, keep: int, at_most: int) -> int:
        """Delete the oldest entries that closed before a moment or are more than `keep`.

        Returns how many went, no more than `at_most`; totals stay.
        """
        ...

    async def entries(self, query: Query) -> list[Entry]:
        """The entries that a query asks for."""
        ...

    async def totals(self) -> list[Total]:
        """Sums over all accounts since the beginning."""
        ...
