"""An engine of somebody else's that we launch, as what a replica hosts."""

import asyncio
import contextlib

from tiffin.app.adapters import launched
from tiffin.app.hosted import Surroundings
from tiffin.app.hosted_text import TextHosted
from tiffin.errors import RunFailed, TiffinError
from tiffin.ports.exchange import Exchange
from tiffin.serving.engine_measures import EngineMeasures, EngineNumbers

LOOK_BUSY_S = 1.0
LOOK_IDLE_S = 5.0


class LaunchedHosted:
    """Satisfies `app.hosted.Hosted`: a replica of texts, and a watch over its engine.

    An engine that ended by itself ends this process too, which its keeper then starts anew.
    """

    def __init__(self, around: Surroundings) -> None:
        self._progress = around.progress
        self._runtime = launched(around.deployment)
        self._text = TextHosted(around, self._runtime)
        self._measures = EngineMeasures(around.meter, around.deployment.model)
        self._moved = 0.0
        self._watching: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Start the engine and load its model; raises `LoadFailed`."""
        await self._text.load()
        self._watching = asyncio.create_task(self._watch())

    async def warm_up(self) -> None:
        """A short chat; ready afterwards. Raises `LoadFailed`."""
        await self._text.warm_up()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._text.answer(exchange)

    def look(self) -> None:
        """Note how full it is; raises `RunFailed` where the engine has ended."""
        self._text.look()
        if self._runtime.fault:
            raise RunFailed(self._runtime.fault)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let answers finish."""
        await self._text.drain(within_s)

    async def close(self) -> None:
        """End the engine."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        await self._text.close()

    async def _watch(self) -> None:
        """Pass on what the engine counts, and show that it moves while it reads a long prompt.

        One that counts nothing is taken to move while it says that it is healthy.
        """
        while True:
            try:
                numbers = await self._runtime.numbers()
            except TiffinError:
                numbers = EngineNumbers()
            self._measures.note(numbers)
            if numbers.moved is None:
                moved = await self._runtime.healthy()
            else:
                moved, self._moved = numbers.moved != self._moved, numbers.moved
            if moved:
                self._progress.step()
            await asyncio.sleep(LOOK_BUSY_S if self._text.busy else LOOK_IDLE_S)
