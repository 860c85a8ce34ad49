"""ONNX files: checked, tidied where need be, made one file, and run once."""

from pathlib import Path

import numpy as np

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.sample import Sample, Table, sample_for
from tiffin.adapters.importers.session import Arrays, Session, example_of
from tiffin.adapters.importers.tidy import tidied
from tiffin.config.models import Decision
from tiffin.errors import ArtifactError, ConfigInvalid
from tiffin.types.tensors import ANY, Signature, TensorSpec

GRAPH = "model.onnx"
LARGEST_BYTES = 2_000_000_000
ALONE = 1e-4


def bring(order: Order) -> Imported:
    """The graph as it is, or without what can't be served; raises `ArtifactError`."""
    path, notes = _in_one_file(order.path, order.scratch)
    session = Session(path)
    signature = session.signature
    table = _table(signature)
    if table is None:
        if order.sample or order.says_decision:
            raise ConfigInvalid(
                "a sample and a decision need one input of FP32 rows (N by features); this model"
                f" takes {_shown(signature)}",
                where="--sample" if order.sample else "--threshold",
            )
        example = example_of(signature)
        notes.append(_tried(session, example))
        return _imported(path, signature, example, notes, None)
    sample = sample_for(order, (), [(-1.0, 1.0)] * table.shape[1])
    example = {table.name: sample.rows[:1]}
    notes.append(_rows_tried(session, table.name, sample))
    decision = decision_for(order, sample, signature) if order.says_decision else None
    return _imported(path, signature, example, notes, decision)


def decision_for(order: Order, sample: Table, signature: Signature) -> Decision:
    """What the owner said of the score, with names and medians of the sample.

    Raises `ConfigInvalid` where the model has no output that could be a score.
    """
    output, width = _score(signature)
    if len(sample.features) not in (0, sample.rows.shape[1]):
        raise ConfigInvalid("one name for each input, please", where="--features")
    return Decision(
        output=output,
        column=min(1, width - 1),
        threshold=0.5 if order.threshold is None else order.threshold,
        labels=order.labels or ("0", "1"),
        features=list(sample.features),
        reference=sample.reference(),
    )


def _score(signature: Signature) -> tuple[str, int]:
    """The output that holds scores and how many columns it has."""
    found = [spec for spec in signature.outputs if spec.datatype in ("FP32", "FP64")]
    if len(found) != 1 or len(found[0].shape) > 2:
        raise ConfigInvalid(
            "a decision needs exactly one output of scores; this model gives "
            + ", ".join(f"{spec.name} ({spec.datatype})" for spec in signature.outputs),
            where="--threshold",
        )
    width = found[0].shape[1] if len(found[0].shape) == 2 else 1
    if width > 2:
        raise ConfigInvalid(
            f"a decision is between two labels; {found[0].name} has {width} columns",
            where="--threshold",
        )
    return found[0].name, 1 if width == ANY else width


def _in_one_file(path: Path, scratch: Path) -> tuple[Path, list[str]]:
    """The graph with its weights inside; itself where nothing has to be changed."""
    try:
        import onnx
    except ImportError:
        return path, []  # onnxruntime's own check must do
    _refuse_large(path.stat().st_size, path)
    try:
        model = onnx.load(path, load_external_data=False)
        outside = any(one.external_data for one in model.graph.initializer)
        if outside:
            model = onnx.load(path)
        notes = tidied(model)
        if not outside and not notes:
            onnx.checker.check_model(str(path))
            return path, ["onnx's own checker finds nothing wrong"]
        if outside:
            notes.append("its weights, which lay in files beside it, are in it now")
        _refuse_large(model.ByteSize(), path)
        onnx.checker.check_model(model)
        made = scratch / GRAPH
        onnx.save(model, made)
    except ArtifactError:
        raise
    except Exception as cause:
        reason = " ".join(str(cause).split())[:300]
        raise ArtifactError(f"{path} is no valid ONNX model: {reason}") from cause
    return made, notes


def _refuse_large(size: int, path: Path) -> None:
    if not 0 <= size < LARGEST_BYTES:
        raise ArtifactError(
            f"{path} has more than {LARGEST_BYTES // 10**9} GB with its weights, which one ONNX"
            " file can't hold"
        )


def _table(signature: Signature) -> TensorSpec | None:
    """The one input of rows by features, where the model is a tabular one."""
    if len(signature.inputs) != 1:
        return None
    [spec] = signature.inputs
    rows = spec.datatype == "FP32" and len(spec.shape) == 2
    return spec if rows and spec.shape[0] == ANY and spec.shape[1] > 0 else None


def _tried(session: Session, example: Arrays) -> str:
    if len(example) < len(session.signature.inputs):
        return "it loads; it wasn't run, since numpy has no BF16"
    try:
        session.run(example)
    except ArtifactError as failure:
        return f"it loads, and fails on zeros, which may be right for it: {failure.message}"
    return "it loads, and runs on zeros"


def _rows_tried(session: Session, name: str, sample: Sample) -> str:
    together = session.run({name: sample.rows})
    alone = session.run({name: sample.rows[:1]})
    for output, value in together.items():
        if value.dtype.kind != "f":
            continue
        if not sample.made and not np.isfinite(value).all():
            raise ArtifactError(f"the output {output} has NaN or infinity for rows of the sample")
        if value.shape[:1] != (len(sample.rows),):
            raise ArtifactError(
                f"{len(sample.rows)} rows give {output} of shape {value.shape}: the first"
                " dimension must count rows"
            )
        gap = np.abs(value[:1] - alone[output]).max(initial=0.0)
        if gap > ALONE:
            raise ArtifactError(
                f"{output} of a row alone differs from it among others by {gap:.3g}"
            )
    return f"it runs on {sample.words}, together as alone"


def _imported(
    path: Path,
    signature: Signature,
    example: Arrays,
    notes: list[str],
    decision: Decision | None,
) -> Imported:
    return Imported(
        runtime="onnx",
        what=f"an ONNX graph that takes {_shown(signature)}",
        files={GRAPH: path},
        decision=decision,
        notes=tuple(notes),
        signature=signature,
        example=example,
    )


def _shown(signature: Signature) -> str:
    return ", ".join(
        f"{spec.name} {spec.datatype}[{','.join('?' if n == ANY else str(n) for n in spec.shape)}]"
        for spec in signature.inputs
    )
