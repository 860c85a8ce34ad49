"""Requests for tensors as the gateway reads them: refused by name, or passed on as they came."""

import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.dialect import Told
from tiffin.dialects.oip.dialect import InferAsked, InferDialect
from tiffin.dialects.oip.paths import path_of, place_of
from tiffin.errors import (
    ConfigInvalid,
    InvalidRequest,
    MalformedBody,
    SchemaViolation,
    TiffinError,
    UnknownParameter,
    UnsupportedParameter,
    UpstreamFailed,
    every_error,
)
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

DIGEST = "0123456789abcdef" * 4
PATH = b"/v2/models/fraud/infer"
TARGET = Target(model="fraud", revision=f"sha256:{DIGEST}", kind="onnx", protocol="oip")
REMOTE = Target(
    model="fraud", revision=f"sha256:{DIGEST}", kind="remote", protocol="oip", upstream_model="a b"
)
X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1.0, 2.0], [3.0, 4.0]]}


def plan(*targets: Target) -> Plan:
    return Plan(name="fraud", identity="", targets=targets or (TARGET,))


def read(body: Any, path: bytes = PATH, **headers: str) -> InferAsked:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return InferDialect().read(FakeExchange(b"POST", path, headers=given), text)


def checked(body: Any, **headers: str) -> InferAsked:
    asked = read(body, PATH, **headers)
    asked.check(plan())
    return asked


def binary(*tensors: dict[str, Any], tail: bytes = b"", **more: Any) -> InferAsked:
    header = json.dumps({"inputs": tensors, **more}).encode()
    return checked(header + tail, inference_header_content_length=str(len(header)))


def sized(size: int, **more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "shape": [2], "datatype": "FP32"}
    return {**tensor, "parameters": {"binary_data_size": size}, **more}


def test_a_request_is_passed_on_as_it_came() -> None:
    body = json.dumps({"id": "7", "inputs": [X], "outputs": [{"name": "y"}]}).encode()
    asked = checked(body)
    path, content, sent = asked.forward(TARGET)
    assert (asked.model, asked.operation, asked.rows) == ("fraud", "infer", 2)
    assert (path, content) == (PATH, b"content-type: application/json\r\n")
    assert sent is body


def test_another_server_is_asked_by_its_own_name_for_the_model() -> None:
    assert checked({"inputs": [X]}).forward(REMOTE).path == b"/v2/models/a%20b/infer"


