"""The infrastructure bill of a time: from the price book, and from invoices where there are any."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tiffin.ledger.book import Book
from tiffin.ledger.segments import amount, joined, share_of, within
from tiffin.ports.ledger import InvoiceLine, Ran, Span, Sum
from tiffin.types.money import pico

PART_OF: Final = {
    "machines": "compute",
    "models": "compute",
    "storage": "storage",
    "network": "network",
    "transfer": "network",
    "logs": "platform",
    "platform": "platform",
    "people": "operations",
    "support": "operations",
}
"""The parts of the cost per request, by kind of a bill's line."""

PARTS: Final = ("compute", "storage", "network", "platform", "operations")
CREDIT: Final = "credit"
VARIANCE: Final = "variance"
BY_THE_HOUR: Final = ("on-demand", "spot")
"""Terms of machines that cost only while they run."""

CPU: Final = "cpu"
GPU: Final = "gpu"
MACHINE: Final = "machine"


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """What `name` of a `kind` costs. A machine's is shared by the time of a `device`.

    `credit` is what a grant paid, `variance` by how much an invoice is more than the price book
    says of its kind: `name`.
    """

    kind: str
    name: str
    amount_pico: int
    device: str = ""


def gross(book: Book, span: Span, sums: Iterable[Sum], lives: Iterable[Ran]) -> list[BillLine]:
    """What the price book says that a span of whole half hours costs, before credits."""
    up = joined(Span(one.since_ns, one.until_ns) for one in lives if one.kind == MACHINE)
    lines = []
    for held in book.machines:
        segments = book.machine(held)
        if held.entry.terms in BY_THE_HOUR:
            segments = within(segments, up)
        device = GPU if held.entry.accelerators else CPU
        cost = amount(segments, span)
        lines.append(
            BillLine(kind="machines", name=held.entry.name, amount_pico=cost, device=device)
        )
    paid: dict[str, int] = {}
    for one in sums:
        if cost := paid_for(book, one, span):
            name = one.target if one.upstream else "attempts that broke"
            paid[name] = paid.get(name, 0) + cost
    lines += [BillLine(kind="models", name=n, amount_pico=cost) for n, cost in paid.items()]
    for fixed in book.fixed:
        cost = amount(book.standing(fixed, span), span)
        lines.append(BillLine(kind=fixed.entry.kind, name=fixed.entry.name, amount_pico=cost))
    return _summed(line for line in lines if line.amount_pico)


def paid_for(book: Book, one: Sum, span: Span) -> int:
    """What somebody else gets for these requests, in the book's currency."""
    return cost_paid(book, one, span) + loss_paid(book, one, span)


def cost_paid(book: Book, one: Sum, span: Span) -> int:
    """What an upstream gets for what it answered."""
    if not one.upstream or not one.cost_pico:
        return 0
    return book.converted(one.cost_pico, one.currency, span.since_ns)


def loss_paid(book: Book, one: Sum, span: Span) -> int:
    """What upstreams get for what nobody got."""
    return book.converted(one.loss_pico, one.currency, span.since_ns) if one.loss_pico else 0


def variances(
    lines: Sequence[BillLine], invoiced: Iterable[InvoiceLine], book: Book, span: Span
) -> list[BillLine]:
    """By how much invoices are more, or less, than what the book says of the same kinds."""
    told: dict[str, int] = {}
    for one in invoiced:
        share = share_of(one.amount_pico, Span(one.since_ns, one.until_ns), span)
        cost = book.converted(share, one.currency, span.since_ns)
        told[one.kind] = told.get(one.kind, 0) + cost
    booked = by_kind(lines)
    return [
        BillLine(kind=VARIANCE, name=kind, amount_pico=cost - booked.get(kind, 0))
        for kind, cost in sorted(told.items())
    ]


def credit_slices(book: Book, span: Span) -> list[Span]:
    """The time from the first grant that matters to the span's end, cut where grants come and go.

    What grants pay in a span depends on what they paid before: `credited` wants the costs of all.
    """
    held = [one for one in book.credits if one.since_ns < span.until_ns]
    if not any(one.until_ns > span.since_ns for one in held):
        return []
    first = min(one.since_ns for one in held)
    cuts = {first, span.since_ns, span.until_ns}
    cuts |= {one.since_ns for one in held} | {one.until_ns for one in held}
    order = sorted(cut for cut in cuts if first <= cut <= span.until_ns)
    return [Span(a, b) for a, b in pairwise(order)]


def credited(
    book: Book, span: Span, costs: Iterable[tuple[Span, Mapping[str, int]]]
) -> list[BillLine]:
    """What grants pay in a span: those that expire first before others, until they are used up.

    `costs` are those of `credit_slices` by kind, in their order.
    """
    held = sorted(book.credits, key=lambda one: (one.until_ns, one.since_ns, one.entry.name))
    left = [
        book.converted(pico(one.entry.amount), one.entry.currency, one.since_ns) for one in held
    ]
    used = [0] * len(held)
    for part, told in costs:
        cost = dict(told)
        for at, one in enumerate(held):
            if one.since_ns > part.since_ns or one.until_ns < part.until_ns:
                continue
            covers: Iterable[str] = one.entry.covers or sorted(cost)
            for kind in covers:
                taken = max(0, min(left[at], cost.get(kind, 0)))
                cost[kind] = cost.get(kind, 0) - taken
                left[at] -= taken
                used[at] += taken if part.since_ns >= span.since_ns else 0
    return [
        BillLine(kind=CREDIT, name=one.entry.name, amount_pico=-taken)
        for one, taken in zip(held, used, strict=True)
        if taken
    ]


def by_kind(lines: Iterable[BillLine]) -> dict[str, int]:
    """What lines come to, by kind."""
    found: dict[str, int] = {}
    for line in lines:
        found[line.kind] = found.get(line.kind, 0) + line.amount_pico
    return found


def _summed(lines: Iterable[BillLine]) -> list[BillLine]:
    """Lines of one kind, name and device as one."""
    found: dict[tuple[str, str, str], int] = {}
    for line in lines:
        key = (line.kind, line.name, line.device)
        found[key] = found.get(key, 0) + line.amount_pico
    return [
        BillLine(kind=kind, name=name, amount_pico=total, device=device)
        for (kind, name, device), total in found.items()
    ]
