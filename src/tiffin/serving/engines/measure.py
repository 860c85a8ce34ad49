"""Measures a loaded text runtime: speed, first token, and what it would choose, in bounded time.

Only the port is used, so any engine is measured the same way.
"""

import asyncio
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tiffin.errors import RunFailed
from tiffin.ports.clock import Clock
from tiffin.ports.text_runtime import Delta, Prompt, TextRuntime
from tiffin.types.text import CompletionRequest

AT_ONCE: Final = (1, 4, 8, 16)
CONTEXT: Final = 512
SPEED_S: Final = 1.5
"""How long answers run for each number of them."""
FIRSTS: Final = 3
FIRST_TOKENS: Final = 128
ANSWER_TOKENS: Final = 256
MIN_PREFIX: Final = 8
PLACES: Final = 24
TEXT: Final = (
    "A baker in a small town starts the oven at four in the morning. First the rye bread goes in,"
    " because it needs the longest time; then come the rolls, and last the cakes. At seven the door"
    " opens, and people who are on their way to work buy what is still warm. In 2019 the price of"
    " one roll was 35 cents, and 12 rolls cost 4.20 euros."
)


@dataclass(frozen=True, slots=True)
class First:
    """The token that an engine would choose at one place, and its log-probability."""

    token: bytes
    logprob: float


@dataclass(slots=True)
class Figures:
    """What was found: see `types.calibration.Measured` for the units."""

    firsts: list[First] = field(default_factory=list)
    ttft_ms: float = 0.0
    tokens_per_s: dict[int, float] = field(default_factory=dict)


def drift(firsts: Sequence[First], reference: Sequence[First]) -> tuple[float, float]:
    """How far the log-probabilities lie apart on average, and the share of equal choices."""
    pairs = list(zip(firsts, reference, strict=True))
    if not pairs:
        return 0.0, 1.0
    apart = sum(abs(one.logprob - other.logprob) for one, other in pairs) / len(pairs)
    return apart, sum(one.token == other.token for one, other in pairs) / len(pairs)


async def choices(runtime: TextRuntime, places: int = PLACES) -> list[First]:
    """What it would choose after so many beginnings of one text, each of which goes on the last."""
    tokens = await runtime.tokenize(text=TEXT, messages=None, tools=None, special=True)
    ends = range(MIN_PREFIX, len(tokens), max((len(tokens) - MIN_PREFIX) // places, 1))
    found = []
    for end in list(ends)[:places]:
        [prompt] = await runtime.prepare(_request(tokens[:end], 1))
        chosen = [
            one
            for delta in await _read(runtime, prompt, again=True)
            for one in delta.logprobs or ()
        ]
        first = chosen[0] if chosen else None
        found.append(First(bytes(first.token_bytes), first.logprob) if first else First(b"", 0.0))
    return found


async def speeds(runtime: TextRuntime, clock: Clock, slots: int, each_s: float) -> Figures:
    """First token and tokens per second for each number of answers that the slots allow."""
    text = await runtime.tokenize(text=TEXT, messages=None, tools=None, special=True)
    long = (text * (FIRST_TOKENS // len(text) + 1))[:FIRST_TOKENS]
    figures = Figures()
    waits = []
    for at in range(FIRSTS):
        [prompt] = await runtime.prepare(_request([long[at], *long[1:]], 1))
        began = clock.monotonic()
        await _read(runtime, prompt)
        waits.append((clock.monotonic() - began) * 1000)
    figures.ttft_ms = statistics.median(waits)
    [prompt] = await runtime.prepare(_request(text[: MIN_PREFIX * 4], ANSWER_TOKENS))
    for many in (number for number in AT_ONCE if number <= slots):
        counts = [_Count() for _ in range(many)]
        async with asyncio.TaskGroup() as group:
            for slot, count in enumerate(counts):
                group.create_task(_count(runtime, prompt, slot, count, clock, each_s))
        figures.tokens_per_s[many] = sum(count.rate() for count in counts)
    return figures


@dataclass(slots=True)
class _Count:
    tokens: int = 0
    began: float = 0.0
    ended: float = 0.0

    def rate(self) -> float:
        return self.tokens / (self.ended - self.began) if self.ended > self.began else 0.0


async def _count(
    runtime: TextRuntime, prompt: Prompt, slot: int, count: _Count, clock: Clock, each_s: float
) -> None:
    """Count the tokens of answers, one after another, from the first token on for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(4 * each_s):
            while not count.began or count.ended - count.began < each_s:
                run = runtime.start(prompt, slot=slot, sample=0, reuse_prefix=False)
                async with run as deltas:
                    async for delta in deltas:
                        count.ended = clock.monotonic()
                        if not count.began:
                            count.began = count.ended
                            continue
                        count.tokens += delta.tokens
                        if count.ended - count.began >= each_s:
                            break


async def _read(runtime: TextRuntime, prompt: Prompt, *, again: bool = False) -> list[Delta]:
    async with runtime.start(prompt, slot=0, sample=0, reuse_prefix=again) as deltas:
        read = [delta async for delta in deltas]
    if not read:
        raise RunFailed("the engine gave no answer")
    return read


def _request(tokens: list[int], most: int) -> CompletionRequest:
    return CompletionRequest(
        model="calibration", prompt=[*tokens], max_tokens=most, temperature=0.0, logprobs=0
    )
