"""A request on its way to an answer, and the answer at its commit point."""

from collections.abc import Callable
from dataclasses import dataclass

from tiffin.dialects.dialect import Asked, Reading, Whole
from tiffin.gateway.due import Due
from tiffin.ports.backend import Reply
from tiffin.types.snapshot import Plan, Target


@dataclass(slots=True)
class Run:
    """A request on its way: what every attempt at it needs.

    Its prompts may have `most_tokens` (0: no cap), which its model counts. `data_class` is how
    sensitive its data is, by its key; empty is not said. `paying` is called before a target that
    may charge for the attempt; where it raises that target isn't called.
    """

    asked: Asked
    plan: Plan
    tenant: str
    trace_id: str
    due: Due
    weight: float = 1.0
    batch: bool = False
    read_at: float = 0.0
    most_tokens: int = 0
    data_class: str = ""
    paying: Callable[[], None] | None = None

    def trying(self, target: Target) -> None:
        """This target is called next; raises what forbids it."""
        if self.paying is not None and target.kind == "remote":
            self.paying()


@dataclass(slots=True)
class Begun:
    """A stream at its commit point: its first bytes for the client, and where the rest is read."""

    first: bytes
    reply: Reply
    reading: Reading


Answer = Whole | Begun
