"""Requests over gRPC as requests over HTTP, and answers back."""

import struct
from math import isnan
from typing import Any

import msgspec
import pytest

from tiffin.dialects.oip.dialect import InferAsked
from tiffin.dialects.oip.grpc_codes import number_of
from tiffin.dialects.oip.protobuf_infer import choices, error_of, plain, reply_of, spelled
from tiffin.dialects.oip.protobuf_messages import (
    Choice,
    Contents,
    InferCall,
    SwitchChoice,
    Tensor,
    WantedOutput,
)
from tiffin.errors import InvalidRequest, UpstreamFailed, every_error
from tiffin.types.snapshot import Plan, Target


def header_of(call: InferCall) -> Any:
    request = spelled(call)
    return msgspec.json.decode(request.body[: request.header_length])


def one(datatype: str, **contents: Any) -> InferCall:
    return InferCall("m", inputs=[Tensor("x", datatype, [2], {}, Contents(**contents))])


def bytes_of(call: InferCall) -> bytes:
    request = spelled(call)
    return request.body[request.header_length :]


def test_a_request_is_the_binary_form() -> None:
    call = InferCall(
        "a model",
        "0123456789ab",
        "7",
        {"priority": Choice(uint64_param=2**63)},
        [Tensor("x", "FP32", [1, 2], {"p": Choice(string_param="v")}), Tensor("y", "BOOL", [1])],
        [WantedOutput("z")],
        [b"12345678", b"\x01"],
    )
    request = spelled(call)
    assert request.path == b"/v2/models/a%20model/versions/0123456789ab/infer"
    assert request.body[request.header_length :] == b"12345678\x01"
    assert header_of(call) == {
        "id": "7",
        "parameters": {"priority": 2**63, "binary_data_output": True},
        "inputs": [
            {
                "name": "x",
                "shape": [1, 2],
                "datatype": "FP32",
                "parameters": {"p": "v", "binary_data_size": 8},
            },
            {
                "name": "y",
                "shape": [1],
                "datatype": "BOOL",
                "parameters": {"binary_data_size": 1},
            },
        ],
        "outputs": [{"name": "z", "parameters": {"binary_data": True}}],
    }
    asked = InferAsked("a model", request.body, b"%d" % request.header_length)
    target = Target(model="m", revision="sha256:" + "0" * 64, kind="onnx", protocol="oip")
    asked.check(Plan(name="a model", identity="i", targets=(target,)))