def test_binary_data_is_passed_on_with_the_length_of_its_header() -> None:
    asked = binary(sized(8), tail=struct.pack("<2f", 1, 2))
    _, content, sent = asked.forward(TARGET)
    length = sent.index(b"}]}") + 3
    assert f"inference-header-content-length: {length}\r\n".encode() in content
    assert b"content-type: application/octet-stream\r\n" in content


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    body = json.dumps({"inputs": [{**X, "shape": [2.0, 2e0]}]}).encode()
    asked = checked(body)
    assert asked.request.inputs[0].shape == [2, 2]
    assert asked.forward(TARGET).body is body
    twice = b'{"inputs":[{"name":"x","name":"x","shape":[1.0],"datatype":"FP32","data":[1]}]}'
    with pytest.raises(MalformedBody, match="given twice"):
        read(twice)
    for word in (b"NaN", b"Infinity", b"-Infinity"):  # not even beside one that is read again
        odd = b'{"inputs":[{"name":"x","shape":[1.0],"datatype":"FP32","data":[%b]}]}' % word
        with pytest.raises(MalformedBody, match="isn't JSON"):
            read(odd)
    for shape in ("[1.5]", "[1e999]", "[-1.0]", "[NaN]"):
        with pytest.raises(TiffinError):
            read(b'{"inputs":[{"name":"x","shape":%b,"datatype":"FP32"}]}' % shape.encode())


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (b"/v2/models/m", ("m", "", "")),
        (b"/v2/models/m/infer", ("m", "", "infer")),
        (b"/v2/models/m/versions/01234567/ready", ("m", "01234567", "ready")),
        (b"/v2/models/a%20b", ("a b", "", "")),
        (b"/v2/models/", None),
        (b"/v2/models//infer", None),
        (b"/v2/models/m/versions//infer", None),
        (b"/v2/models/m/infer/more", None),
    ],
)
def test_what_a_path_names(path: bytes, place: tuple[str, str, str] | None) -> None:
    assert place_of(path) == place


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_path_is_read_as_it_was_written(model: str) -> None:
    assert place_of(path_of(model, "infer")) == (model, "", "infer")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (b"", MalformedBody, ["JSON"]),
        (b'{"inputs":[', MalformedBody, ["JSON"]),
        (b"[1]", SchemaViolation, ["the body", "expected an object", "given a list"]),
        (b"\xff", MalformedBody, ["JSON"]),
        ({"inputs": []}, SchemaViolation, ["inputs", "at least one"]),
        ({"input": [X]}, UnknownParameter, ["input"]),
        ({}, SchemaViolation, ["inputs"]),
        ({"inputs": {}}, SchemaViolation, ["inputs", "a list", "given {}"]),
        (
            {"inputs": [{**X, "datatype": "FLOAT"}]},
            SchemaViolation,
            ["inputs[0].datatype", "('x')", "FP32", "given 'FLOAT'"],
        ),
        (
            {"inputs": [{**X, "shape": [2, -1]}]},
            SchemaViolation,
            ["inputs[0].shape", "('x')", "at least 0", "given -1"],
        ),
        (
            {"inputs": [{**X, "shape": "2"}]},
            SchemaViolation,
            ["inputs[0].shape", "a list", "given '2'"],
        ),
        (
            {"inputs": [{**X, "data": 1}]},
            SchemaViolation,
            ["inputs[0].data", "'x'", "a list"],
        ),
        (
            {"inputs": [X, {**X, "shape": [2, 2], "data": [1, 2, 3, 4]}]},
            SchemaViolation,
            ["inputs", "once", "'x' twice"],
        ),
        (
            {"inputs": [X], "outputs": [{"name": "y"}, {"name": "y"}]},
            SchemaViolation,
            ["outputs", "'y' twice"],
        ),
        (
            {"inputs": [{**X, "shape": [1000, 1000]}]},
            SchemaViolation,
            ["inputs[0] ('x').shape", "1000000 elements", "bytes"],
        ),
        (
            {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32"}]},
            SchemaViolation,
            ["inputs[0] ('x')", "data or a binary_data_size", "neither"],
        ),
        (
            {"inputs": [sized(8)]},
            SchemaViolation,
            ["'x'", "Inference-Header-Content-Length", "none"],
        ),
        ({"inputs": [sized(-1)]}, SchemaViolation, ["'x'", "binary_data_size", "-1"]),
        (
            {"inputs": [{**X, "parameters": {"shared_memory_region": "r"}}]},
            UnsupportedParameter,
            ["shared_memory_region", "'x'"],
        ),
        (
            {"inputs": [X], "outputs": [{"name": "y", "parameters": {"shared_memory_offset": 1}}]},
            UnsupportedParameter,
            ["shared_memory_offset"],
        ),
        (
            {"inputs": [X], "parameters": {"binary_data_output": "true"}},
            SchemaViolation,
            ["parameters.binary_data_output", "true or false", "'true'"],
        ),
        (
            {"inputs": [X], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
            SchemaViolation,
            ["outputs[0].parameters.binary_data", "true or false", "given 1"],
        ),
        (
            {"inputs": [{**X, "parameters": {"content_type": None}}]},
            SchemaViolation,
            ["'x'", "content_type", "a string", "null"],
        ),
        (
            {"inputs": [X], "parameters": {"priority": True}},
            SchemaViolation,
            ["parameters.priority", "an integer", "true"],
        ),
        (
            {"inputs": [{**X, "name": str(at)} for at in range(257)]},
            SchemaViolation,
            ["inputs", "at most 256", "257"],
        ),
    ],
)
def test_a_bad_request_is_told_what_was_expected_and_what_given(
    body: Any, error: type[TiffinError], words: list[str]
) -> None:
    with pytest.raises(error) as raised:
        checked(body)
    said = json.loads(InferDialect().error(raised.value)[2])["error"]
    assert not [word for word in words if word not in said], said


