"""What is to be imported, and what came of it, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiffin.config.models import Decision
from tiffin.types.tensors import Signature

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Order:
    """A model to import: where it lies, and what its owner said about it.

    `scratch` is a folder for files that are made. `trusted` allows to run the model's own code.
    `sample` is a file of rows (CSV or .npy); `features`, `labels` and `threshold` win over what
    the model itself says.
    """

    path: Path
    scratch: Path
    trusted: bool = False
    sample: Path | None = None
    features: tuple[str, ...] = ()
    labels: tuple[str, str] | None = None
    threshold: float | None = None

    @property
    def says_decision(self) -> bool:
        """Whether the owner said what a score of this model means."""
        return bool(self.features or self.labels) or self.threshold is not None


@dataclass(frozen=True, slots=True)
class Imported:
    """A model that a runtime can serve.

    `files` lie where they were found or in the order's scratch folder, by the name that the runtime
    knows them under. `settings` are those of its section beside the files. `what` names the model
    in a few words, `notes` say what was done and checked, one sentence each. `example` has one row
    of each input.
    """

    runtime: str
    what: str
    files: Mapping[str, Path]
    settings: Mapping[str, Any] = field(default_factory=dict)
    decision: Decision | None = None
    notes: tuple[str, ...] = ()
    signature: Signature | None = None
    example: "Mapping[str, NDArray[Any]]" = field(default_factory=dict)
