"""What was used and what it cost, summed by half hours, and what runs and invoices say beside it.

Contract:
- Sums come from accounts alone: an account that is read twice is in them once, and one that nobody
  closed is in them as `lost`. They stay when entries are trimmed.
- `ran` takes what is known of processes' lives so far; what was told before grows, nothing twice.
- `take_invoice` keeps an invoice by its name: one that is kept already is left as it was.
- Every method raises `Unavailable` while the store can't be used.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

HALF_HOUR_NS: Final = 1_800_000_000_000
"""Sums are kept by half hours (UTC), so that days of India, which begin at one, add up too."""


class Span(NamedTuple):
    """From a moment to another, UTC nanoseconds, the last one not included."""

    since_ns: int
    until_ns: int


class Sum(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What accounts of one kind come to; amounts are pico-units of `currency`.

    `model` is what clients asked for, `target` the model that answered it or was tried last; of one
    that is `upstream` each use is paid for. `day_ns` is when the day begins that they closed in, 0
    where days aren't told apart. What isn't `measured` was counted or estimated by us.
    """

    tenant: str
    project: str
    key: str
    tag: str
    model: str
    target: str
    upstream: bool
    outcome: str
    measured: bool
    currency: str
    requests: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    device_ns: int = 0
    retried_ns: int = 0
    rows: int = 0
    pages: int = 0
    audio_ms: int = 0
    cost_pico: int = 0
    loss_pico: int = 0
    day_ns: int = 0


FIELDS: Final = frozenset({"project", "key", "tag", "model"})
"""What needn't be told apart in sums; tenants, targets and outcomes always are."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a process's life: `kind` is `machine`, `load` or `loaded`.

    A replica's `share` of a `device` is its threads of a processor (`cpu`), or how many
    accelerators it has (`gpu`); a machine's is how many there are. It answers `slots` at once. Of
    one that is `opaque` nobody sees what a request of several takes.
    """

    name: str
    kind: str
    since_ns: int
    until_ns: int
    model: str = ""
    share: int = 1
    slots: int = 1
    device: str = "cpu"
    opaque: bool = False


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """What a fit needs to know of a model `target`: over `rows` of sums of what was answered and
    measured, each counting one by how many requests it has, the sums of all products of
    prompt tokens that were read, those that were cached, completion tokens, and device time (ns).
    """

    target: str
    rows: int
    products: tuple[tuple[float, ...], ...]


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of somebody's invoice: what `name` of a `kind` cost in a time; pico-units."""

    since_ns: int
    until_ns: int
    name: str
    kind: str
    amount_pico: int
    currency: str


class Ledger(Protocol):
    """The store of sums, lives and invoices."""

    async def sums(
        self,
        span: Span,
        *,
        fields: Collection[str] = FIELDS,
        daily: bool = False,
        offset_ns: int = 0,
    ) -> list[Sum]:
        """Everything that closed in a span of whole half hours, told apart by these of `FIELDS`.

        `daily` tells days apart too, which begin `offset_ns` (whole half hours) before UTC's.
        """
        ...

    async def moments(self, span: Span, targets: Collection[str]) -> list[Moments]:
        """What fits of these models need to know, of a span of whole half hours."""
        ...

    async def ran(self, lives: Sequence[Ran]) -> None:
        """Keep stretches; one with the name, kind and beginning of another replaces it."""
        ...

    async def lives(self, span: Span) -> list[Ran]:
        """The stretches that touch a span."""
        ...

    async def take_invoice(self, name: str, lines: Sequence[InvoiceLine]) -> bool:
        """Keep an invoice; false where it was there already."""
        ...

    async def invoiced(self, span: Span) -> list[InvoiceLine]:
        """The lines of all invoices that touch a span."""
        ...

    async def trim(self, *, before_ns: int) -> None:
        """Delete sums and lives that ended before a moment."""
        ...