def test_parts_that_do_not_add_up_to_the_body_are_refused() -> None:
    with pytest.raises(TiffinError, match=r"expected 8 bytes after the header.*given 7"):
        binary(sized(8), tail=b"\0" * 7)
    with pytest.raises(TiffinError, match=r"expected 8 bytes of FP32 by the shape.*given 4"):
        binary(sized(4), tail=b"\0" * 4)
    with pytest.raises(TiffinError, match="given both"):
        binary({**X, "parameters": {"binary_data_size": 16}}, tail=b"\0" * 16)
    with pytest.raises(TiffinError, match="Content-Length is '99999'"):
        checked({"inputs": [X]}, inference_header_content_length="99999")
    with pytest.raises(UnsupportedParameter, match="content-encoding"):
        checked({"inputs": [X]}, content_encoding="gzip")


TENSOR = '{"name":"x","shape":[1],"datatype":"FP32","data":[1]'


@pytest.mark.parametrize(
    "body",
    [
        f'{{"inputs":[{TENSOR}}}],"inputs":[{TENSOR}}}]}}',
        f'{{"id":"a","id":"b","inputs":[{TENSOR}}}]}}',
        f'{{"inputs":[{TENSOR},"data":[2]}}]}}',
        f'{{"inputs":[{TENSOR},"sh\\u0061pe":[1]}}]}}',
        f'{{"inputs":[{TENSOR},"parameters":{{"a":1,"a":2}}}}]}}',
        f'{{"inputs":[{TENSOR}}}],"outputs":[{{"name":"y","name":"y"}}]}}',
        f'{{"inputs":[{TENSOR}}}],"parameters":{{"a\\u003a":1,"a:":2}},"id":""}}',
    ],
)
def test_a_key_that_is_given_twice_is_refused(body: str) -> None:
    with pytest.raises(MalformedBody, match="given twice"):
        read(body.encode())


def test_a_large_duplicate_is_refused_without_being_read_again() -> None:
    numbers = b"1," * 200_000 + b"1"
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[%b],"data":[1]}]}'
    with pytest.raises(MalformedBody, match="a key twice"):
        read(body % numbers)


NAMES = st.text(min_size=1, max_size=4)
PARAMETERS = st.dictionaries(
    NAMES.filter(lambda name: name not in ("binary_data_size",)),
    st.one_of(st.text(max_size=5), st.booleans(), st.integers(-5, 5)),
    max_size=2,
)


@given(
    st.fixed_dictionaries(
        {
            "inputs": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": NAMES,
                        "shape": st.just([2]),
                        "datatype": st.just("BYTES"),
                        "data": st.lists(st.text(max_size=5), min_size=2, max_size=2),
                    },
                    optional={"parameters": PARAMETERS},
                ),
                min_size=1,
                max_size=3,
            )
        },
        optional={
            "id": st.text(max_size=5),
            "parameters": PARAMETERS,
            "outputs": st.lists(
                st.fixed_dictionaries({"name": NAMES}, optional={"parameters": PARAMETERS}),
                max_size=2,
            ),
        },
    ),
    st.booleans(),
)
def test_no_request_is_taken_for_one_with_a_key_twice(body: dict[str, Any], escaped: bool) -> None:
    read(json.dumps(body, ensure_ascii=escaped).encode())


def test_a_version_is_asked_for_by_the_name_that_it_has_everywhere() -> None:
    asked = read({"inputs": [X]}, path=b"/v2/models/fraud/versions/new/infer")
    assert asked.model == "fraud@new"


def test_a_guard_sees_every_string() -> None:
    words = "".join(("\x03\0\0\0one", "\x02\0\0\0tw")).encode() + b"\x01\0\0\0\xff"
    asked = binary(
        X | {"parameters": {"note": "n"}},
        {"name": "t", "shape": [2], "datatype": "BYTES", "data": [["a", "b"]]},
        sized(len(words), name="w", shape=[3], datatype="BYTES"),
        tail=words,
        id="me",
    )
    pieces = dict(asked.pieces())
    assert pieces["id"] == "me"
    assert pieces["inputs[0].data"] is None  # numbers can't be looked into
    assert pieces["inputs[0].parameters.note"] == "n"
    assert [pieces[f"inputs[1].data[{at}]"] for at in range(2)] == ["a", "b"]
    assert [pieces[f"inputs[2].data[{at}]"] for at in range(3)] == ["one", "tw", None]


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    half = rb'["a","\ud800"]'
    with pytest.raises(MalformedBody):
        read(b'{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":%b}]}' % half)


