"""Where responses are kept, so that a later request of the same tenant can continue from them.

Contract:
- The tenant is a part of every key: what one kept, no other finds or forgets.
- What is kept is bounded in bytes and number for each tenant and in all, and in time; what goes
  over a bound pushes out what is oldest, so a response that was kept may be gone.
- What is kept is here, in this gateway, and nothing of that waits. Where there are several, `fetch`
  has here what any of them keeps, and `share` tells all how it stands here.
"""

from collections.abc import Awaitable
from typing import Protocol

import msgspec


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A response as its client got it, and the JSON list of all items that it answered."""

    response: bytes
    items: bytes


class Conversations(Protocol):
    """Responses by tenant and id."""

    def fits(self, kept: Kept) -> bool:
        """Whether a response isn't larger than what may be kept at all."""
        ...

    def keep(self, tenant: str, name: str, kept: Kept) -> bool:
        """Keep a response; false where it doesn't fit."""
        ...

    def find(self, tenant: str, name: str) -> Kept | None:
        """What this tenant kept under this id, if it is still here."""
        ...

    def forget(self, tenant: str, name: str) -> bool:
        """Let it go; whether there was anything."""
        ...

    async def fetch(self, tenant: str, name: str) -> None:
        """Have `find` say what any gateway keeps under this id; raises `Unavailable`."""
        ...

    def share(self, tenant: str, name: str) -> Awaitable[None] | None:
        """Have every gateway find what is kept here under this id, or nothing where it was let go;
        what to await, where that takes anything. Raises `Unavailable` where it isn't gone."""
        ...
