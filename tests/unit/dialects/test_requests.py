"""Bytes become exactly one typed request, or an error that names what is wrong."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.openai.requests import decode, encode
from tiffin.dialects.reader import MAX_CONTAINERS
from tiffin.errors import InvalidRequest, MalformedBody, SchemaViolation, UnknownParameter
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TextRequest,
    TokenizeRequest,
)

MESSAGES = '"messages":[{"role":"user","content":"hi"}]'


def chat(extra: str = "", messages: str = MESSAGES) -> bytes:
    """A body with a model, messages, and what else is given."""
    return f'{{"model":"m",{messages}{"," if extra else ""}{extra}}}'.encode()


def user(content: str) -> bytes:
    """A body whose one message has this content."""
    return chat(messages=f'"messages":[{{"role":"user","content":{content}}}]')


def tool(function: str) -> bytes:
    """A body with one tool."""
    return chat(f'"tools":[{{"type":"function","function":{{{function}}}}}]')


def outcome(body: bytes) -> TextRequest | InvalidRequest:
    try:
        return decode("chat", body)
    except InvalidRequest as error:
        return error


def refusal(body: bytes, kind: str = "chat") -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(kind, body)
    return caught.value


def test_a_request_becomes_typed() -> None:
    request = decode("chat", chat('"temperature":1,"stop":["a"],"seed":-3'))
    assert isinstance(request, ChatRequest)
    assert request.messages[0].content == "hi"
    assert (request.temperature, request.stop, request.seed) == (1.0, ["a"], -3)


@pytest.mark.parametrize(
    ("kind", "body", "cls"),
    [
        ("completion", b'{"model":"m","prompt":[1,2]}', CompletionRequest),
        ("tokenize", b'{"model":"m","prompt":"x"}', TokenizeRequest),
        ("detokenize", b'{"model":"m","tokens":[1]}', DetokenizeRequest),
    ],
)
def test_every_kind_has_its_type(kind: str, body: bytes, cls: type) -> None:
    assert type(decode(kind, body)) is cls


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b" \n", "empty", id="blank"),
        pytest.param(b"nonsense", "not JSON", id="text"),
        pytest.param(chat()[:-1], "not JSON", id="cut off"),
        pytest.param(chat() + b"x", "trailing", id="something after it"),
        pytest.param(b"\xef\xbb\xbf" + chat(), "not JSON", id="byte order mark"),
        pytest.param(chat().decode().encode("utf-16-le"), "not JSON", id="UTF-16"),
        pytest.param(chat('"temperature":NaN'), "not JSON", id="NaN"),
        pytest.param(chat('"temperature":-Infinity'), "not JSON", id="infinity"),
        pytest.param(chat('"user":"\\q"'), "escape", id="bad escape"),
        pytest.param(chat('"user":"').replace(b'"user":"', b'"user":"\xff"'), "UTF-8", id="latin"),
        pytest.param(chat('"user":"X"').replace(b"X", b"\xed\xa0\x80"), "UTF-8", id="CESU"),
        pytest.param(chat('"user":"\\ud800"'), "surrogate", id="high half at the end"),
        pytest.param(chat('"user":"\\ud800 and more of it"'), "surrogate", id="high half"),
        pytest.param(chat('"user":"\\udc00"'), "surrogate", id="low half"),
        pytest.param(chat('"user":"\\ud83d\\u0041"'), "surrogate", id="mispaired"),
    ],
)
def test_what_is_not_json_is_told(body: bytes, says: str) -> None:
    error = refusal(body)
    assert isinstance(error, MalformedBody)
    assert says in error.message


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (b"[]", None, "must be an object, not an array"),
        (b"null", None, "must be an object, not null"),
        (b'{"model":"m"}', "messages", "'messages' is required"),
        (b'{"messages":[]}', "messages", "at least 1"),
        (chat(messages='"messages":[{"content":"x"}]'), "messages[0].role", "required"),
        (user("5"), "messages[0].content", "not an integer"),
        (chat(messages='"messages":{}'), "messages", "an array, not an object"),
        (user('[{"type":1}]'), "messages[0].content[0].type", "a string"),
        (chat('"temperature":"1"'), "temperature", "a number or null, not a string"),
        (chat('"temperature":2.01'), "temperature", "at most 2"),
        (chat('"temperature":-0.1'), "temperature", "at least 0"),
        (chat('"temperature":1e999'), "temperature", "out of range"),
        (chat('"top_p":0'), "top_p", "more than 0"),
        (chat('"n":0'), "n", "at least 1"),
        (chat('"n":9'), "n", "at most 8"),
        (chat('"n":1.5'), "n", "an integer or null, not a number"),
        (chat('"n":true'), "n", "not a boolean"),
        (chat('"stream":"yes"'), "stream", "not a string"),
        (chat('"seed":9223372036854775808'), "seed", "at most"),
        (chat(f'"seed":1{"0" * 6000}'), "seed", "out of range"),
        (chat('"stop":["a","b","c","d","e"]'), "stop", "length at most 4"),
        (chat('"stop":""'), "stop", "length at least 1"),
        (chat('"stop":["a",""]'), "stop[1]", "length at least 1"),
        (chat('"logit_bias":{"x":1}'), "logit_bias", "every key"),
        (chat('"logit_bias":{"5":101}'), "logit_bias", "every value"),
        (chat('"metadata":{"a":1}'), "metadata", "a string"),
        (tool('"name":"a b"'), "tools[0].function.name", "matches"),
        (chat('"top_logprobs":21'), "top_logprobs", "at most 20"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(body: bytes, param: str | None, says: str) -> None:
    error = refusal(body)
    assert type(error) is SchemaViolation
    assert error.param == param
    assert says in error.message


@pytest.mark.parametrize(
    ("body", "param", "near"),
    [
        (chat('"temprature":1'), "temprature", "'temperature'"),
        (chat('"zzz":1'), "zzz", ""),
        (
            chat(messages='"messages":[{"role":"user","content":"x","nam":1}]'),
            "messages[0].nam",
            "'name'",
        ),
        (
            chat('"response_format":{"type":"json_schema","json_schema":{"name":"x","shema":{}}}'),
            "response_format.json_schema.shema",
            "'schema'",
        ),
    ],
)
def test_an_unknown_parameter_is_named_with_the_nearest(body: bytes, param: str, near: str) -> None:
    error = refusal(body)
    assert type(error) is UnknownParameter
    assert error.param == param
    assert near in error.message
    assert ("did you mean" in error.message) == bool(near)


def test_a_hostile_name_of_a_parameter_is_clipped() -> None:
    error = refusal(chat(f'"{"x`" * 500_000}":1'))
    assert len(error.message) < 200
    assert error.param is not None
    assert len(error.param) <= 80


@pytest.mark.parametrize("number", ["2.0", "2e0", "20e-1"])
def test_a_whole_number_with_a_fraction_is_an_integer(number: str) -> None:
    assert decode("chat", chat(f'"n":{number},"seed":5')) == decode("chat", chat('"n":2,"seed":5'))


def test_after_a_whole_number_everything_still_holds() -> None:
    assert "'top_p'" in refusal(chat('"n":2.0,"top_p":5')).message
    assert "twice" in refusal(chat('"n":2.0,"seed":1,"seed":2')).message
    for broken in ('"n":2.0,"top_p":NaN', '"n":2.0,"top_p":1e999', '"n":2.0,"user":"\\ud800"'):
        assert refusal(chat(broken)).param == "n"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(chat(f'"audio":{"[" * 100_000}'), id="open arrays"),
        pytest.param(chat(f'"audio":{"[" * 100_000}{"]" * 100_000}'), id="arrays"),
        pytest.param(chat('"audio":' + '{"a":' * 30_000 + "1" + "}" * 30_000), id="objects"),
        pytest.param(chat(f'"nobody":{"[" * 20_000}{"]" * 20_000}'), id="in an unknown field"),
        pytest.param(b"[" * 100_000, id="nothing else"),
        pytest.param(b'{"model":' * 100_000, id="the request itself"),
        pytest.param(chat(f'"audio":[{"{}," * 3_000_000}1]'), id="many small ones"),
        pytest.param(chat('"audio":["' + '\\"' * 4_000_000), id="an endless string"),
    ],
)
def test_nesting_and_numbers_are_bounded_in_time(body: bytes) -> None:
    began = time.process_time()
    refusal(body)
    assert time.process_time() - began < 3.0


def test_braces_inside_strings_are_not_counted() -> None:
    text = '{"' * MAX_CONTAINERS
    request = decode("completion", json.dumps({"model": "m", "prompt": text}).encode())
    assert isinstance(request, CompletionRequest)
    assert request.prompt == text


@pytest.mark.parametrize(
    ("body", "key"),
    [
        pytest.param(chat('"model":"n"'), "model", id="top"),
        pytest.param(chat('"user" : "a" ,\n"user"\t:"b"'), "user", id="with spaces"),
        pytest.param(chat('"\\u006dodel":"n"'), "model", id="escaped"),
        pytest.param(chat('"metadata":{"a":"1","a":"2"}'), "a", id="in a map"),
        pytest.param(chat('"metadata":{"a":"\\u003a","a":"2"}'), "a", id="hidden by a colon"),
        pytest.param(chat('"metadata":{"a":"\\u003A","a":"2"}'), "a", id="hidden by a big colon"),
        pytest.param(chat('"metadata":{"a":"x","a":"x"},"user":null'), "a", id="beside a null"),
        pytest.param(chat('"metadata":{"":"x","":"x"}'), "", id="empty"),
        pytest.param(tool('"name":"f","parameters":{"x":{"y":1,"y":1}}'), "y", id="deep"),
    ],
)  # fmt: skip
def test_a_duplicate_key_is_refused_by_name(body: bytes, key: str) -> None:
    error = refusal(body)
    assert type(error) is MalformedBody
    assert f"'{key}' is given twice" in error.message


class Pairs:
    """An object as its members in order, duplicates and all."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        self.members = members


