"""What executes a tensor model inside a replica: arrays in, arrays out.

Contract:
- `load` returns the model's signature when it can take requests, or raises `LoadFailed`.
- `run` computes one batch and blocks: whoever calls it decides on which thread. Inputs are
  C-ordered numpy arrays of the signature's types (BYTES as arrays of `bytes` objects); outputs come
  back the same way, rows in the order of the inputs' rows.
- No more `run`s are made at once than `lanes`. Where `inline` is true, a run that is known to be
  quick may be made on the event loop's thread.
- `wide`, where a runtime of several lanes has it, is a `run` with the processors of all lanes,
  made while there is no other: faster for who is alone, as lanes are for many.
- `example`, known after `load`, is one row that the model takes, for its warm-up; None where zeros
  or ones of the signature will do.
- `run` raises `RunFailed` for what went wrong in the engine, and an `InvalidRequest` where the
  values themselves are at fault (a class that a user's code refuses, say).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

from tiffin.types.tensors import Signature

Arrays = Mapping[str, "NDArray[Any]"]
Run = Callable[[Arrays, Sequence[str]], Arrays]


class TensorRuntime(Protocol):
    """A tensor model in this process. `lanes` is how many batches it computes at once."""

    lanes: int
    inline: bool
    wide: Run | None
    example: Arrays | None

    async def load(self) -> Signature:
        """Make the model ready; raises `LoadFailed`."""
        ...

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The named outputs of one batch."""
        ...

    async def close(self) -> None:
        """Give everything back; idempotent."""
        ...
