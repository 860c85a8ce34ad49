"""From a converted classifier or regressor to what is served: compared, with its decision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.onnx_graph import GRAPH, decision_for
from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import Rows, Sample
from tiffin.adapters.importers.session import Session
from tiffin.adapters.importers.tidy import free_rows, tidied
from tiffin.adapters.importers.verdict import agree
from tiffin.config.models import Decision
from tiffin.errors import ConfigInvalid

INPUT = "input"
MEDIANS_OF_NOTHING = (
    "the reference values for reasons are medians of made-up rows; --sample gives them a meaning"
)


@dataclass(frozen=True, slots=True)
class Original:
    """The model as it was: what it is, what it answers, and the names of its classes.

    `answer` gives the output named `output` for rows: probabilities of shape N by classes, values
    of shape N or N by 1, or labels; an empty name means the graph's first output.
    """

    what: str
    output: str
    answer: Callable[[Rows], NDArray[Any]]
    classes: Sequence[str] = ()


def converted(
    order: Order, model: Any, original: Original, sample: Sample, notes: Sequence[str] = ()
) -> Imported:
    """The graph in the scratch folder, if it answers as the original does; else `ArtifactError`."""
    tidied(model)
    free_rows(model)
    path = order.scratch / GRAPH
    path.write_bytes(model.SerializeToString())
    session = Session(path)
    said = [*notes, "it was converted to ONNX"]
    output = original.output or session.signature.outputs[0].name
    got = session.run({INPUT: sample.rows})[output]
    said.append(agree(got, original.answer(sample.rows), _plural(output), sample.words))
    decision = _decision(order, original, sample, session)
    if decision and sample.made and not order.sample:
        said.append(MEDIANS_OF_NOTHING)
    return Imported(
        runtime="onnx",
        what=original.what,
        files={GRAPH: path},
        decision=decision,
        notes=tuple(said),
        signature=session.signature,
        example={INPUT: _whole(sample)},
    )


def _plural(output: str) -> str:
    return {"label": "labels", "variable": "values"}.get(output, output)


def _whole(sample: Sample) -> Rows:
    """A row without gaps, where there is one, for people to look at."""
    whole = np.flatnonzero(np.isfinite(sample.rows).all(axis=1))
    at = int(whole[0]) if len(whole) else 0
    return sample.rows[at : at + 1]


def _decision(
    order: Order, original: Original, sample: Sample, session: Session
) -> Decision | None:
    """Two classes always have one; everything else where the owner gave a threshold."""
    binary = len(original.classes) == 2 and original.output == "probabilities"
    if not binary and not order.says_decision:
        return None
    if original.output == "label" and order.says_decision:
        raise ConfigInvalid("the model gives labels and no scores", where="--threshold")
    found = decision_for(order, sample, session.signature)
    if binary and not order.labels:
        first, second = original.classes
        return Decision(
            output=found.output,
            column=found.column,
            threshold=found.threshold,
            labels=(first, second),
            features=found.features,
            reference=found.reference,
        )
    return found
