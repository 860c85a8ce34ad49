"""Answers in OpenAI's shapes: a stream says the same as the whole, to the letter of the format."""

from typing import Any

import msgspec
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tiffin.dialects.openai.chat_replies import ChatStream, ChatWhole, Tools
from tiffin.dialects.openai.replies import DONE, Head, Reply
from tiffin.dialects.openai.text_replies import TextStream, TextWhole
from tiffin.dialects.openai.usage import StreamScanner, read_whole
from tiffin.ports.text_runtime import Delta, TokenLogprob
from tiffin.types.usage import Usage

HEAD = Head(id="0" * 32, created=1_700_000_000, model='m"x', fingerprint="fp_1")
USAGE = Usage(
    prompt_tokens=7, completion_tokens=5, cached_tokens=2, queue_ns=10, device_ns=20, reason="turn"
)
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
TOOLS = Tools(names=["add"])
NEVER = float("-inf")


def logprob(token: str, value: float, *rivals: tuple[str, float]) -> TokenLogprob:
    top = [TokenLogprob(token=t, token_bytes=list(t.encode()), logprob=v) for t, v in rivals]
    return TokenLogprob(token=token, token_bytes=list(token.encode()), logprob=value, top=top)


def events(reply: Reply, *steps: tuple[int, Delta]) -> list[dict[str, Any]]:
    """Everything that a stream sends but `[DONE]`, which ends it."""
    sent = b"".join(reply.piece(choice, delta) for choice, delta in steps) + reply.end(USAGE)
    assert sent.endswith(DONE)
    lines = sent.removesuffix(DONE).split(b"\n\n")
    assert lines.pop() == b""
    return [msgspec.json.decode(line.removeprefix(b"data: ")) for line in lines]


def whole(reply: Reply, *steps: tuple[int, Delta]) -> Any:
    """The object of a whole answer, of which nothing came before its end."""
    assert all(reply.piece(choice, delta) == b"" for choice, delta in steps)
    return msgspec.json.decode(reply.end(USAGE))


def chat(tools: Tools = Tools(), choices: int = 1) -> ChatStream:  # noqa: B008
    return ChatStream(HEAD, choices, tools, include_usage=False)


def test_a_chat_stream_is_role_then_content_then_finish_then_usage() -> None:
    seen = events(chat(), (0, Delta(text='a"')), (0, Delta(text="é\n", finish="length")))
    assert [event["choices"] for event in seen] == [
        [one({"role": "assistant", "content": ""})],
        [one({"content": 'a"'})],
        [one({"content": "é\n"})],
        [one({}, "length")],
        [],
    ]
    for event in seen:
        ChatCompletionChunk.model_validate(event, strict=True)
        assert event["id"] == "chatcmpl-" + "0" * 32
        assert (event["object"], event["model"]) == ("chat.completion.chunk", 'm"x')
        assert (event["created"], event["system_fingerprint"]) == (1_700_000_000, "fp_1")
    assert ["usage" in event for event in seen] == [False, False, False, False, True]


def one(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def test_the_usage_chunk_has_no_choices_and_our_times() -> None:
    assert events(chat(), (0, Delta(finish="stop")))[-1]["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2},
        "tiffin": {"queue_ns": 10, "device_ns": 20, "reason": "turn"},
    }


@pytest.mark.parametrize("reply", [chat(), TextStream(HEAD, [""], include_usage=False)])
def test_the_gateway_reads_from_a_stream_what_was_put_in(reply: Reply) -> None:
    scanner = StreamScanner(trusted=True)
    steps = [Delta(text="a"), Delta(text="b", finish="stop")]
    sent = b"".join(reply.piece(0, step) for step in steps) + reply.end(USAGE)
    assert scanner.feed(sent) == sent
    assert (scanner.done, scanner.content, scanner.error) == (True, True, None)
    assert scanner.usage == USAGE


def test_the_gateway_reads_usage_from_a_whole_answer() -> None:
    reply = ChatWhole(HEAD, 1, Tools())
    reply.piece(0, Delta(finish="stop"))
    assert read_whole(reply.end(USAGE), chosen=True) == USAGE


@pytest.mark.parametrize(
    "reply",
    [
        ChatStream(HEAD, 1, Tools(), include_usage=True),
        TextStream(HEAD, [""], include_usage=True),
    ],
    ids=["chat", "text"],
)
def test_a_client_that_asked_for_usage_sees_it_null_in_all_other_chunks(reply: Reply) -> None:
    *others, last = events(reply, (0, Delta(text="a")), (0, Delta(finish="stop")))
    assert all(event["usage"] is None for event in others)
    assert last["usage"]["total_tokens"] == 12


def test_a_step_without_text_sends_nothing_after_the_role() -> None:
    reply = chat()
    assert b'"role"' in reply.piece(0, Delta())
    assert reply.piece(0, Delta()) == b""


def test_choices_are_told_apart_and_each_has_its_role() -> None:
    seen = events(
        chat(choices=2),
        (1, Delta(text="b")),
        (0, Delta(text="a", finish="stop")),
        (1, Delta(finish="stop")),
    )
    indexes = [event["choices"][0]["index"] for event in seen[:-1]]
    assert indexes == [1, 1, 0, 0, 0, 1]


def test_a_whole_chat_answer_has_every_choice() -> None:
    answer = whole(
        ChatWhole(HEAD, 2, Tools()),
        (0, Delta(text="a")),
        (1, Delta(text="x", finish="length")),
        (0, Delta(text="b", finish="stop")),
    )
    ChatCompletion.model_validate(answer, strict=True)
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": None,
            "finish_reason": reason,
        }
        for index, content, reason in [(0, "ab", "stop"), (1, "x", "length")]
    ]
    assert answer["usage"]["completion_tokens"] == 5


