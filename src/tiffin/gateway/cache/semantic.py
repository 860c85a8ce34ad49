"""What a flight does for a question that others may have asked in other words.

Rules find who meant the same (`wording.meaning`): what they say is a part of the scope in which
answers are looked for, and is checked again for each. Only then two vectors are compared. So an
embedder can refuse what rules let pass, and is asked where there is something to refuse.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from math import sqrt
from operator import mul
from typing import Final, NamedTuple

import msgspec

from tiffin.dialects.dialect import Question, Whole
from tiffin.dialects.openai.embeddings import EmbeddingAsked, vectors_of
from tiffin.errors import TiffinError
from tiffin.gateway.account import Account
from tiffin.gateway.cache.courses import WholeCourse, slot_of
from tiffin.gateway.cache.flights import Making
from tiffin.gateway.cache.rules import wants_fresh
from tiffin.gateway.cache.shelf import Placed, Remembered, Shelf, Slot
from tiffin.gateway.cache.wording.meaning import Meaning, meaning_of, same
from tiffin.gateway.due import Due
from tiffin.gateway.respond import Delivery
from tiffin.gateway.run import Answer, Run
from tiffin.ports.exchange import Headers
from tiffin.types.snapshot import Plan
from tiffin.types.texts import EmbeddingRequest

SIMILARITY: Final = b"x-tiffin-cache-similarity"
MOST: Final = 4
"""How many questions that mean the same are compared."""


class Asking(NamedTuple):
    """A question, and who says how similar it is to another."""

    question: Question
    embedder: Plan


class SemanticCourse(WholeCourse):
    """One answer under one key, else that of a question which means the same.

    Satisfies `flights.Course`; `key` is then that one's.
    """

    def __init__(
        self, shelf: Shelf, run: Run, delivery: Delivery, make: Making, asking: Asking
    ) -> None:
        super().__init__(shelf, run, delivery, make)
        self._asking = asking
        self._scope = b""
        self._similarity = 0.0

    def headers(self) -> Headers:
        """How similar the question was whose answer is given."""
        if self.result != "semantic":
            return []
        return [(SIMILARITY, b"%.3f" % self._similarity)]

    async def find(self, work: Account) -> Remembered | None:
        """The answer, if it or that of a question which means the same is kept."""
        kept = await super().find(work)
        if kept is not None:
            return kept
        meaning = await asyncio.to_thread(meaning_of, self._asking.question.text)
        thresholds = self.run.plan.cache.semantic.thresholds
        if meaning is None or meaning.language not in thresholds:
            return None
        self._scope = self._scope_of(meaning)
        if wants_fresh(self.delivery.exchange):
            return None
        near = await self._near(meaning)
        if not near:
            return None
        similar = await self._similarities([text for _, text in near], work)
        best = max(similar, default=0.0)
        if best < thresholds[meaning.language]:
            return None
        return await self._given(near[similar.index(best)][0], best)

    def _placed(self, kept: Remembered) -> Placed:
        return Placed(self.slot, kept, self._scope, self._asking.question.text.encode())

    def _scope_of(self, meaning: Meaning) -> bytes:
        """Equal for requests that differ in the words of their last question at most."""
        question, embedder = self._asking
        parts = [question.around, embedder.identity.encode(), meaning.digest]
        return slot_of(self.run, self.delivery, msgspec.msgpack.encode(parts)).key

    async def _near(self, meaning: Meaning) -> list[tuple[Slot, str]]:
        """Questions that mean the same for sure, and where their answers are."""
        found = []
        for slot, asked in await self._shelf.near(self.slot, self._scope, MOST):
            text = asked.decode()
            other = meaning_of(text)
            if other is not None and same(meaning, other):
                found.append((slot, text))
        return found

    async def _given(self, slot: Slot, similarity: float) -> Remembered | None:
        found = await self._shelf.find([slot])
        kept = self.in_form(found[slot]) if found else None
        if kept is not None:
            self.result, self.key, self._similarity = "semantic", slot.key, similarity
        return kept

    async def _similarities(self, others: list[str], work: Account) -> list[float]:
        """How similar each of them is to the question; none where the embedder can't say soon."""
        embedder = self._asking.embedder
        request = EmbeddingRequest(model=embedder.name, input=[self._asking.question.text, *others])
        wait_s = self.run.plan.cache.semantic.wait_ms / 1000
        until = asyncio.get_running_loop().time() + wait_s
        run = replace(
            self.run,
            asked=EmbeddingAsked(request, msgspec.json.encode(request)),
            plan=embedder,
            due=Due(min(until, self.run.due.deadline)),
            most_tokens=0,
            paying=None,
        )
        try:
            async with asyncio.timeout_at(run.due.deadline):
                body = await _answered(self._make(run, work))
        except (TiffinError, TimeoutError):
            return []
        vectors = vectors_of(body)
        if len(vectors) != len(request.input):
            return []
        return [cosine(vectors[0], vector) for vector in vectors[1:]]


async def _answered(making: AbstractAsyncContextManager[Answer]) -> bytes:
    async with making as answer:
        return answer.body if isinstance(answer, Whole) else b""


def cosine(one: list[float], other: list[float]) -> float:
    """The cosine of the angle between two vectors; 0 where there is none."""
    size = sqrt(sum(map(mul, one, one)) * sum(map(mul, other, other)))
    return sum(map(mul, one, other)) / size if size and len(one) == len(other) else 0.0
