"""The exact cache: the same request of the same tenant to the same plan gets the same answer.

Off unless a plan declares a time to live. Bounded in bytes; the least recently used leaves first.
"""

from collections import OrderedDict
from hashlib import sha256

from tiffin.gateway.respond import Kept
from tiffin.types.snapshot import Plan

MAX_ENTRY_BYTES = 1_048_576


class CachedReply(Kept, frozen=True, kw_only=True):
    """A whole answer; `expires` is a moment of the monotonic clock."""

    expires: float


class ExactCache:
    """Answers by key; the tenant is a hard part of every key."""

    def __init__(self, max_bytes: int = 67_108_864) -> None:
        self._entries: OrderedDict[bytes, CachedReply] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes

    def get(self, key: bytes, now: float) -> CachedReply | None:
        """The answer kept under this key, unless it is too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, entry: CachedReply) -> None:
        """Keep a complete answer; one that is too large is left out."""
        if len(entry.body) > MAX_ENTRY_BYTES:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = entry
        self._bytes += len(entry.body)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._bytes

    def _drop(self, key: bytes) -> None:
        self._bytes -= len(self._entries.pop(key).body)


def cache_key(tenant: str, plan: Plan, kind: str, canonical: bytes) -> bytes:
    """The key of a request: tenant, the plan's identity (which covers its guard), the request."""
    digest = sha256()
    for part in (tenant.encode(), plan.identity.encode(), kind.encode(), canonical):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
