"""Requests for vectors, and their answers."""

import base64
import struct
from typing import Any

import msgspec
import pytest

from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.embeddings import EmbeddingAsked, embeddings_reply, read_embedding
from tiffin.errors import InvalidRequest, RunFailed, UpstreamFailed
from tiffin.ports.guard import Piece
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

LOCAL = Target(model="there", revision="sha256:0", kind="onnx")
REMOTE = Target(model="m", revision="sha256:0", kind="remote", upstream_model="big")
PLAN = Plan(name="m", identity="1", targets=(LOCAL,))


def asked(**fields: Any) -> EmbeddingAsked:
    body = msgspec.json.encode({"model": "m", "input": "a", **fields})
    made = read_embedding(FakeExchange(b"POST", b"/v1/embeddings"), body)
    made.check(PLAN)
    return made


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@pytest.mark.parametrize(
    ("given", "param", "says"),
    [
        ("", "input", "at least 1"),
        ([], "input", "must not be empty"),
        (["a", ""], "input[1]", "at least 1"),
        ([[1], []], "input[1]", "must not be empty"),
        (["a", 1], "input", "all strings, all token ids"),
        ([[1], 2], "input", "all strings, all token ids"),
        ([-1], "input[0]", "at least 0"),
        ([1.5], "input[0]", "must be"),
        (["a"] * 2049, "input", "at most 2048"),
        (None, "input", "must be a string or an array"),
    ],
    ids=str,
)
def test_a_wrong_input_is_named(given: Any, param: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match="input") as caught:
        asked(input=given)
    assert caught.value.param == param
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"truncate": True}, "truncate"),
    ],
)
def test_a_wrong_parameter_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(**fields)
    assert caught.value.param == param


def test_a_target_gets_its_own_name_for_the_model() -> None:
    local, remote = asked().forward(LOCAL), asked().forward(REMOTE)
    assert (local.path, msgspec.json.decode(local.body)["model"]) == (b"/v1/embeddings", "there")
    assert (remote.path, msgspec.json.decode(remote.body)["model"]) == (b"/embeddings", "big")


def test_a_guard_sees_every_text_and_no_token_ids() -> None:
    assert Piece("input[1]", "b") in list(asked(input=["a", "b"]).pieces())
    assert Piece("user", "u") in list(asked(user="u").pieces())
    assert list(asked(input=[1, 2]).pieces()) == [Piece("input", None)]
    assert list(asked(input=[[1], [2]]).pieces()) == [Piece("input", None)]


def test_requests_that_mean_the_same_are_cached_as_one() -> None:
    assert asked(user="x").canonical() == asked(encoding_format="float").canonical()
    assert asked().canonical() != asked(encoding_format="base64").canonical()


def test_a_replicas_word_on_usage_is_taken() -> None:
    told = Told(b"whatever", b"application/json", usage=Usage(prompt_tokens=7))
    assert asked().whole(told, LOCAL).usage.prompt_tokens == 7


@pytest.mark.parametrize(
    ("tail", "tokens", "measured"),
    [
        (b',"usage":{"prompt_tokens":5,"total_tokens":5}', 5, True),
        (b',"usage":{"total_tokens":6}', 6, True),
        (b',"usage":{"prompt_tokens":-5}', 0, False),
        (b',"usage":null', 0, False),
        (b',"meta":{"tokens":{"input_tokens":8}}', 8, True),
        (b"", 0, False),
    ],
)
def test_an_upstreams_usage_is_read(tail: bytes, tokens: int, measured: bool) -> None:
    body = b'{"data":[{"embedding":[1]}]%b}' % tail
    whole = asked().whole(Told(body, b"application/json"), REMOTE)
    assert (whole.body, whole.usage.prompt_tokens) == (body, tokens)
    assert whole.usage.measured is measured


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":[]}', b'{"data":[1,2]}'])
def test_an_upstream_that_left_texts_out_has_failed(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        asked().whole(Told(body, b"application/json"), REMOTE)


def test_an_error_with_a_good_status_is_an_error() -> None:
    with pytest.raises(RunFailed, match="no"):
        asked().whole(Told(b'{"error":{"message":"no"}}', b"application/json"), REMOTE)


def test_vectors_travel_exactly() -> None:
    vectors = [floats(0.1, -2.5, 3e-20), floats(1, 2, 3)]
    as_floats = msgspec.json.decode(embeddings_reply("m", vectors, None, 9))
    as_base64 = msgspec.json.decode(embeddings_reply("m", vectors, "base64", 9))
    assert [floats(*row["embedding"]) for row in as_floats["data"]] == vectors
    assert [base64.b64decode(row["embedding"]) for row in as_base64["data"]] == vectors
    assert [row["index"] for row in as_floats["data"]] == [0, 1]
    assert as_floats["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert (as_floats["object"], as_floats["model"]) == ("list", "m")
