"""What a machine has of one kind of device, looked at again and again.

Contract:
- `look` never raises for what the machine lacks: without a driver there are no devices, and the
  reason says so. What a device doesn't tell is None, and no other device suffers from it.
- Devices keep their `id` from look to look, and no two have the same.
- `look` blocks, for milliseconds, and may hang where a driver does: call it on a thread of its own.
"""

from typing import Protocol

import msgspec

from tiffin.types.machine import Device


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a kind; `reason` says why there are none, `unseen` that nobody could look."""

    devices: tuple[Device, ...] = ()
    reason: str = ""
    unseen: bool = False


class Devices(Protocol):
    """One kind of device of this machine."""

    @property
    def kind(self) -> str:
        """What its devices' `kind` is."""
        ...

    def look(self) -> Found:
        """What there is now."""
        ...

    def close(self) -> None:
        """Let go of the driver; idempotent, and a later look opens it again."""
        ...
