"""Answers to chat requests, whole and streamed, from the same steps.

Where tools are offered, log-probabilities of text that became a call are dropped, and those of
text that was held back come with the next text of the choice.
"""

import os
from collections.abc import Collection
from typing import Any

import msgspec

from tiffin.dialects.openai.replies import EVENTS, JSON, NULL, Chunks, Head, encode, finite, whole
from tiffin.dialects.openai.tool_calls import Call, Found, ToolCallParser
from tiffin.ports.text_runtime import Delta, TokenLogprob
from tiffin.types.usage import Usage


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools whose calls are to be found in the text; none: the text is not looked at."""

    names: Collection[str] = ()
    only_first: bool = False


class ChatStream:
    """Chunks of `chat.completion.chunk`; the first of each choice says its role."""

    content_type = EVENTS

    def __init__(self, head: Head, choices: int, tools: Tools, *, include_usage: bool) -> None:
        kind = "chat.completion.chunk"
        self._chunks = Chunks(head, kind, "delta", choices, include_usage=include_usage)
        self._choices = [_Choice(tools) for _ in range(choices)]

    def piece(self, choice: int, delta: Delta) -> bytes:
        """The chunks of this step."""
        state, chunk = self._choices[choice], self._chunks.chunk
        out = b""
        if not state.begun:
            state.begun = True
            out = chunk(choice, b'{"role":"assistant","content":""}')
        for found in state.read(delta):
            if isinstance(found, str):
                logprobs = state.take_logprobs()
                shown = NULL if logprobs is None else encode(_logprobs(logprobs))
                out += chunk(choice, b'{"content":%b}' % encode(found), shown)
            else:
                for part in _call_deltas(state.next_call(), found):
                    out += chunk(choice, part)
        if delta.finish is not None:
            out += chunk(choice, b"{}", NULL, encode(state.reason(delta.finish)))
        return out

    def end(self, usage: Usage) -> bytes:
        """The usage chunk and `[DONE]`."""
        return self._chunks.end(usage)


class ChatWhole:
    """One `chat.completion`, sent at the end."""

    content_type = JSON

    def __init__(self, head: Head, choices: int, tools: Tools) -> None:
        self._head = head
        self._choices = [_Choice(tools) for _ in range(choices)]
        self._messages = [_Message() for _ in range(choices)]

    def piece(self, choice: int, delta: Delta) -> bytes:
        """Nothing: it is collected."""
        state, message = self._choices[choice], self._messages[choice]
        for found in state.read(delta):
            if isinstance(found, str):
                message.add(found, state.take_logprobs())
            else:
                state.next_call()
                message.calls.append(_tool_call(found))
        if delta.finish is not None:
            message.finish = state.reason(delta.finish)
        return b""

    def end(self, usage: Usage) -> bytes:
        """The whole object."""
        choices = [message.choice(number) for number, message in enumerate(self._messages)]
        return whole(self._head, "chat.completion", choices, usage)


class _Choice:
    """One choice on its way; its text is looked through for calls where there are tools."""

    def __init__(self, tools: Tools) -> None:
        self.begun = False
        self._calls = 0
        self._logprobs: list[TokenLogprob] | None = None
        self._parser: ToolCallParser | None = None
        if tools.names:
            self._parser = ToolCallParser(tools.names, only_first=tools.only_first)

    def read(self, delta: Delta) -> list[Found]:
        """What this step adds; log-probabilities without text get an empty one."""
        if delta.logprobs:
            self._logprobs = [*(self._logprobs or ()), *delta.logprobs]
        if self._parser is None:
            return [delta.text] if delta.text or delta.logprobs else []
        found = self._parser.feed(delta.text)
        if delta.finish is not None:
            found += self._parser.finish()
            if not found and not self._calls and self._logprobs:
                found = [""]
        return found

    def take_logprobs(self) -> list[TokenLogprob] | None:
        """Those of all text since the last time, or None."""
        taken, self._logprobs = self._logprobs, None
        return taken

    def next_call(self) -> int:
        """The number of the call that was found."""
        self._logprobs = None
        self._calls += 1
        return self._calls - 1

    def reason(self, finish: str) -> str:
        """Why the choice ended, as the client is to see it."""
        return "tool_calls" if self._calls and finish == "stop" else finish


class _Message:
    """A whole choice, while it is collected."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.finish = ""
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] | None = None

    def add(self, text: str, logprobs: list[TokenLogprob] | None) -> None:
        self._texts.append(text)
        if logprobs is not None:
            self._logprobs = [*(self._logprobs or ()), *logprobs]

    def choice(self, number: int) -> dict[str, Any]:
        content = "".join(self._texts)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self.calls:
            message["content"] = content or None
            message["tool_calls"] = self.calls
        return {
            "index": number,
            "message": message,
            "logprobs": None if self._logprobs is None else _logprobs(self._logprobs),
            "finish_reason": self.finish,
        }


def _tool_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{os.urandom(12).hex()}", "type": "function", "function": function}


def _call_deltas(index: int, call: Call) -> list[bytes]:
    """A call as OpenAI streams it: what is called first, then with which arguments."""
    named = _tool_call(Call(call.name, ""))
    arguments = {"index": index, "function": {"arguments": call.arguments}}
    return [encode({"tool_calls": [one]}) for one in ({"index": index, **named}, arguments)]


def _logprobs(tokens: list[TokenLogprob]) -> dict[str, Any]:
    content = [
        {**_token(token), "top_logprobs": [_token(t) for t in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def _token(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": finite(token.logprob), "bytes": token.token_bytes}
