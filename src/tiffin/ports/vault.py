"""What encrypts content before it is stored, with a key of the tenant whose content it is.

Contract:
- What was sealed under one label opens under that label alone: another tenant's, another purpose's
  or another id's is as unreadable as content that was changed.
- Once a tenant's keys are destroyed nothing of it opens any more, here soon and in every process
  that starts later at once; sealing goes on with a new key.
- After `prepare` succeeded, sealing for that tenant can't fail.
"""

from typing import NamedTuple, Protocol


class Label(NamedTuple):
    """Whose content it is, what it is kept for, and which one it is."""

    tenant: str
    purpose: str
    id: str


class Vault(Protocol):
    """Seals and opens content."""

    def ready(self, tenant: str) -> bool:
        """Whether `prepare` was called a moment ago, so that nothing here waits for now."""
        ...

    def prepare(self, tenant: str) -> None:
        """Have a key for this tenant; raises `Unavailable`. It may have to wait for a program that
        tells the master key, so it may be called from any thread."""
        ...

    def seal(self, label: Label, content: bytes) -> bytes:
        """The content, so that only `open` with this label reads it; raises `Unavailable`."""
        ...

    def open(self, label: Label, sealed: bytes) -> bytes:
        """What was sealed; raises `NotFound` where it can't be opened any more, or isn't what was
        sealed, and `Unavailable` where time may help."""
        ...
