"""Tokens that last a while: had from an endpoint of their own, kept, and had anew in time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tiffin.errors import TiffinError
from tiffin.ports.backend import Call

EARLY_S: Final = 300.0
"""How long before a token is over another one is asked for, beside the calls."""
SPARE_S: Final = 10.0
"""How long before that no call is sent with it any more."""
AGAIN_S: Final = 10.0
"""After how long another one is asked for beside the calls, where that failed."""


class Lent(NamedTuple):
    """A token, and for how many seconds from its asking it holds."""

    token: str
    lasts_s: float


class _Kept(NamedTuple):
    line: bytes
    early: float
    over: float


class BearerSigner:
    """Satisfies `ports.signer.Signer` by a token that `ask` has; it is asked once at a time.

    `ask` must end in bounded time. A call waits for it only where there is no token that holds.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[Lent | TiffinError]], close: Callable[[], None]
    ) -> None:
        self._ask = ask
        self._close = close
        self._loop = asyncio.get_running_loop()
        self._kept: _Kept | None = None
        self._let_in = b""
        self._asking: asyncio.Task[_Kept | TiffinError] | None = None
        self._again = 0.0

    async def lines(self, call: Call) -> bytes:
        """The token's line; raises what `ask` found."""
        now, kept = self._loop.time(), self._kept
        if kept is not None and now < kept.over:
            if now >= kept.early and now >= self._again and self._asking is None:
                self._begin()
            return kept.line
        found = await asyncio.shield(self._asking or self._begin())
        if isinstance(found, TiffinError):
            raise _afresh(found)
        return found.line

    def accepted(self, lines: bytes) -> None:
        """It was let in."""
        self._let_in = lines

    def refused(self, lines: bytes) -> bool:
        """It is forgotten; true where it had been let in before, or another has come since."""
        if self._kept is not None and self._kept.line == lines:
            self._kept = None
            return lines == self._let_in
        return True

    def close(self) -> None:
        """Ask no more: what asks now fails."""
        self._close()

    def _begin(self) -> "asyncio.Task[_Kept | TiffinError]":
        task = self._asking = self._loop.create_task(self._had())
        task.add_done_callback(self._ended)
        return task

    async def _had(self) -> _Kept | TiffinError:
        began = self._loop.time()
        found = await self._ask()
        if isinstance(found, TiffinError):
            self._again = self._loop.time() + AGAIN_S
            return found
        over = began + max(0.0, found.lasts_s - SPARE_S)
        early = max(began, over - EARLY_S)
        self._kept = _Kept(f"authorization: Bearer {found.token}\r\n".encode(), early, over)
        return self._kept

    def _ended(self, task: "asyncio.Task[_Kept | TiffinError]") -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # whoever waits for it sees it, and nobody may


def _afresh(error: TiffinError) -> TiffinError:
    """The same for each who waited: an error that several raise would gather their traces."""
    made = type(error)(error.message, retry_after=error.retry_after)
    made.status = error.status
    return made
