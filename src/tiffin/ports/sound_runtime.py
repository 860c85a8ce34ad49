"""What executes a model of sounds inside a replica.

Contract:
- `load` returns when the model can hear, or raises `LoadFailed` with the reason.
- `hear` blocks: whoever calls it decides on which thread. No two run at once.
- `hear` calls `go_on` after each step of work (some of the file read, a segment heard). Where that
  says false it stops and returns what it has; nobody wants that any more.
- `hear` raises an `InvalidRequest` where the file is no sound that it can read or is too long, or
  where the model can't do what is asked, and `RunFailed` for what went wrong in the engine.
"""

from collections.abc import Callable
from typing import Protocol

from tiffin.types.sound import Hearing, Transcript


class SoundRuntime(Protocol):
    """A model of sounds in this process."""

    async def load(self) -> None:
        """Make the model ready; raises `LoadFailed`."""
        ...

    def hear(self, sound: bytes, hearing: Hearing, go_on: Callable[[], bool]) -> Transcript:
        """What is said in a sound file."""
        ...

    async def close(self) -> None:
        """Give everything back; idempotent."""
        ...
