"""A request bound to a signature: what fits, what is refused and how, what is answered."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.dialects.oip.binding import Binding, Bound
from tiffin.errors import InvalidRequest, SchemaViolation, UnknownParameter, UnsupportedParameter
from tiffin.types.tensors import DATATYPE_BYTES, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),
        TensorSpec(name="mask", datatype="INT64", shape=(-1, -1), optional=True),
    ),
    outputs=(
        TensorSpec(name="label", datatype="BYTES", shape=(-1,)),
        TensorSpec(name="p", datatype="FP32", shape=(-1, 2)),
    ),
    extra_outputs=(TensorSpec(name="score", datatype="FP32", shape=(-1,)),),
    batched=True,
)
X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
MASK = {"name": "mask", "shape": [1, 1], "datatype": "INT64", "data": [1]}
GIVEN = {
    "label": np.array([b"good"], object),
    "p": np.array([[0.25, 0.75]], np.float32),
    "score": np.array([0.75], np.float32),
}


def binding(**changed: Any) -> Binding:
    fields = {"inputs": SIGNATURE.inputs, "outputs": SIGNATURE.outputs, "batched": True}
    fields["extra_outputs"] = SIGNATURE.extra_outputs
    return Binding(Signature(**{**fields, **changed}), "0123456789ab")


def read(request: dict[str, Any], tail: bytes | None = None) -> Bound:
    header = json.dumps(request).encode()
    if tail is None:
        return binding().read(header, None)
    return binding().read(header + tail, b"%d" % len(header))


def test_a_request_becomes_the_arrays_of_the_signature() -> None:
    bound = read({"id": "42", "inputs": [X, MASK]})
    assert bound.inputs["x"].tolist() == [[1, 2]]
    assert bound.inputs["x"].dtype == np.float32
    assert bound.outputs == ("label", "p")
    assert (bound.rows, bound.id, bound.binary) == (1, "42", frozenset())


def test_an_optional_input_may_be_left_out() -> None:
    assert list(read({"inputs": [X]}).inputs) == ["x"]


def test_the_response_says_the_model_its_version_and_the_id() -> None:
    body, length = binding().write("fraud", read({"id": 'a"b', "inputs": [X]}), GIVEN)
    assert length == 0
    assert json.loads(body) == {
        "model_name": "fraud",
        "model_version": "0123456789ab",
        "id": 'a"b',
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["good"]},
            {"name": "p", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.75]},
        ],
    }


def test_named_outputs_come_in_their_order_extra_ones_among_them() -> None:
    bound = read({"inputs": [X], "outputs": [{"name": "score"}, {"name": "label"}]})
    body, _ = binding().write("m", bound, GIVEN)
    assert [output["name"] for output in json.loads(body)["outputs"]] == ["score", "label"]


def test_binary_inputs_lie_after_the_header_in_their_order() -> None:
    x, mask = np.array([[5, 6]], np.float32).tobytes(), np.array([[7]], np.int64).tobytes()
    bound = read(
        {
            "inputs": [
                {**{k: X[k] for k in ("name", "shape", "datatype")}, **size(len(x))},
                {**{k: MASK[k] for k in ("name", "shape", "datatype")}, **size(len(mask))},
            ]
        },
        x + mask,
    )
    assert bound.inputs["x"].tolist() == [[5, 6]]
    assert bound.inputs["mask"].tolist() == [[7]]


def size(count: int) -> dict[str, Any]:
    return {"parameters": {"binary_data_size": count}}


def test_binary_outputs_lie_after_the_header_in_their_order() -> None:
    bound = read({"inputs": [X], "parameters": {"binary_data_output": True}})
    body, length = binding().write("m", bound, GIVEN)
    header = json.loads(body[:length])
    sizes = [output["parameters"]["binary_data_size"] for output in header["outputs"]]
    assert sizes == [8, 8]
    assert body[length:] == b"\x04\0\0\0good" + GIVEN["p"].tobytes()


def test_each_output_may_say_for_itself_whether_it_is_binary() -> None:
    outputs = [{"name": "p", "parameters": {"binary_data": False}}, {"name": "score"}]
    parameters = {"binary_data_output": True}
    bound = read({"inputs": [X], "outputs": outputs, "parameters": parameters})
    assert bound.binary == {"score"}


@pytest.mark.parametrize(
    ("request_", "kind", "told"),
    [
        pytest.param({"inputs": []}, SchemaViolation, r"'x' is missing.*FP32 \[-1, 2\]", id="none"),
        pytest.param({"inputs": [X, X]}, SchemaViolation, "'x' is given twice", id="twice"),
        pytest.param(
            {"inputs": [X | {"name": "z"}]}, UnknownParameter, "takes: x, mask", id="another input"
        ),
        pytest.param(
            {"inputs": [X | {"datatype": "FP64"}]},
            SchemaViolation,
            r"'x' is FP64 \[1, 2\]; the model takes FP32 \[-1, 2\]",
            id="another datatype",
        ),
        pytest.param(
            {"inputs": [X | {"shape": [1, 3], "data": [1, 2, 3]}]},
            SchemaViolation,
            r"'x' is FP32 \[1, 3\]; the model takes FP32 \[-1, 2\]",
            id="another shape",
        ),
        pytest.param({"inputs": [X | {"shape": [2]}]}, SchemaViolation, "takes", id="another rank"),
        pytest.param(
            {"inputs": [X | {"shape": [0, 2], "data": []}]},
            SchemaViolation,
            "no rows",
            id="no rows",
        ),
        pytest.param(
            {"inputs": [X, MASK | {"shape": [2, 1], "data": [1, 1]}]},
            SchemaViolation,
            "1 in 'x', 2 in 'mask'",
            id="rows that differ",
        ),
        pytest.param(
            {"inputs": [{k: v for k, v in X.items() if k != "data"}]},
            SchemaViolation,
            "has no data",
            id="no data",
        ),
        pytest.param(
            {"inputs": [X], "outputs": [{"name": "q"}]},
            UnknownParameter,
            "gives: label, p, score",
            id="another output",
        ),
        pytest.param(
            {"inputs": [X], "outputs": [{"name": "p"}, {"name": "p"}]},
            SchemaViolation,
            "'p' is asked for twice",
            id="an output twice",
        ),
        pytest.param(
            {"inputs": [X], "parameters": {"sequence_id": 7}},
            UnsupportedParameter,
            "sequence_id",
            id="a sequence",
        ),
        pytest.param(
            {"inputs": [X], "outputs": [{"name": "p", "parameters": {"classification": 2}}]},
            UnsupportedParameter,
            "classification",
            id="classification",
        ),
    ],
)
def test_what_doesnt_fit_is_refused_by_name(
    request_: dict[str, Any], kind: type[InvalidRequest], told: str
) -> None:
    with pytest.raises(kind, match=told):
        read(request_)


@pytest.mark.parametrize(
    ("tail", "told", "given"),
    [
        pytest.param(b"1234", "says 8 bytes of binary data, and 4 are left", 8, id="short"),
        pytest.param(b"1" * 12, "4 bytes after the header belong to no input", 8, id="long"),
        pytest.param(b"1" * 8, "binary_data_size: expected an integer", "8", id="no number"),
        pytest.param(b"1" * 8, "binary_data_size: expected an integer", True, id="a truth"),
    ],
)
def test_binary_data_must_be_what_it_says(tail: bytes, told: str, given: object) -> None:
    x = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
    with pytest.raises(SchemaViolation, match=told):
        read({"inputs": [x | {"parameters": {"binary_data_size": given}}]}, tail)


def test_data_twice_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="data and binary data"):
        read({"inputs": [X | size(8)]}, b"1" * 8)


def test_what_clients_send_without_meaning_is_taken() -> None:
    harmless = {"sequence_id": 0, "sequence_start": False, "priority": 0, "timeout": 5}
    x = X | {"parameters": {"content_type": "np"}}
    assert read({"inputs": [x], "parameters": harmless}).rows == 1


def test_rows_arent_counted_where_they_mean_nothing() -> None:
    fixed = Binding(
        Signature(
            inputs=(TensorSpec(name="x", datatype="FP32", shape=(2,)),), outputs=SIGNATURE.outputs
        ),
        "0",
    )
    body = json.dumps({"inputs": [X | {"shape": [2]}]}).encode()
    assert fixed.read(body, None).rows == 1


ANY_SHAPE = Signature(
    inputs=tuple(
        TensorSpec(name=name, datatype=name, shape=(-1, -1, -1), optional=True)
        for name in DATATYPE_BYTES
    ),
    outputs=SIGNATURE.outputs,
)
SIZES = st.sampled_from([0, 1, 2, 3, 2**31, 2**40])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
DATA = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
TENSORS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(list(DATATYPE_BYTES)),
        "datatype": st.sampled_from(list(DATATYPE_BYTES)),
        "shape": st.lists(SIZES, min_size=3, max_size=3),
    },
    optional={
        "data": st.lists(DATA, max_size=4) | DATA,
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "x"]), st.integers(-1, 9) | st.text(max_size=1)
        ),
    },
)


@given(st.lists(TENSORS, max_size=2), st.binary(max_size=9), st.booleans())
@settings(max_examples=150)
def test_whatever_comes_is_read_or_refused(
    tensors: list[dict[str, Any]], tail: bytes, same: bool
) -> None:
    for tensor in tensors if same else ():
        tensor["datatype"] = tensor["name"]
    header = json.dumps({"inputs": tensors}).encode()
    try:
        bound = Binding(ANY_SHAPE, "0").read(header + tail, b"%d" % len(header))
    except InvalidRequest:
        return
    assert [list(a.shape) for a in bound.inputs.values()] == [t["shape"] for t in tensors]


@given(st.binary(max_size=60), st.none() | st.binary(max_size=4))
def test_whatever_bytes_come_are_refused(body: bytes, length: bytes | None) -> None:
    with pytest.raises(InvalidRequest):
        binding().read(body, length)


def test_a_shape_that_cant_be_is_refused_though_it_has_no_elements() -> None:
    tensor = {"name": "FP32", "datatype": "FP32", "shape": [0, 2**40, 2**40], "data": []}
    body = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(SchemaViolation, match="impossible shape"):
        Binding(ANY_SHAPE, "0").read(body, None)


@pytest.mark.parametrize("shape", [[], [1, 1], [1, 1, 1]])
def test_another_rank_is_refused_whatever_the_model_takes(shape: list[int]) -> None:
    one = (TensorSpec(name="x", datatype="FP32", shape=(-1,)),)
    body = json.dumps({"inputs": [X | {"shape": shape, "data": [1]}]}).encode()
    with pytest.raises(SchemaViolation, match=r"takes FP32 \[-1\]"):
        binding(inputs=one).read(body, None)
