"""What authorises calls to an upstream, where that is more than a header with a key.

Contract:
- `lines` gives whole header lines, each ended by CRLF, for this one call; it may ask somebody for
  them, and raises `UpstreamUnavailable` or `UpstreamRefused` where it can't have them.
- After each reply it is told whether the lines were let in. `refused` says whether others may be.
"""

from typing import Protocol

from tiffin.ports.backend import Call


class Signer(Protocol):
    """Authorises calls."""

    async def lines(self, call: Call) -> bytes:
        """The lines that go with a call."""
        ...

    def accepted(self, lines: bytes) -> None:
        """They were let in."""
        ...

    def refused(self, lines: bytes) -> bool:
        """They weren't (401); true where they had been before, so that fresh ones may be."""
        ...

    def close(self) -> None:
        """Ask nobody any more."""
        ...
