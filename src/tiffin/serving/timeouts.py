"""How long a model may take for each part of an answer, and who watches over that."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tiffin.errors import ModelTimeout


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, 0: none. In the queue; from having a slot to the first token; between two tokens."""

    queue_s: float = 0.0
    first_token_s: float = 0.0
    between_tokens_s: float = 0.0


class Watch:
    """Raises `ModelTimeout` where what it holds waits for its next token for too long.

    It begins on entering; `came` ends it for now and `waits` begins it anew, so that a slow reader
    is no fault of the model's.
    """

    __slots__ = ("_begun", "_timeout", "_timeouts")

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._timeout = asyncio.timeout(timeouts.first_token_s or None)
        self._begun = False

    def came(self) -> None:
        """A token has come."""
        if not self._begun or self._timeouts.between_tokens_s:
            self._begun = True
            self._timeout.reschedule(None)

    def waits(self) -> None:
        """The next one is waited for."""
        if self._timeouts.between_tokens_s:
            now = asyncio.get_running_loop().time()
            self._timeout.reschedule(now + self._timeouts.between_tokens_s)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ModelTimeout(self._words()) from None

    def _words(self) -> str:
        limits = self._timeouts
        if self._begun:
            limit = f"{limits.between_tokens_s:g} s (between_tokens_timeout_s)"
            return f"the model gave no further token within {limit}"
        limit = f"{limits.first_token_s:g} s (first_token_timeout_s)"
        return f"the model gave no first token within {limit}"