def test_chat_logprobs_come_with_their_text() -> None:
    steps = (
        (0, Delta(text="a", logprobs=[logprob("a", -0.5, ("a", -0.5), ("b", NEVER))])),
        (0, Delta(text="", logprobs=[logprob("c", -1.0)])),
        (0, Delta(finish="stop")),
    )
    streamed = [
        event["choices"][0]["logprobs"]["content"]
        for event in events(chat(), *steps)[:-1]
        if event["choices"][0]["logprobs"]
    ]
    answer = whole(ChatWhole(HEAD, 1, Tools()), *steps)
    ChatCompletion.model_validate(answer, strict=True)
    assert answer["choices"][0]["logprobs"]["content"] == [one for some in streamed for one in some]
    assert streamed[0] == [
        {
            "token": "a",
            "logprob": -0.5,
            "bytes": [97],
            "top_logprobs": [
                {"token": "a", "logprob": -0.5, "bytes": [97]},
                {"token": "b", "logprob": -9999.0, "bytes": [98]},
            ],
        }
    ]


def test_a_tool_call_is_streamed_by_name_and_then_arguments() -> None:
    seen = events(chat(TOOLS), (0, Delta(text="Hm. " + CALL)), (0, Delta(text=CALL, finish="stop")))
    deltas = [event["choices"][0]["delta"] for event in seen[:-1]]
    assert deltas[1] == {"content": "Hm."}
    calls = [delta["tool_calls"][0] for delta in deltas[2:-1]]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]
    assert calls[0]["type"] == "function"
    assert calls[0]["function"] == {"name": "add", "arguments": ""}
    assert calls[0]["id"].startswith("call_")
    assert len(calls[0]["id"]) == len("call_") + 24
    assert calls[0]["id"] != calls[2]["id"]
    assert calls[1] == {"index": 0, "function": {"arguments": '{"a": 1}'}}
    assert seen[-2]["choices"][0]["finish_reason"] == "tool_calls"
    for event in seen:
        ChatCompletionChunk.model_validate(event, strict=True)


@pytest.mark.parametrize(
    ("text", "content", "calls", "reason"),
    [
        (CALL, None, 1, "tool_calls"),
        ("So: " + CALL + CALL, "So:", 2, "tool_calls"),
        ("Just words", "Just words", 0, "stop"),
        ("", "", 0, "stop"),
    ],
    ids=["call alone", "words and calls", "words", "nothing"],
)
def test_a_whole_answer_to_tools(text: str, content: str | None, calls: int, reason: str) -> None:
    answer = whole(ChatWhole(HEAD, 1, TOOLS), (0, Delta(text=text)), (0, Delta(finish="stop")))
    ChatCompletion.model_validate(answer, strict=True)
    choice = answer["choices"][0]
    assert choice["message"]["content"] == content
    assert len(choice["message"].get("tool_calls", [])) == calls
    assert choice["finish_reason"] == reason


def test_a_call_that_ran_out_of_tokens_stays_text_and_says_length() -> None:
    answer = whole(ChatWhole(HEAD, 1, TOOLS), (0, Delta(text=CALL[:30], finish="length")))
    assert answer["choices"][0]["message"]["content"] == CALL[:30]
    assert answer["choices"][0]["finish_reason"] == "length"


def test_parallel_calls_can_be_forbidden() -> None:
    tools = Tools(names=["add"], only_first=True)
    answer = whole(ChatWhole(HEAD, 1, tools), (0, Delta(text=CALL + CALL, finish="stop")))
    assert len(answer["choices"][0]["message"]["tool_calls"]) == 1


def test_logprobs_of_held_text_come_with_it_and_those_of_a_call_are_dropped() -> None:
    def token(text: str) -> Delta:
        return Delta(text=text, logprobs=[logprob(text, -1.0)])

    answer = whole(
        ChatWhole(HEAD, 1, TOOLS),
        (0, token("a <")),
        (0, token("b")),
        (0, token(CALL)),
        (0, Delta(finish="stop")),
    )
    kept = answer["choices"][0]["logprobs"]["content"]
    assert answer["choices"][0]["message"]["content"] == "a <b"
    assert [entry["token"] for entry in kept] == ["a <", "b"]


def test_a_text_stream_and_its_whole_are_the_same_text() -> None:
    steps = ((0, Delta(text="a")), (1, Delta(text="b", finish="length")), (0, Delta(finish="stop")))
    seen = events(TextStream(HEAD, ["<", ""], include_usage=False), *steps)
    assert {event["id"] for event in seen} == {"cmpl-" + "0" * 32}
    assert [(c["index"], c["text"]) for event in seen for c in event["choices"]] == [
        (0, "<a"),
        (1, "b"),
        (1, ""),
        (0, ""),
    ]
    answer = whole(TextWhole(HEAD, ["<", ""]), *steps)
    Completion.model_validate(answer, strict=True)
    assert [(c["text"], c["finish_reason"]) for c in answer["choices"]] == [
        ("<a", "stop"),
        ("b", "length"),
    ]


def test_text_logprobs_have_offsets_from_the_choice_s_beginning() -> None:
    steps = (
        (0, Delta(text="ab", logprobs=[logprob("ab", -0.1, ("ab", -0.1), ("c", -3.0))])),
        (0, Delta(text="d", logprobs=[logprob("d", NEVER)])),
        (0, Delta(finish="stop")),
    )
    answer = whole(TextWhole(HEAD, ["echo"]), *steps)
    Completion.model_validate(answer, strict=True)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["ab", "d"],
        "token_logprobs": [-0.1, -9999.0],
        "top_logprobs": [{"ab": -0.1, "c": -3.0}, {}],
        "text_offset": [4, 6],
    }
    assert answer["choices"][0]["text"] == "echoabd"