@pytest.mark.parametrize(
    ("datatype", "contents", "expected"),
    [
        ("BOOL", {"bool_contents": [True, False]}, b"\x01\x00"),
        ("INT8", {"int_contents": [-1, 2]}, b"\xff\x02"),
        ("INT16", {"int_contents": [-1, 2]}, struct.pack("<2h", -1, 2)),
        ("INT32", {"int_contents": [-1, 2]}, struct.pack("<2i", -1, 2)),
        ("INT64", {"int64_contents": [-1, 2]}, struct.pack("<2q", -1, 2)),
        ("UINT8", {"uint_contents": [255, 2]}, b"\xff\x02"),
        ("UINT16", {"uint_contents": [1, 2]}, struct.pack("<2H", 1, 2)),
        ("UINT32", {"uint_contents": [1, 2]}, struct.pack("<2I", 1, 2)),
        ("UINT64", {"uint64_contents": [1, 2]}, struct.pack("<2Q", 1, 2)),
        ("FP32", {"fp32_contents": b"12345678"}, b"12345678"),
        ("FP64", {"fp64_contents": b"12345678"}, b"12345678"),
        ("BYTES", {"bytes_contents": [b"a", b""]}, b"\x01\x00\x00\x00a\x00\x00\x00\x00"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contents_become_bytes(datatype: str, contents: Any, expected: bytes) -> None:
    assert bytes_of(one(datatype, **contents)) == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (one("INT8", int_contents=[300]), "INT8"),
        (one("FP32", int_contents=[1]), "fp32_contents"),
        (one("FP16", fp32_contents=b"1234"), "raw_input_contents"),
        (one("FP32", fp32_contents=b"1234", int_contents=[1]), "and"),
        (InferCall("m", inputs=[Tensor("x")], raw_input_contents=[b"", b""]), "each of the 1"),
        (
            InferCall(
                "m",
                inputs=[Tensor("x", "BOOL", [1], {}, Contents(bool_contents=[True]))],
                raw_input_contents=[b"\x01"],
            ),
            "both",
        ),
    ],
    ids=["range", "field", "no field", "two fields", "count", "both places"],
)
def test_what_cannot_be_said_is_refused(call: InferCall, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        spelled(call)


def test_an_answer_in_bytes() -> None:
    head = msgspec.json.encode(
        {
            "model_name": "m",
            "model_version": "v",
            "id": "7",
            "parameters": {"a": 1.5, "b": None},
            "outputs": [
                {
                    "name": "y",
                    "datatype": "FP32",
                    "shape": [1],
                    "parameters": {"binary_data_size": 4},
                },
                {
                    "name": "z",
                    "datatype": "BOOL",
                    "shape": [0],
                    "parameters": {"binary_data_size": 0},
                },
            ],
        }
    )
    reply = reply_of(head + b"1234", b"%d" % len(head))
    assert (reply.model_name, reply.model_version, reply.id) == ("m", "v", "7")
    assert reply.parameters == {"a": Choice(double_param=1.5)}
    assert [(one.name, one.datatype, one.shape, one.parameters) for one in reply.outputs] == [
        ("y", "FP32", [1], {}),
        ("z", "BOOL", [0], {}),
    ]
    assert reply.raw_output_contents == [b"1234", b""]


def answer(datatype: str, data: Any) -> bytes:
    output = {"name": "y", "datatype": datatype, "shape": [2], "data": data}
    return msgspec.json.encode({"model_name": "m", "outputs": [output]})


def test_an_answer_in_json_becomes_bytes() -> None:
    def raw(datatype: str, data: Any) -> bytes:
        return reply_of(answer(datatype, data), None).raw_output_contents[0]

    assert raw("INT32", [[1], [-2]]) == struct.pack("<2i", 1, -2)
    assert raw("FP16", [0.5, 1]) == struct.pack("<2e", 0.5, 1)
    assert raw("BF16", [1.0, -2.0]) == b"\x80\x3f\x00\xc0"
    assert raw("BYTES", ["a", "é"]) == b"\x01\x00\x00\x00a\x02\x00\x00\x00\xc3\xa9"
    assert isnan(struct.unpack("<2d", raw("FP64", [None, 1.0]))[0])


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"{}", None),
        (b"nonsense", None),
        (b"\xff", None),
        (answer("INT8", [300]), None),
        (answer("NEW", [1]), None),
        (answer("INT8", ["a"]), None),
        (b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1]}]}', None),
        (
            b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],'
            b'"parameters":{"binary_data_size":9}}]}',
            b"101",
        ),
        (b"{}", b"9"),
    ],
)
def test_an_answer_that_is_none_is_the_upstreams_fault(body: bytes, length: bytes | None) -> None:
    with pytest.raises(UpstreamFailed):
        reply_of(body, length)


def test_parameters_both_ways() -> None:
    values: dict[str, Any] = {"a": True, "b": -1, "c": 2**63, "d": "x", "e": 0.5, "f": False}
    assert plain(choices(values)) == values
    assert plain({"file": SwitchChoice(bytes_param=b"abc"), "none": SwitchChoice()}) == {
        "file": 3,
        "none": None,
    }


def test_every_error_has_a_status() -> None:
    slugs = {error.slug for error in every_error()}
    assert {number_of(slug) for slug in slugs} <= set(range(3, 17))
    assert number_of("model_not_found") == 5
    assert number_of("overloaded") == 14
    assert number_of("payload_too_large") == 8
    assert number_of("nobody knows") == 13
    assert error_of(b'{"error":"words"}') == "words"
    assert error_of(b"nonsense") == "internal_error"
