"""The gateways of one public socket: those that take connections, and those that leave it to them.

They share the socket, so that while one comes and another goes a client always finds one of them.
"""

import asyncio
from collections.abc import Callable, Sequence

from tiffin.app.keeper import Keeper, Kept
from tiffin.control.fleet.status import State

LOOK_S = 0.02

Make = Callable[[str, int], Keeper]


class Gateways:
    """Kept in tasks of `group`, `number` of them; `make` builds a keeper by its name and by which
    of all it is. Those that were replaced have `finish_s` to finish what they have begun."""

    def __init__(
        self, group: asyncio.TaskGroup, make: Make, finish_s: float, number: int = 1
    ) -> None:
        self._group = group
        self._make = make
        self._finish_s = finish_s
        self._number = number
        self._leaving: list[Keeper] = []
        self._coming: list[Keeper] = []
        self._serving: list[Keeper] = []
        self.made = 0

    @property
    def keepers(self) -> list[Keeper]:
        """All: first those that take connections."""
        return [*self._serving, *self._coming, *self._leaving]

    @property
    def lasting(self) -> list[Keeper]:
        """Without those that are only tried."""
        return [*self._serving, *self._leaving]

    @property
    def serving(self) -> int:
        """How many take connections."""
        return len(self._serving)

    def start(self) -> None:
        """Have the first ones."""
        self._serving = self._begun()

    def adopt(self, kept: Sequence[Kept], made: int, serving: int = 1) -> None:
        """Go on with those that another program in this process had."""
        self._serving = [self._adopted(one, n) for n, one in enumerate(kept[:serving])]
        self._see_off([self._adopted(one, n) for n, one in enumerate(kept[serving:])])
        self.made = made

    async def replace(self, within_s: float) -> str:
        """Have others take over; the reason why they couldn't within that time, or nothing."""
        fresh = self._coming = self._begun()
        reasons = await asyncio.gather(*(until_ready(keeper, within_s) for keeper in fresh))
        if reason := next(filter(None, reasons), ""):
            for keeper in fresh:
                keeper.kill()
            await asyncio.gather(*(keeper.ended() for keeper in fresh))
            self._coming = []
            return reason
        before, self._serving, self._coming = self._serving, fresh, []
        self._see_off(before)
        return ""

    async def stop(self) -> None:
        """End all, side by side."""
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers))

    def _begun(self) -> list[Keeper]:
        """New ones, as many as there are to be, kept from now on."""
        fresh = [self._make(self._name(), ordinal) for ordinal in range(self._number)]
        for keeper in fresh:
            self._group.create_task(keeper.keep())
        return fresh

    def _name(self) -> str:
        self.made += 1
        return "gateway" if self.made == 1 else f"gateway-{self.made}"

    def _adopted(self, kept: Kept, ordinal: int) -> Keeper:
        keeper = self._make(kept.status.name, ordinal)
        keeper.adopt(kept)
        self._group.create_task(keeper.keep())
        return keeper

    def _see_off(self, keepers: Sequence[Keeper]) -> None:
        self._leaving += keepers
        for keeper in keepers:
            self._group.create_task(self._finish(keeper))

    async def _finish(self, keeper: Keeper) -> None:
        await keeper.finish(self._finish_s)
        self._leaving.remove(keeper)


async def until_ready(keeper: Keeper, within_s: float) -> str:
    """Wait for a keeper's process; the reason why it wasn't ready in time, or nothing.

    One that ends is started again meanwhile; one that says that this can't help isn't waited for.
    """
    try:
        async with asyncio.timeout(within_s):
            while keeper.status.state is not State.READY:
                if keeper.status.state is State.FAILED:
                    return f"{keeper.status.name}: {keeper.status.explained}"
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        why = keeper.status.explained or "it still starts"
        return f"{keeper.status.name} wasn't ready within {within_s:g} s: {why}"
    return ""
