"""A kept answer in another form says the same, and what isn't understood isn't recast."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.openai.chat_replies import ChatStream, ChatWhole, Tools
from tiffin.dialects.openai.recast import STREAM, WHOLE, WITH_USAGE, recast
from tiffin.dialects.openai.replies import Head, usage_object
from tiffin.dialects.openai.text_replies import TextStream, TextWhole
from tiffin.ports.text_runtime import Delta
from tiffin.types.usage import Usage

HEAD = Head(id="1", created=7, model="m", fingerprint="f")
USAGE = Usage(prompt_tokens=3, completion_tokens=2)


def said(reply: Any, choices: list[list[str]]) -> bytes:
    out = b""
    for index, words in enumerate(choices):
        for word in words:
            out += reply.piece(index, Delta(text=word))
        out += reply.piece(index, Delta(text="", finish="stop"))
    out += reply.end(USAGE)
    return bytes(out)


def chat(form: str, choices: list[list[str]]) -> bytes:
    if form == WHOLE:
        return said(ChatWhole(HEAD, len(choices), Tools()), choices)
    stream = ChatStream(HEAD, len(choices), Tools(), include_usage=form == WITH_USAGE)
    return _unused(said(stream, choices), form)


def text(form: str, choices: list[list[str]]) -> bytes:
    echo = [""] * len(choices)
    if form == WHOLE:
        return said(TextWhole(HEAD, echo), choices)
    return _unused(said(TextStream(HEAD, echo, include_usage=form == WITH_USAGE), choices), form)


def _unused(body: bytes, form: str) -> bytes:
    """Without the event of usage, as a client that didn't ask for it gets the stream."""
    if form == WITH_USAGE:
        return body
    events = body.split(b"\n\n")
    return b"\n\n".join(event for event in events if b'"choices":[]' not in event)


def meaning(body: bytes) -> Any:
    whole = msgspec.json.decode(body)
    spoken = [
        (choice.get("message", {}).get("content", choice.get("text")), choice["finish_reason"])
        for choice in whole["choices"]
    ]
    return spoken, whole["usage"]["prompt_tokens"], whole["id"], whole["object"]


CHOICES = st.lists(
    st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=3
)


@pytest.mark.parametrize("reply", [chat, text], ids=["chat", "text"])
@pytest.mark.parametrize("form", [WHOLE, STREAM, WITH_USAGE])
@given(choices=CHOICES)
def test_every_form_says_the_same(reply: Any, form: str, choices: list[list[str]]) -> None:
    body, expected = reply(form, choices), meaning(reply(WHOLE, choices))
    for wanted in (WHOLE, STREAM, WITH_USAGE):
        there = recast(body, form, wanted, USAGE)
        assert there is not None
        back = there if wanted == WHOLE else recast(there, wanted, WHOLE, USAGE)
        assert back is not None
        assert meaning(back) == expected
        usages = there.count(b'"prompt_tokens"')
        assert usages == (0 if wanted == STREAM else 1)
        assert wanted == WHOLE or there.endswith(b"data: [DONE]\n\n")


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def whole(message: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    usage = usage_object(USAGE)
    head = {"id": "1", "object": "chat.completion", "created": 7, "model": "m"}
    return msgspec.json.encode({**head, "choices": [{**choice, **more}], "usage": usage})


def test_calls_of_tools_come_back_as_they_were() -> None:
    body = whole({"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]})
    stream = recast(body, WHOLE, WITH_USAGE, USAGE)
    assert stream is not None
    back = recast(stream, WITH_USAGE, WHOLE, USAGE)
    assert back is not None
    assert msgspec.json.decode(back) == msgspec.json.decode(body)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (WHOLE, whole({"role": "assistant", "content": "a", "annotations": [{}]})),
        (WHOLE, whole({"role": "assistant", "content": "a"}, safety="odd")),
        (STREAM, chat(STREAM, [["a"]]).replace(b'"content":"a"', b'"odd":"a"')),
        (STREAM, chat(STREAM, [["a"]]).replace(b'"finish_reason":"stop"', b'"finish_reason":null')),
        (STREAM, b"data: [DONE]\n\n"),
        (WHOLE, b"{}"),
        (WHOLE, b"nothing"),
    ],
    ids=["message", "choice", "delta", "unfinished", "empty", "no answer", "no JSON"],
)
def test_what_isnt_understood_isnt_recast(form: str, body: bytes) -> None:
    assert recast(body, form, STREAM if form == WHOLE else WHOLE, USAGE) is None
