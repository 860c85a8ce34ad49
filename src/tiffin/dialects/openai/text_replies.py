"""Answers to completion requests, whole and streamed, from the same steps."""

from typing import Any

from tiffin.dialects.openai.replies import EVENTS, JSON, NULL, Chunks, Head, encode, finite, whole
from tiffin.ports.text_runtime import Delta, TokenLogprob
from tiffin.types.usage import Usage

Logprobs = dict[str, list[Any]]

_KIND = "text_completion"


class TextStream:
    """Chunks of `text_completion`. `echo` has, for each choice, the text that goes before it."""

    content_type = EVENTS

    def __init__(self, head: Head, echo: list[str], *, include_usage: bool) -> None:
        self._chunks = Chunks(head, _KIND, "text", len(echo), include_usage=include_usage)
        self._choices = [_Choice(text) for text in echo]

    def piece(self, choice: int, delta: Delta) -> bytes:
        """The chunks of this step."""
        text, logprobs = self._choices[choice].read(delta)
        out = b""
        if text or logprobs is not None:
            out = self._chunks.chunk(choice, encode(text), encode(logprobs))
        if delta.finish is not None:
            out += self._chunks.chunk(choice, b'""', NULL, encode(delta.finish))
        return out

    def end(self, usage: Usage) -> bytes:
        """The usage chunk and `[DONE]`."""
        return self._chunks.end(usage)


class TextWhole:
    """One `text_completion`, sent at the end."""

    content_type = JSON

    def __init__(self, head: Head, echo: list[str]) -> None:
        self._head = head
        self._choices = [_Choice(text) for text in echo]
        self._collected = [_Collected() for _ in echo]

    def piece(self, choice: int, delta: Delta) -> bytes:
        """Nothing: it is collected."""
        self._collected[choice].add(*self._choices[choice].read(delta), delta.finish)
        return b""

    def end(self, usage: Usage) -> bytes:
        """The whole object."""
        choices = [collected.choice(number) for number, collected in enumerate(self._collected)]
        return whole(self._head, _KIND, choices, usage)


class _Choice:
    """One choice on its way: knows how much text came before."""

    def __init__(self, echo: str) -> None:
        self._echo = echo
        self._offset = len(echo)

    def read(self, delta: Delta) -> tuple[str, Logprobs | None]:
        """The text of this step and its log-probabilities, if it has any."""
        text, self._echo = self._echo + delta.text, ""
        if delta.logprobs is None:
            self._offset += len(delta.text)
            return text, None
        return text, self._logprobs(delta.logprobs)

    def _logprobs(self, tokens: list[TokenLogprob]) -> Logprobs:
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token.token)
        return {
            "tokens": [token.token for token in tokens],
            "token_logprobs": [finite(token.logprob) for token in tokens],
            "top_logprobs": [{t.token: finite(t.logprob) for t in token.top} for token in tokens],
            "text_offset": offsets,
        }


class _Collected:
    """A whole choice, while it is collected."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: Logprobs | None = None
        self._finish: str | None = None

    def add(self, text: str, logprobs: Logprobs | None, finish: str | None) -> None:
        self._texts.append(text)
        self._finish = finish
        if logprobs is not None and self._logprobs is not None:
            for name, values in logprobs.items():
                self._logprobs[name] += values
        elif logprobs is not None:
            self._logprobs = logprobs

    def choice(self, number: int) -> dict[str, Any]:
        return {
            "index": number,
            "text": "".join(self._texts),
            "logprobs": self._logprobs,
            "finish_reason": self._finish,
        }