# Text that looks like members, colons and escapes, wherever text may stand.
TEXTS = st.one_of(
    st.sampled_from([":", '":', '"a":1', '\\":', "\\u003a", "\\", '"', "{}:", "\u00e9:\u2028"]),
    st.text(alphabet=':"\\{}[], au03é\n', max_size=8),
)
KEYS = st.one_of(st.sampled_from(["a", "b", ":", '":']), TEXTS)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-2, 2), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(KEYS, inner), max_size=4).map(Pairs)
    ),
    max_leaves=12,
)


def has_duplicates(value: Any) -> bool:
    if isinstance(value, Pairs):
        keys = [key for key, _ in value.members]
        return len(set(keys)) < len(keys) or any(has_duplicates(v) for _, v in value.members)
    return isinstance(value, list) and any(has_duplicates(inner) for inner in value)


def spell(value: Any, draw: st.DrawFn) -> str:
    """Any of the ways to write a value as JSON."""
    space = draw(st.sampled_from(["", "", " ", "\n\t"]))
    if isinstance(value, Pairs):
        members = (f"{spell(key, draw)}{space}:{space}{spell(v, draw)}" for key, v in value.members)
        return "{" + space + f",{space}".join(members) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(spell(inner, draw) for inner in value) + space + "]"
    if isinstance(value, str) and draw(st.booleans()):
        escaped = (f"\\u{ord(c):04{draw(st.sampled_from('xX'))}}" for c in value)
        return '"' + "".join(escaped) + '"'
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def tool_bodies(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A body with a free-form schema in it, and whether an object of it has a key twice."""
    schema = Pairs(draw(st.lists(st.tuples(KEYS, VALUES), max_size=4)))
    function = Pairs([("name", "f"), ("description", draw(TEXTS)), ("parameters", schema)])
    tools = [Pairs([("type", "function"), ("function", function)])]
    messages = [Pairs([("role", "user"), ("content", draw(TEXTS))])]
    request = [("model", draw(TEXTS) or "m"), ("messages", messages), ("tools", tools)]
    doubled = draw(st.sampled_from([None, None, *range(3)]))
    if doubled is not None:
        request.insert(draw(st.integers(0, 3)), request[doubled])
    body = Pairs(request)
    return spell(body, draw).encode(), has_duplicates(body)


@given(tool_bodies())
def test_duplicates_are_found_exactly(case: tuple[bytes, bool]) -> None:
    body, duplicated = case
    found = outcome(body)
    if duplicated:
        assert isinstance(found, MalformedBody)
        assert "twice" in found.message
    else:
        assert isinstance(found, ChatRequest)


@given(st.binary(max_size=60) | st.text(max_size=40).map(chat))
def test_any_bytes_end_in_a_request_or_a_refusal(body: bytes) -> None:
    assert isinstance(outcome(body), ChatRequest | InvalidRequest)


@given(st.integers(1, 5000))
def test_integers_of_any_length_are_kept_or_refused(digits: int) -> None:
    number = "9" * digits
    found = outcome(tool(f'"strict":null,"name":"f","parameters":{{"x":{number}}}'))
    if isinstance(found, InvalidRequest):
        assert "out of range" in found.message
    else:
        assert number.encode() in encode(found, model="m")


def test_the_canonical_body_has_the_targets_model_and_only_what_was_given() -> None:
    request = decode("chat", chat(' "top_p" : 0.5, "user": null'))
    assert json.loads(encode(request, model="other")) == {
        "model": "other",
        "messages": [{"role": "user", "content": "hi"}],
        "top_p": 0.5,
    }


def test_every_stream_is_asked_for_its_usage() -> None:
    for options in ("", ',"stream_options":{"include_usage":false}'):
        sent = json.loads(encode(decode("chat", chat(f'"stream":true{options}')), model="m"))
        assert sent["stream"] is True
        assert sent["stream_options"] == {"include_usage": True}
    assert "stream_options" not in json.loads(encode(decode("chat", chat()), model="m"))


@given(tool_bodies())
def test_the_canonical_body_reads_back_as_the_same_request(case: tuple[bytes, bool]) -> None:
    body, duplicated = case
    if duplicated:
        return
    request = decode("chat", body)
    assert decode("chat", encode(request, model=request.model)) == request


def test_every_field_of_a_tool_call_survives() -> None:
    call = '{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}'
    body = chat(messages=f'"messages":[{{"role":"assistant","tool_calls":[{call}]}}]')
    sent = msgspec.json.decode(encode(decode("chat", body), model="m"))
    assert sent["messages"][0]["tool_calls"] == [json.loads(call)]