WHOLE = json.dumps(
    {"id": "i", "inputs": [X, sized(8, name="b")], "outputs": [{"name": "y"}], "parameters": {}}
).encode()


@given(
    st.integers(0, len(WHOLE)),
    st.integers(0, 8),
    st.one_of(st.binary(max_size=6), st.sampled_from([b'{"a":1}', b"[[", b'"', b"1e99", b"null"])),
    st.integers(-2, 2),
)
def test_no_bytes_break_it(at: int, cut: int, put: bytes, off: int) -> None:
    header = WHOLE[:at] + put + WHOLE[at + cut :]
    length = str(len(header) + off)
    with suppress(InvalidRequest):
        asked = checked(header + b"\0" * 8, inference_header_content_length=length)
        list(asked.pieces())
        asked.canonical()


ANSWER = {
    "model_name": "m",
    "outputs": [{"name": "y", "shape": [2], "datatype": "BYTES", "data": ["up", "down"]}],
}


def test_an_answer_is_passed_on_with_what_says_where_its_header_ends() -> None:
    asked = checked({"inputs": [X]})
    body = json.dumps(ANSWER).encode()
    plain = asked.whole(Told(body, b"application/json"), TARGET)
    assert plain.headers == [(b"content-type", b"application/json")]
    assert plain.usage == Usage(rows=2, measured=False)
    assert asked.answer_text(body) == "up\ndown"
    word = Usage(rows=2, device_ns=5)
    told = asked.whole(Told(body + b"1234", b"x/y", b"%d" % len(body), word), TARGET)
    assert told.headers == [
        (b"content-type", b"application/octet-stream"),
        (b"inference-header-content-length", b"%d" % len(body)),
    ]
    assert told.usage is word


def test_what_another_server_answers_must_be_an_answer() -> None:
    asked = checked({"inputs": [X]})
    asked.whole(Told(json.dumps(ANSWER).encode(), b"application/json"), REMOTE)
    for body in (b"", b"<html>", b"{}", b'{"model_name":"m"}'):
        with pytest.raises(UpstreamFailed, match="Open Inference Protocol"):
            asked.whole(Told(body, b"text/html"), REMOTE)
    with pytest.raises(UpstreamFailed):
        asked.whole(Told(b"{}", b"", b"9"), REMOTE)


def test_the_strings_of_a_binary_answer_are_seen() -> None:
    asked = checked({"inputs": [X]})
    outputs = [
        {"name": "n", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
        {"name": "y", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 7}},
    ]
    header = json.dumps({"model_name": "m", "outputs": outputs}).encode()
    body = header + b"\0\0\0\0" + b"\x03\0\0\0yes"
    asked.whole(Told(body, b"", b"%d" % len(header)), TARGET)
    assert asked.answer_text(body) == "yes"


def test_every_error_has_the_protocols_shape() -> None:
    for cls in (cls for cls in every_error() if cls is not ConfigInvalid):
        status, headers, body = InferDialect().error(cls("what happened", param="inputs"))
        assert status >= 400
        assert dict(headers)[b"content-type"] == b"application/json"
        assert json.loads(body) == {"error": "inputs: what happened"}


def test_objects_are_counted_before_any_is_built() -> None:
    with pytest.raises(MalformedBody, match="more than 2000 objects"):
        read(b'{"inputs":[' + b",".join([b"{}"] * 3000) + b"]}")
    braces = json.dumps(["{" * 3000])
    read(f'{{"inputs":[{{"name":"x","shape":[1],"datatype":"BYTES","data":{braces}}}]}}'.encode())


def test_a_timeout_is_microseconds_as_triton_has_it() -> None:
    assert checked({"inputs": [X]}).timeout_s == 0
    assert checked({"inputs": [X], "parameters": {"timeout": 1_500_000}}).timeout_s == 1.5
    for wrong in (-1, True, "soon", 1.5, 10**12):
        with pytest.raises(InvalidRequest, match="timeout"):
            checked({"inputs": [X], "parameters": {"timeout": wrong}})
