"""A kept answer in another form than it came: a whole one as a stream, a stream as a whole one.

Only what is understood completely is recast; of everything else nothing is said.
"""

from typing import Any, Final

import msgspec

from tiffin.dialects.events import payload_of
from tiffin.dialects.openai.replies import DONE, usage_object
from tiffin.types.usage import Usage

WHOLE: Final = "whole"
STREAM: Final = "stream"
WITH_USAGE: Final = "usage"
"""A stream whose client asked for its usage."""

_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_SPOKEN = ("content", "refusal", "reasoning_content", "reasoning")
_CHUNK = ".chunk"

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class _Unknown(Exception):
    """There is something that isn't understood."""


def recast(body: bytes, form: str, wanted: str, usage: Usage) -> bytes | None:
    """The answer `body` of one form in another; None where that can't be done for sure.

    `usage` is what it used, for a stream that doesn't say so.
    """
    try:
        answer = _known_whole(body) if form == WHOLE else _collected(body, usage)
        if wanted == WHOLE:
            return _encode(answer)
        return _spread(answer, with_usage=wanted == WITH_USAGE)
    except (_Unknown, msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return None


def _known_whole(body: bytes) -> Json:
    answer: Json = msgspec.json.decode(body)
    _only(answer, (*_HEAD, "choices", "usage"))
    for choice in answer["choices"]:
        _only(choice, ("index", "message", "text", "logprobs", "finish_reason"))
        if "message" in choice:
            _only(choice["message"], ("role", *_SPOKEN, "tool_calls"))
    return answer


def _collected(body: bytes, usage: Usage) -> Json:
    """The whole answer that a stream's events come to."""
    head: Json = {}
    told: Json | None = None
    choices: dict[int, Json] = {}
    for event in body.split(b"\n\n"):
        payload = payload_of(event)
        if not payload or payload == b"[DONE]":
            continue
        chunk: Json = msgspec.json.decode(payload)
        _only(chunk, (*_HEAD, "choices", "usage"))
        head = head or {name: chunk[name] for name in _HEAD if name in chunk}
        told = chunk.get("usage") or told
        for choice in chunk["choices"]:
            _add(choices.setdefault(choice["index"], {"index": choice["index"]}), choice)
    if not choices or any(choice.get("finish_reason") is None for choice in choices.values()):
        raise _Unknown
    head["object"] = head["object"].removesuffix(_CHUNK)
    return {
        **head,
        "choices": [choices[index] for index in sorted(choices)],
        "usage": told or usage_object(usage),
    }


def _add(choice: Json, piece: Json) -> None:
    _only(piece, ("index", "delta", "text", "logprobs", "finish_reason"))
    choice.setdefault("logprobs", None)
    choice["finish_reason"] = piece.get("finish_reason") or choice.get("finish_reason")
    if "text" in piece:
        if piece.get("logprobs"):
            raise _Unknown
        choice["text"] = choice.get("text", "") + piece["text"]
        return
    if logprobs := piece.get("logprobs"):
        _only(logprobs, ("content", "refusal"))
        if logprobs.get("refusal"):
            raise _Unknown
        kept = choice["logprobs"] or {"content": [], "refusal": None}
        choice["logprobs"] = {**kept, "content": kept["content"] + logprobs["content"]}
    _say(choice.setdefault("message", {"role": "assistant", "content": None}), piece["delta"])


def _say(message: Json, delta: Json) -> None:
    _only(delta, ("role", *_SPOKEN, "tool_calls"))
    for name in _SPOKEN:
        if delta.get(name) is not None:
            message[name] = (message.get(name) or "") + delta[name]
    calls: list[Json] = message.get("tool_calls", [])
    for part in delta.get("tool_calls") or ():
        _only(part, ("index", "id", "type", "function"))
        _only(part["function"], ("name", "arguments"))
        if part["index"] == len(calls):
            function = {"name": part["function"]["name"], "arguments": ""}
            calls.append({"id": part["id"], "type": part["type"], "function": function})
        calls[part["index"]]["function"]["arguments"] += part["function"].get("arguments") or ""
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None


def _spread(answer: Json, *, with_usage: bool) -> bytes:
    """The events that an answer comes in."""
    head = {name: answer[name] for name in _HEAD if name in answer}
    chat = any("message" in choice for choice in answer["choices"])
    if chat:
        head["object"] += _CHUNK
    unsaid: Json = {"usage": None} if with_usage else {}
    out = b""
    for choice in answer["choices"]:
        for piece in _pieces(choice) if chat else (choice,):
            said = {"index": choice["index"], "logprobs": None, "finish_reason": None, **piece}
            out += b"data: %b\n\n" % _encode({**head, "choices": [said], **unsaid})
    if with_usage:
        out += b"data: %b\n\n" % _encode({**head, "choices": [], "usage": answer["usage"]})
    return out + DONE


def _pieces(choice: Json) -> list[Json]:
    message = choice["message"]
    pieces: list[Json] = [{"delta": {"role": message["role"], "content": ""}}]
    said = {name: message[name] for name in _SPOKEN if message.get(name)}
    if said:
        pieces.append({"delta": said, "logprobs": choice.get("logprobs")})
    if calls := message.get("tool_calls"):
        numbered = [{"index": at, **call} for at, call in enumerate(calls)]
        pieces.append({"delta": {"tool_calls": numbered}})
    pieces.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    return pieces


def _only(given: Json, known: tuple[str, ...]) -> None:
    """Raise where an object has members of which nobody here knows what they mean."""
    if any(name not in known and value is not None for name, value in given.items()):
        raise _Unknown
