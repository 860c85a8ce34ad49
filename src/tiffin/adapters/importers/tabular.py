"""From a converted classifier or regressor to what is served: compared, with its decision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tiffin.adapters.importers.onnx_graph import GRAPH, decision_for
from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import Table
from tiffin.adapters.importers.session import Arrays, Session
from tiffin.adapters.importers.tidy import free_rows, tidied
from tiffin.adapters.importers.verdict import agree
from tiffin.config.models import Decision
from tiffin.errors import ArtifactError, ConfigInvalid

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
    answer: Callable[[NDArray[Any]], NDArray[Any]]
    classes: Sequence[str] = ()


def converted(
    order: Order, model: Any, original: Original, sample: Table, notes: Sequence[str] = ()
) -> Imported:
    """The graph in the scratch folder, if it answers as the original does; else `ArtifactError`."""
    tidied(model)
    free_rows(model)
    path = order.scratch / GRAPH
    path.write_bytes(model.SerializeToString())
    session = Session(path)
    said = [*notes, "it was converted to ONNX"]
    output = original.output or session.signature.outputs[0].name
    got = _run(session, sample)[output]
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
        example=sample.example(),
    )


def _run(session: Session, sample: Table) -> Arrays:
    try:
        return session.run(sample.inputs())
    except ArtifactError as cause:
        if not sample.made:
            raise
        raise ArtifactError(f"{cause.message}; give it real rows by --sample") from cause


def _plural(output: str) -> str:
    return {"label": "labels", "variable": "values"}.get(output, output)


def _decision(order: Order, original: Original, sample: Table, session: Session) -> Decision | None:
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
