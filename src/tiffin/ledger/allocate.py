"""Who a bill is for: shares of it by device time and by what was paid, which sum to it exactly."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from tiffin.ledger.bill import (
    BY_THE_HOUR,
    CPU,
    CREDIT,
    GPU,
    MACHINE,
    PART_OF,
    PARTS,
    VARIANCE,
    BillLine,
    cost_paid,
    loss_paid,
)
from tiffin.ledger.book import Book
from tiffin.ledger.fit import Fit
from tiffin.ledger.segments import joined
from tiffin.ports.ledger import Ran, Span, Sum
from tiffin.types.money import split

IDLE: Final = "idle"
LOAD: Final = "load"
REQUESTS: Final = "requests"
RETRIED: Final = "retried"
INTERNAL: Final = {"_shadow": "shadow", "_evaluation": "evaluation", "_review": "review"}
"""Lines of the tenants that the installation itself is."""

_WASTE: Final = {
    "failed": "failed",
    "partial": "failed",
    "cancelled": "cancelled",
    "lost": "lost",
}
WASTE: Final = frozenset({*_WASTE.values(), RETRIED})
NO_FITS: Final[Mapping[str, Fit]] = {}


class Portion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the bill, on one `line`, and whose it is; pico-units.

    `measured_pico` was measured or paid for as told, `allocated_pico` is a share by some key.
    `tenant` and what follows is empty where it is nobody's. Of `requests`, `successful` were
    answered whole.
    """

    line: str
    tenant: str = ""
    project: str = ""
    key: str = ""
    tag: str = ""
    model: str = ""
    day_ns: int = 0
    requests: int = 0
    successful: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    device_ns: int = 0
    marginal_pico: int = 0
    measured_pico: int = 0
    allocated_pico: int = 0

    @property
    def amount_pico(self) -> int:
        """Both together."""
        return self.measured_pico + self.allocated_pico


class _Place(NamedTuple):
    """On which device a model's replicas are, what part of it each has, and their slots; `opaque`
    where what a request took there isn't seen."""

    device: str
    share_ns: int
    slots_ns: int
    opaque: bool = False


class _Row:
    """A portion that is being made: `weight` of a device's time, `seen` where it was measured."""

    __slots__ = ("allocated", "device", "measured", "of", "retried", "seen", "weight")

    def __init__(self, of: Sum | None, *, retried: bool = False) -> None:
        self.of = of
        self.retried = retried
        self.seen = of is not None and of.measured and not retried
        self.device = ""
        self.weight = self.measured = self.allocated = 0


def allocate(
    lines: Sequence[BillLine],
    sums: Iterable[Sum],
    lives: Sequence[Ran],
    book: Book,
    span: Span,
    fits: Mapping[str, Fit] = NO_FITS,
) -> list[Portion]:
    """Portions of the bill; they sum to it, whatever was used.

    Machines are shared by device time: what requests held, what loading took, and the rest idle.
    What the requests of an engine held whose inside isn't seen is shared by a fit of what their
    tokens take. What upstreams are paid is its requests'. Everything else follows these direct
    costs.
    """
    places = _places(lives)
    rows = [row for one in sums for row in _rows(one, places, book, span)]
    _by_fits(rows, fits)
    spare = [*_machines(lines, rows, lives, book, span)]
    _overheads(lines, rows, spare)
    others = [
        Portion(line=f"{line.kind}: {line.name}", measured_pico=line.amount_pico)
        for line in lines
        if line.kind in (CREDIT, VARIANCE)
    ]
    return [*(_portion(row) for row in rows), *spare, *others]


def line_of(one: Sum) -> str:
    """The statement's line of these requests."""
    if one.tenant in INTERNAL:
        return INTERNAL[one.tenant]
    return _WASTE.get(one.outcome, REQUESTS)


def _rows(one: Sum, places: Mapping[str, _Place], book: Book, span: Span) -> list[_Row]:
    row = _Row(one)
    row.measured = cost_paid(book, one, span)
    lost = loss_paid(book, one, span)
    place = places.get(one.target)
    if place is not None:
        row.device = place.device
        row.weight = _weight(one.device_ns, place)
        row.seen = row.seen and not place.opaque
    if one.outcome != "ok":
        row.measured += lost
        lost = 0
    if not one.measured:
        row.measured, row.allocated = 0, row.measured
    rows = [row]
    if one.retried_ns or lost:
        again = _Row(one, retried=True)
        again.allocated = lost
        if place is not None:
            again.device, again.weight = place.device, _weight(one.retried_ns, place)
        rows.append(again)
    return rows


def _by_fits(rows: Sequence[_Row], fits: Mapping[str, Fit]) -> None:
    """Share what the requests of a model held together by what their tokens should have taken."""
    told: dict[str, list[tuple[_Row, int]]] = {}
    for row in rows:
        fit = fits.get(row.of.target) if row.of and not row.retried and not row.seen else None
        if fit is not None and row.of is not None and (weight := fit.weight_ps(row.of)):
            told.setdefault(row.of.target, []).append((row, weight))
    for mine in told.values():
        held = sum(row.weight for row, _ in mine)
        for (row, _), share in zip(mine, split(held, [w for _, w in mine]), strict=True):
            row.weight = share


