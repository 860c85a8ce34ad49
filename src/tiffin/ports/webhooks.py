"""How somebody elsewhere is told something: one POST, and what they answer.

Contract:
- Returns the status of the answer, whatever that is; a redirect is a status too, and not followed.
- Raises `UpstreamUnavailable`, `UpstreamFailed` or `DeadlineExceeded` where there is none in time.
- An answer that never ends isn't read to its end.
"""

from typing import Protocol

Lines = tuple[tuple[bytes, bytes], ...]
"""Names and values of headers."""


class Webhooks(Protocol):
    """Sends messages."""

    async def post(self, url: str, headers: Lines, body: bytes, *, within_s: float) -> int:
        """POST JSON to an address."""
        ...
