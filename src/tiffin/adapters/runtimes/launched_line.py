"""Questions to an engine that we launched, and what its answers mean: tokens, numbers, refusals."""

import asyncio
import contextlib
import math
from typing import Any, Final, Protocol, TypeVar

import msgspec

from tiffin.adapters.runtimes.launch_table import Names, Profile
from tiffin.errors import InvalidRequest, RunFailed, TiffinError, Unavailable, UnsupportedOperation
from tiffin.ports.backend import Backend, Call
from tiffin.serving.engine_measures import EngineNumbers
from tiffin.types.text import Message, Tool

QUESTION_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 67_108_864
_MAX_REASON: Final = 500

T = TypeVar("T")


class Pool(Backend, Protocol):
    """Connections to the engine."""

    def close(self) -> None:
        """Close all of them."""
        ...


class _Card(msgspec.Struct, frozen=True):
    max_model_len: int | None = None


class _Cards(msgspec.Struct, frozen=True):
    data: list[_Card] = []


class _Ids(msgspec.Struct, frozen=True):
    tokens: list[int]


class _Id(msgspec.Struct, frozen=True):
    id: int


class _ChatIds(msgspec.Struct, frozen=True):
    tokenize_response: list[_Id]


class _Spelled(msgspec.Struct, frozen=True):
    prompt: str


class EngineLine:
    """One engine's API over a pool of connections; `name` is what it calls its model."""

    def __init__(self, pool: Pool, profile: Profile, name: str) -> None:
        self.pool = pool
        self._profile = profile
        self._name = name

    async def healthy(self) -> bool:
        """Whether it says so itself, which isn't to be trusted alone."""
        try:
            await self._ask("GET", "/health", None)
        except TiffinError:
            return False
        return True

    async def longest(self) -> int | None:
        """How many tokens its context has, where it tells."""
        try:
            cards = _decoded(await self._ask("GET", "/v1/models", None), _Cards)
        except TiffinError:
            return None
        return next((card.max_model_len for card in cards.data if card.max_model_len), None)

    async def numbers(self) -> EngineNumbers:
        """What it says about itself; raises `TiffinError` where it doesn't answer."""
        text = await self._ask("GET", "/metrics", None)
        return read_numbers(text.decode("utf-8", "replace"), self._profile.names)

    async def text_tokens(self, text: str, *, special: bool) -> list[int]:
        """The ids of a text."""
        if self._profile.tokens == "tgi":
            asked: Any = {"inputs": text, "add_special_tokens": special}
            answer = await self._ask("POST", "/tokenize", asked)
            return [one.id for one in _decoded(answer, list[_Id])]
        asked = {"model": self._name, "prompt": text, "add_special_tokens": special}
        return _decoded(await self._ask("POST", "/tokenize", asked), _Ids).tokens

    async def chat_tokens(self, messages: list[Message], tools: list[Tool] | None) -> list[int]:
        """The ids of messages after its chat template; of their texts alone where it has no way."""
        asked: dict[str, Any] = {"model": self._name, "messages": msgspec.to_builtins(messages)}
        if tools:
            asked["tools"] = msgspec.to_builtins(tools)
        if not self._profile.counts_chat:
            return await self.text_tokens(said(messages), special=True)
        if self._profile.tokens == "tgi":
            answer = await self._ask("POST", "/chat_tokenize", asked)
            return [one.id for one in _decoded(answer, _ChatIds).tokenize_response]
        asked["add_generation_prompt"] = True
        return _decoded(await self._ask("POST", "/tokenize", asked), _Ids).tokens

    async def spell(self, tokens: list[int]) -> str:
        """The text of ids."""
        if self._profile.tokens == "tgi":
            raise UnsupportedOperation("this model's engine doesn't turn tokens into text")
        asked = {"model": self._name, "tokens": tokens}
        return _decoded(await self._ask("POST", "/detokenize", asked), _Spelled).prompt

    async def _ask(self, method: str, path: str, question: Any) -> bytes:
        body = b"" if question is None else msgspec.json.encode(question)
        deadline = asyncio.get_running_loop().time() + QUESTION_S
        call = Call(path.encode(), body, b"", deadline, method.encode())
        async with self.pool.start(call) as reply:
            answer = await reply.read_all(MAX_ANSWER_BYTES)
        if reply.status != 200:
            raise refusal(reply.status, answer)
        return answer


def said(messages: list[Message]) -> str:
    """The text of all messages."""
    texts: list[str] = []
    for message in messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        else:
            texts += [part.text or "" for part in message.content or ()]
    return "\n".join(texts)


def refusal(status: int, answer: bytes) -> TiffinError:
    """What the engine answered instead, as our error."""
    reason = f"status {status}"
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        reason = _reason(msgspec.json.decode(answer)) or reason
    if status in (400, 413, 422):
        return InvalidRequest(f"the engine refuses: {reason}")
    if status in (429, 503):
        return Unavailable(f"the engine is busy: {reason}", retry_after=1.0)
    return RunFailed(f"the engine failed: {reason}")


def _reason(told: Any) -> str:
    """The message of an error in whichever of their shapes."""
    if not isinstance(told, dict):
        return ""
    inner = told.get("error", told)
    found = inner.get("message", "") if isinstance(inner, dict) else inner
    return str(found or told.get("message") or told.get("detail") or "")[:_MAX_REASON]


def read_numbers(text: str, names: Names) -> EngineNumbers:
    """An engine's numbers out of Prometheus' text format, summed over labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0].strip()
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            found[name] = found.get(name, 0.0) + number
    return EngineNumbers(
        running=found.get(names.running),
        waiting=found.get(names.waiting),
        kv_usage=found.get(names.kv_usage),
        prefix_queries=found.get(names.prefix_queries),
        prefix_hits=found.get(names.prefix_hits),
        moved=sum(moving) if (moving := [found[n] for n in names.moving if n in found]) else None,
    )


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFailed(f"the engine's answer can't be read: {error}") from error
