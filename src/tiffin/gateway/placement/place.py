"""One replica or upstream that answers: its connections, and what is known of it."""

from dataclasses import dataclass, field
from typing import Protocol

from tiffin.gateway.placement.choice import Standing
from tiffin.gateway.placement.circuit import Circuit
from tiffin.gateway.placement.full import Full
from tiffin.ports.backend import Backend


class ClosableBackend(Backend, Protocol):
    """A backend that a place owns."""

    def close(self) -> None:
        """Close every connection; what runs fails."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Place(Standing):
    """`ready` is what it last said itself, `loaded` whether it ever was; `probed` is whether it is
    asked at all, next at `probe_at` (the loop's clock). It outlives the targets that name it. At an
    upstream it is where calls with one `key` of ours go."""

    backend: ClosableBackend
    probed: bool = True
    ready: bool = False
    loaded: bool = False
    probe_at: float = 0.0
    full: Full = field(default_factory=Full)
    key: Circuit | None = None
