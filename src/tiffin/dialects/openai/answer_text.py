"""Everything that an answer says, as one text: what a guard of answers looks at."""

from typing import Any

import msgspec

_SPOKEN = ("content", "refusal", "reasoning_content", "text", "arguments", "name")


def answer_text(body: bytes, *, streaming: bool) -> str:
    """All words of a whole reply or of a stream's events, choice by choice.

    Raises `msgspec.DecodeError` where the body isn't the dialect's, so that a guard fails closed.
    """
    if not streaming:
        return "\n".join(_said(msgspec.json.decode(body).get("choices", [])).values())
    spoken: dict[tuple[int, str], str] = {}
    for event in body.split(b"\n\n"):
        payload = event.removeprefix(b"data: ")
        if payload and payload != b"[DONE]" and not event.startswith(b":"):
            for key, text in _said(msgspec.json.decode(payload).get("choices") or []).items():
                spoken[key] = spoken.get(key, "") + text
    return "\n".join(spoken.values())


def _said(choices: list[Any]) -> dict[tuple[int, str], str]:
    """The strings below each choice that a client may show or act on, by choice and place."""
    said: dict[tuple[int, str], str] = {}
    for choice in choices:
        index = choice.get("index", 0)
        waiting: list[tuple[str, Any]] = [("", choice)]
        while waiting:
            path, value = waiting.pop()
            if isinstance(value, dict):
                waiting += [(f"{path}.{name}", below) for name, below in value.items()]
            elif isinstance(value, list) and not path.endswith("logprobs"):
                waiting += [(f"{path}.{at}", below) for at, below in enumerate(value)]
            elif isinstance(value, str) and path.rpartition(".")[2] in _SPOKEN:
                said[index, path] = said.get((index, path), "") + value
    return said
