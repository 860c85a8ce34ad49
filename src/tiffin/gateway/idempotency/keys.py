"""Which idempotency keys are used and how each stands: a table made of facts, pure and bounded.

Facts of one writer come in its order; those of several may come in any. The table is then the same.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tiffin.errors import (
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    Indeterminate,
    Overloaded,
    RateLimited,
)
from tiffin.ports.key_log import Fact, Place, Standing

AROUND_BYTES = 512
"""What a key takes beside its answer."""

SPARE = 1024

_BEGUN = (Standing.RUNNING, Standing.PAYING)
_ORDER = {standing: n for n, standing in enumerate(Standing)}


@dataclass(slots=True, frozen=True)
class Bounds:
    """How much is kept at most, and how long a key is remembered."""

    keep_ns: int
    keys: int
    bytes: int
    tenant_keys: int
    tenant_bytes: int
    answer_bytes: int


@dataclass(slots=True, frozen=True)
class Wanted:
    """What asks for a key: see `Fact`."""

    scope: bytes
    fingerprint: bytes
    tenant: str
    request: str


@dataclass(slots=True)
class Entry:
    """A key that is used: its last fact, where that lies, and the bytes that it counts for."""

    fact: Fact
    place: Place
    weight: int

    @property
    def begun(self) -> bool:
        """Whether its request runs, or did when its gateway ended."""
        return self.fact.standing in _BEGUN


@dataclass(slots=True)
class Share:
    """What keys take together."""

    keys: int = 0
    bytes: int = 0

    def add(self, keys: int, size: int) -> None:
        """Take more, or less."""
        self.keys += keys
        self.bytes += size


class Keys:
    """The table. Moments are UTC nanoseconds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.all = Share()
        self._entries: dict[bytes, Entry] = {}
        self._shares: defaultdict[str, Share] = defaultdict(Share)
        self._in_segment: defaultdict[str, dict[bytes, None]] = defaultdict(dict)
        self._expiring: list[tuple[int, int, bytes]] = []
        self._last = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def find(self, scope: bytes) -> Entry | None:
        """How a key stands, if it is used."""
        return self._entries.get(scope)

    def in_segment(self, segment: str) -> list[Entry]:
        """The entries whose last fact lies there."""
        return [self._entries[scope] for scope in self._in_segment.get(segment, ())]

    def share(self, tenant: str) -> Share:
        """What a tenant's keys take."""
        return self._shares.get(tenant, Share())

    def learn(self, fact: Fact, place: Place, now_ns: int) -> None:
        """Take in a fact; one that a later claim or a later standing has overtaken is nothing."""
        self._last = max(self._last, fact.seq)
        known = self._entries.get(fact.scope)
        if known is not None and _precedes(fact, known.fact):
            return
        if known is not None:
            self._remove(known)
        if fact.standing is Standing.RELEASED or fact.at_ns + self.bounds.keep_ns <= now_ns:
            return
        begun = fact.standing in _BEGUN
        size = self.bounds.answer_bytes if begun else place.content_bytes
        entry = Entry(fact, place, AROUND_BYTES + size)
        self._entries[fact.scope] = entry
        self._in_segment[place.segment][fact.scope] = None
        for share in (self.all, self._shares[fact.tenant]):
            share.add(1, entry.weight)
        if known is None or known.fact.seq != fact.seq:
            self._will_expire(fact)

    def claim(self, wanted: Wanted, epoch: str, now_ns: int) -> Fact | Entry:
        """The fact that makes a key this request's, to be appended and learnt; or, where the same
        request was answered before, how that stands. Raises what forbids both.
        """
        self.expire(now_ns)
        known = self._entries.get(wanted.scope)
        if known is None:
            self._check_room(wanted.tenant, now_ns)
            return Fact(
                seq=self._last + 1,
                standing=Standing.RUNNING,
                scope=wanted.scope,
                fingerprint=wanted.fingerprint,
                tenant=wanted.tenant,
                request=wanted.request,
                epoch=epoch,
                at_ns=now_ns,
            )
        _check_same(known.fact, wanted)
        if known.begun:
            raise IdempotencyKeyInUse(
                f"a request with this Idempotency-Key is running ({known.fact.request});"
                " ask again with the same key to get its answer",
                retry_after=1.0,
            )
        if known.fact.standing is Standing.LOST:
            raise Indeterminate(
                f"the request with this Idempotency-Key ({known.fact.request}) was cut off while an"
                " upstream that charges for it worked on it, so it may have been charged and isn't"
                " run again; use another key to run it anew"
            )
        return known

    def bury(self, epoch: str, *, whole: bool = True) -> None:
        """A gateway's life has ended, and all its facts are known: what it ran is over.

        Where they aren't `whole`, the end of what ran may be among those that are missing.
        """
        for entry in [e for e in self._entries.values() if e.fact.epoch == epoch]:
            if entry.fact.standing is Standing.RUNNING and whole:
                self._remove(entry)
            elif entry.begun:
                lost = msgspec.structs.replace(entry.fact, standing=Standing.LOST)
                self.learn(lost, entry.place, lost.at_ns)

    def expire(self, now_ns: int) -> None:
        """Forget what is as old as it may become."""
        before = now_ns - self.bounds.keep_ns
        while self._expiring and self._expiring[0][0] <= before:
            _, seq, scope = heapq.heappop(self._expiring)
            entry = self._entries.get(scope)
            if entry is not None and entry.fact.seq == seq:
                self._remove(entry)

    def _check_room(self, tenant: str, now_ns: int) -> None:
        bounds, own, more = self.bounds, self.share(tenant), AROUND_BYTES + self.bounds.answer_bytes
        if own.keys >= bounds.tenant_keys or own.bytes + more > bounds.tenant_bytes:
            raise RateLimited(
                f"the tenant has {own.keys} idempotency keys and {own.bytes} bytes of their answers"
                f" kept, its bounds are {bounds.tenant_keys} and {bounds.tenant_bytes}; send the"
                " request without a key, or wait until the oldest are forgotten",
                retry_after=self._until_next(now_ns),
            )
        if self.all.keys >= bounds.keys or self.all.bytes + more > bounds.bytes:
            raise Overloaded(
                "the server has no room for more idempotency keys; send the request without one,"
                " or wait until the oldest are forgotten",
                retry_after=self._until_next(now_ns),
            )

    def _will_expire(self, fact: Fact) -> None:
        heapq.heappush(self._expiring, (fact.at_ns, fact.seq, fact.scope))
        if len(self._expiring) > 2 * len(self._entries) + SPARE:  # most of them were released
            facts = [entry.fact for entry in self._entries.values()]
            self._expiring = [(fact.at_ns, fact.seq, fact.scope) for fact in facts]
            heapq.heapify(self._expiring)

    def _until_next(self, now_ns: int) -> float:
        """Seconds until a key is forgotten at the latest."""
        oldest = self._expiring[0][0] if self._expiring else now_ns
        return max(1.0, (oldest + self.bounds.keep_ns - now_ns) / 1e9)

    def _remove(self, entry: Entry) -> None:
        fact = entry.fact
        del self._entries[fact.scope]
        there = self._in_segment[entry.place.segment]
        del there[fact.scope]
        if not there:
            del self._in_segment[entry.place.segment]
        self.all.add(-1, -entry.weight)
        own = self._shares[fact.tenant]
        own.add(-1, -entry.weight)
        if not own.keys:
            del self._shares[fact.tenant]


def _precedes(fact: Fact, known: Fact) -> bool:
    """Whether a fact was overtaken by the known one; copies of a fact overtake each other."""
    if fact.seq != known.seq:
        return fact.seq < known.seq
    return _ORDER[fact.standing] < _ORDER[known.standing]


def _check_same(known: Fact, wanted: Wanted) -> None:
    if known.fingerprint != wanted.fingerprint:
        raise IdempotencyKeyReused(
            f"this Idempotency-Key was used for another request ({known.request}): its endpoint or"
            " its body differs; use a new key for a new request"
        )
