"""Tensors of the Open Inference Protocol: JSON and bytes mean the same, and all is checked."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tiffin.dialects.oip.arrays import (
    DTYPES,
    FLOATING,
    from_bf16,
    from_bytes,
    from_json,
    to_bf16,
    to_bytes,
    to_json,
)
from tiffin.errors import RunFailed, SchemaViolation

NUMBERS = [name for name in DTYPES if name != "BYTES"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def read(datatype: str, shape: list[int], data: Any) -> NDArray[Any]:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return from_json("input 'x'", datatype, shape, msgspec.Raw(text))


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, NDArray[Any]]:
    datatype = draw(st.sampled_from(NUMBERS))
    array: NDArray[Any] = draw(hnp.arrays(DTYPES[datatype], draw(SHAPES)))
    return datatype, array


@given(tensors())
def test_bytes_are_exact_both_ways(tensor: tuple[str, NDArray[Any]]) -> None:
    datatype, array = tensor
    again = from_bytes("x", datatype, list(array.shape), memoryview(to_bytes(datatype, array)))
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()
    assert again.shape == array.shape


@given(tensors())
def test_json_is_valid_and_exact_both_ways_or_refused_for_infinity(
    tensor: tuple[str, NDArray[Any]],
) -> None:
    datatype, array = tensor
    floats = from_bf16(array) if datatype == "BF16" else array
    try:
        told = to_json("y", datatype, array)
    except RunFailed:
        assert np.isinf(floats).any()
        return
    json.loads(told, parse_constant=lambda name: pytest.fail(f"{name} isn't JSON"))
    again = read(datatype, list(array.shape), told)
    if datatype in FLOATING:
        other = from_bf16(again) if datatype == "BF16" else again
        assert np.array_equal(floats, other, equal_nan=True)
    else:
        assert np.array_equal(array, again)


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(max_dims=3, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_nested_data_means_the_same_as_flat(array: NDArray[np.float32]) -> None:
    nested = read("FP32", list(array.shape), array.tolist())
    flat = read("FP32", list(array.shape), array.ravel().tolist())
    assert np.array_equal(nested, flat)


@given(st.lists(st.binary(max_size=9)))
def test_strings_of_bytes_are_exact_both_ways(items: list[bytes]) -> None:
    array = np.empty(len(items), object)
    array[:] = items
    again = from_bytes("x", "BYTES", [len(items)], memoryview(to_bytes("BYTES", array)))
    assert again.tolist() == items


def test_strings_are_utf_8_in_json() -> None:
    array = read("BYTES", [2], ["नमस्ते", ""])
    assert array.tolist() == ["नमस्ते".encode(), b""]
    assert json.loads(to_json("y", "BYTES", array)) == ["नमस्ते", ""]
    with pytest.raises(RunFailed, match="binary_data"):
        to_json("y", "BYTES", np.array([b"\xff"], object))


@pytest.mark.parametrize("datatype", sorted(FLOATING))
def test_null_is_nan_and_nan_is_null(datatype: str) -> None:
    array = read(datatype, [2], [None, 1.5])
    assert to_json("y", datatype, array) == b"[null,1.5]"


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        pytest.param("FP32", [3], [1, 2], "takes 3 values, not 2", id="too few"),
        pytest.param("FP32", [2], [1, "a"], r"got `str` at data\[1\]", id="text in floats"),
        pytest.param("FP32", [1], [1e39], "< 3.40", id="over FP32"),
        pytest.param("FP16", [1], [65520], "< 65520", id="over FP16"),
        pytest.param("BF16", [1], [3.4e38], "< 3.39", id="over BF16"),
        pytest.param("FP64", [1], b"[1e999]", "out of range", id="over FP64"),
        pytest.param("FP32", [1], b"[NaN]", "can't be read", id="NaN isn't JSON"),
        pytest.param("INT8", [1], [128], "<= 127", id="over INT8"),
        pytest.param("UINT8", [1], [-1], ">= 0", id="below UINT8"),
        pytest.param("INT64", [1], [2**63], "range of INT64", id="over INT64"),
        pytest.param("UINT64", [1], [2**64], "range of UINT64", id="over UINT64"),
        pytest.param("UINT64", [1], [-1], ">= 0", id="below UINT64"),
        pytest.param("INT32", [1], [1.5], "got `float`", id="a fraction"),
        pytest.param("INT32", [1], [None], "got `null`", id="null in whole numbers"),
        pytest.param("BOOL", [1], [1], "got `int`", id="a number for a truth"),
        pytest.param("BYTES", [1], [1], "got `int`", id="a number for text"),
        pytest.param("FP32", [2, 2], [[1, 2], [3]], "differ in length", id="ragged"),
        pytest.param("FP32", [4], [[1, 2], [3, 4]], r"its data has \[2, 2\]", id="other nesting"),
        pytest.param("FP32", [1], {"a": 1}, "must be a list", id="no list"),
        pytest.param("FP32", [1], b"[" * 40 + b"1" + b"]" * 40, "deep", id="too deep"),
        pytest.param("FP32", [1], b"[" * 100_000, "deep", id="much too deep"),
    ],
)
def test_wrong_json_is_refused_with_what_was_expected_and_given(
    datatype: str, shape: list[int], data: Any, told: str
) -> None:
    with pytest.raises(SchemaViolation, match=told) as refusal:
        read(datatype, shape, data)
    assert "input 'x'" in refusal.value.message or "deep" in told


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        pytest.param("FP32", [2], b"1234", "takes 8 bytes of binary data, not 4", id="short"),
        pytest.param("BOOL", [1], b"\x02", "0 or 1", id="no truth"),
        pytest.param("BYTES", [2], b"\x01\0\0\0a", "end before", id="an element missing"),
        pytest.param("BYTES", [1], b"\x05\0\0\0a", "end before", id="cut"),
        pytest.param("BYTES", [1], b"\x01\0\0\0abc", "2 bytes after", id="left over"),
        pytest.param("BYTES", [2**40], b"", "end before", id="a shape to fill the memory"),
    ],
)
def test_wrong_bytes_are_refused(datatype: str, shape: list[int], data: bytes, told: str) -> None:
    with pytest.raises(SchemaViolation, match=told):
        from_bytes("input 'x'", datatype, shape, memoryview(data))


def test_bytes_at_an_odd_place_are_aligned() -> None:
    body = b"x" + np.arange(3, dtype=np.float64).tobytes()
    array = from_bytes("x", "FP64", [3], memoryview(body)[1:])
    assert array.flags.aligned
    assert array.tolist() == [0, 1, 2]


@given(st.floats(-(2.0**120), 2.0**120, width=32))
def test_bf16_rounds_to_the_nearest(value: float) -> None:
    bits = to_bf16(np.array([value], np.float32))
    near = abs(float(from_bf16(bits)[0]) - value)
    neighbours = from_bf16(np.add(bits, [[-1], [1]], dtype=np.int64).astype(np.uint16))
    assert not (np.abs(neighbours.astype(np.float64) - value) < near).any()
