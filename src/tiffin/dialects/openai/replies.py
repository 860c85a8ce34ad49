"""What all of OpenAI's text answers share; their shapes are in `chat_replies` and `text_replies`.

A streamed answer always ends with a usage chunk (`choices: []`) before `[DONE]`. Where the client
asked for it (`stream_options.include_usage`) every other chunk has `usage: null`, so nothing but
leaving out that one chunk is ever to be changed on the way. `usage.tiffin` is our own.
"""

from typing import Any, Final, Protocol

import msgspec

from tiffin.ports.text_runtime import Delta
from tiffin.types.usage import Usage

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream; charset=utf-8"
DONE: Final = b"data: [DONE]\n\n"
NULL: Final = b"null"

encode: Final = msgspec.json.Encoder().encode


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What every chunk of an answer repeats. `id` has no prefix; `created` is Unix seconds."""

    id: str
    created: int
    model: str
    fingerprint: str


class Reply(Protocol):
    """Turns the steps of an answer into bytes to send, whatever its shape."""

    content_type: bytes

    def piece(self, choice: int, delta: Delta) -> bytes:
        """What to send for this step; empty where nothing is to be sent yet."""
        ...

    def end(self, usage: Usage) -> bytes:
        """What ends the answer."""
        ...


class Chunks:
    """The bytes of a stream's chunks: everything that repeats is encoded once.

    `field` is what a choice carries its content in; `kind` the chunk's `object`.
    """

    def __init__(
        self, head: Head, kind: str, field: str, choices: int, *, include_usage: bool
    ) -> None:
        self._start = b"data: %b," % encode(_shared(head, kind))[:-1]
        self._stop = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._before = [
            b'%b"choices":[{"index":%d,"%b":' % (self._start, choice, field.encode())
            for choice in range(choices)
        ]

    def chunk(
        self, choice: int, content: bytes, logprobs: bytes = NULL, finish: bytes = NULL
    ) -> bytes:
        """One chunk of one choice."""
        return b'%b%b,"logprobs":%b,"finish_reason":%b%b' % (
            self._before[choice],
            content,
            logprobs,
            finish,
            self._stop,
        )

    def end(self, usage: Usage) -> bytes:
        """The usage chunk and `[DONE]`."""
        return b'%b"choices":[],"usage":%b}\n\n%b' % (
            self._start,
            encode(usage_object(usage)),
            DONE,
        )


def whole(head: Head, kind: str, choices: list[dict[str, Any]], usage: Usage) -> bytes:
    """A whole answer's object as JSON."""
    return encode({**_shared(head, kind), "choices": choices, "usage": usage_object(usage)})


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as the wire has it; times are nanoseconds."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "tiffin": {
            "queue_ns": usage.queue_ns,
            "device_ns": usage.device_ns,
            "reason": usage.reason,
        },
    }


def finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says -9999 instead."""
    return max(logprob, -9999.0)


def _shared(head: Head, kind: str) -> dict[str, Any]:
    prefix = "chatcmpl-" if kind.startswith("chat") else "cmpl-"
    return {
        "id": prefix + head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
    }