def _machines(
    lines: Sequence[BillLine],
    rows: Sequence[_Row],
    lives: Sequence[Ran],
    book: Book,
    span: Span,
) -> Iterable[Portion]:
    """Share what machines cost; returns what is no request's: load by model, and idle."""
    for device in (CPU, GPU):
        total = sum(line.amount_pico for line in lines if line.device == device)
        if not total:
            continue
        mine = [row for row in rows if row.device == device and row.weight]
        loads = _loads(lives, device, span)
        busy = sum(row.weight for row in mine) + sum(loads.values())
        idle = max(0, _capacity(device, lives, book, span) - busy)
        weights = [row.weight for row in mine] + list(loads.values()) + [idle]
        shares = split(total, weights) if any(weights) else [0] * (len(weights) - 1) + [total]
        for row, share in zip(mine, shares, strict=False):
            if row.seen:
                row.measured += share
            else:
                row.allocated += share
        for model, share in zip(loads, shares[len(mine) :], strict=False):
            yield Portion(line=LOAD, model=model, measured_pico=share)
        yield Portion(line=IDLE, measured_pico=shares[-1])


def _overheads(lines: Sequence[BillLine], rows: Sequence[_Row], spare: list[Portion]) -> None:
    """Spread what has no key of its own by the direct costs, else by requests, else it is idle."""
    direct = [row.measured + row.allocated for row in rows]
    if not any(direct):
        direct = [row.of.requests if row.of and not row.retried else 0 for row in rows]
    for part in PARTS:
        total = sum(
            line.amount_pico
            for line in lines
            if PART_OF.get(line.kind) == part and line.kind not in ("machines", "models")
        )
        if not total:
            continue
        if not any(direct):
            spare.append(Portion(line=IDLE, allocated_pico=total))
            continue
        for row, share in zip(rows, split(total, direct), strict=True):
            row.allocated += share


def _portion(row: _Row) -> Portion:
    one = row.of
    if one is None:
        raise ValueError("a row is of some requests")
    whose = Portion(
        line=RETRIED if row.retried and one.tenant not in INTERNAL else line_of(one),
        tenant=one.tenant,
        project=one.project,
        key=one.key,
        tag=one.tag,
        model=one.model,
        day_ns=one.day_ns,
        measured_pico=row.measured,
        allocated_pico=row.allocated,
        device_ns=one.retried_ns if row.retried else one.device_ns,
    )
    if row.retried:
        return whose
    return msgspec.structs.replace(
        whose,
        requests=one.requests,
        successful=one.requests if one.outcome == "ok" else 0,
        prompt_tokens=one.prompt_tokens,
        completion_tokens=one.completion_tokens,
        marginal_pico=one.cost_pico,
    )


def _places(lives: Iterable[Ran]) -> dict[str, _Place]:
    """By model, from how long which of its replicas were loaded."""
    found: dict[str, _Place] = {}
    for one in lives:
        if one.kind == MACHINE or not one.model:
            continue
        lasted = max(1, one.until_ns - one.since_ns)
        before = found.get(one.model, _Place(one.device, 0, 0))
        opaque = before.opaque or one.opaque
        share_ns = before.share_ns + one.share * lasted
        slots_ns = before.slots_ns + max(1, one.slots) * lasted
        found[one.model] = _Place(one.device, share_ns, slots_ns, opaque)
    return found


def _weight(device_ns: int, place: _Place) -> int:
    """Device time as nanoseconds of one thread, or of one accelerator."""
    return max(0, device_ns) * place.share_ns // place.slots_ns


def _loads(lives: Iterable[Ran], device: str, span: Span) -> dict[str, int]:
    """What loading took of a device, by model."""
    found: dict[str, int] = {}
    for model, weight in _stretches(lives, LOAD, device, span):
        found[model] = found.get(model, 0) + weight
    return found


def _capacity(device: str, lives: Sequence[Ran], book: Book, span: Span) -> int:
    """Nanoseconds of all threads, or of all accelerators, that were paid for."""
    up = joined(Span(one.since_ns, one.until_ns) for one in lives if one.kind == MACHINE)
    paid = [
        (held.entry, _common([Span(held.since_ns, held.until_ns)], [span]))
        for held in book.machines
        if bool(held.entry.accelerators) is (device == GPU)
    ]
    paid = [(one, _common(at, up) if one.terms in BY_THE_HOUR else at) for one, at in paid]
    if device == GPU:
        return sum(one.accelerators * one.count * _lasting(at) for one, at in paid)
    cores = max((one.share for one in lives if one.kind == MACHINE), default=0)
    return cores * _lasting(joined(part for _, at in paid for part in at))


def _common(these: Iterable[Span], those: Sequence[Span]) -> list[Span]:
    """The time that is in both."""
    found = (
        Span(max(a.since_ns, b.since_ns), min(a.until_ns, b.until_ns)) for a in these for b in those
    )
    return [one for one in found if one.since_ns < one.until_ns]


def _lasting(spans: Iterable[Span]) -> int:
    return sum(one.until_ns - one.since_ns for one in spans)


def _stretches(
    lives: Iterable[Ran], kind: str, device: str, span: Span
) -> Iterable[tuple[str, int]]:
    """How long each process of a kind lasted in a span, times its share; its model comes first.

    A stretch that was told twice, from a little earlier and a little later on, counts once.
    """
    told: dict[str, list[Ran]] = {}
    for one in lives:
        if one.kind == kind and one.device == device:
            told.setdefault(one.name, []).append(one)
    for mine in told.values():
        told_of = joined(Span(one.since_ns, one.until_ns) for one in mine)
        lasted = _lasting(_common(told_of, [span]))
        if lasted:
            yield mine[-1].model, lasted * max(one.share for one in mine)
