"""What control does again and again: tried again when it fails, and never failing in silence."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tiffin.errors import TiffinError
from tiffin.telemetry import log

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 15.0


@dataclass(slots=True)
class Chore:
    """Work that is done every `every_s` seconds; with None, once, however long that takes.

    Where there was nothing to do (it returned 0), it is done again only after `idle_s` seconds.
    `fault` says what its last try failed of; it is empty while all is well.
    """

    name: str
    work: Callable[[], Awaitable[object]]
    every_s: float | None
    idle_s: float = 0.0
    fault: str = ""

    async def run(self) -> None:
        """Do it until it is done or cancelled; after a failure wait, ever longer, and try again."""
        delay_s = FIRST_RETRY_S
        while True:
            try:
                done = await self.work()
            except Exception as failure:  # noqa: BLE001 - the edge of a chore: it must go on
                self._failed(failure)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, LAST_RETRY_S)
                continue
            if self.fault:
                log.info("chore recovered", chore=self.name)
            self.fault, delay_s = "", FIRST_RETRY_S
            if self.every_s is None:
                return
            await asyncio.sleep(max(self.every_s, self.idle_s) if done == 0 else self.every_s)

    def _failed(self, failure: Exception) -> None:
        expected = isinstance(failure, TiffinError | OSError)
        reason = str(failure) if expected else f"{type(failure).__name__}: {failure}"
        if reason != self.fault:
            log.error(
                "chore failed",
                chore=self.name,
                error=reason,
                exc_info=None if expected else failure,
            )
        self.fault = reason
