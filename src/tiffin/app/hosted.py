"""What a replica's process hosts, whatever kind of model it is: the process knows nothing more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.serving.progress import ProgressFile
from tiffin.telemetry.metrics import Meter
from tiffin.types.snapshot import Deployment


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process gives to what it hosts. `max_body_bytes` is the longest body it may read;
    `snapshot` is the file in which the published snapshot is."""

    deployment: Deployment
    clock: Clock
    progress: ProgressFile
    meter: Meter
    max_body_bytes: int
    snapshot: Path = Path("snapshot.json")


class Hosted(Protocol):
    """A model's whole life in a replica: loaded, warmed up, answering, drained, closed, in order.

    `close` may come at any time, and more than once.
    """

    async def load(self) -> None:
        """Load the model; raises `LoadFailed`."""
        ...

    async def warm_up(self) -> None:
        """Run a real inference the way of all others; ready afterwards. Raises `LoadFailed`."""
        ...

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange, in whatever phase; cancelling this stops the work behind it."""
        ...

    def look(self) -> None:
        """Note in the meter what can only be seen now and again: how full it is."""
        ...

    async def drain(self, within_s: float) -> None:
        """Take nothing more, and let what runs finish within that time."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...
