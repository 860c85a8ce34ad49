"""The gateways of one public socket: one that takes connections, and those that it took over from.

They share the socket, so that while one comes and another goes a client always finds one of them.
"""

import asyncio
from collections.abc import Callable, Sequence

from tiffin.app.keeper import Keeper, Kept
from tiffin.control.fleet.status import State

LOOK_S = 0.02

Make = Callable[[str], Keeper]


class Gateways:
    """Kept in tasks of `group`; `make` builds a keeper by name. One that was replaced has
    `finish_s` to finish what it has begun."""

    def __init__(self, group: asyncio.TaskGroup, make: Make, finish_s: float) -> None:
        self._group = group
        self._make = make
        self._finish_s = finish_s
        self._leaving: list[Keeper] = []
        self._coming: list[Keeper] = []
        self._current: Keeper | None = None
        self.made = 0

    @property
    def keepers(self) -> list[Keeper]:
        """All: first the one that takes connections."""
        current = [self._current] if self._current else []
        return [*current, *self._coming, *self._leaving]

    @property
    def lasting(self) -> list[Keeper]:
        """Without those that are only tried."""
        return [keeper for keeper in self.keepers if keeper not in self._coming]

    def start(self) -> None:
        """Have the first one."""
        self._current = self._made()
        self._group.create_task(self._current.keep())

    def adopt(self, kept: Sequence[Kept], made: int) -> None:
        """Go on with those that another program in this process had."""
        first, *others = kept
        self._current = self._adopted(first)
        for one in others:
            keeper = self._adopted(one)
            self._leaving.append(keeper)
            self._group.create_task(self._see_off(keeper))
        self.made = made

    async def replace(self, within_s: float) -> str:
        """Have another one take over; the reason why it couldn't within that time, or nothing."""
        fresh = self._made()
        self._coming.append(fresh)
        self._group.create_task(fresh.keep())
        reason = await until_ready(fresh, within_s)
        if reason:
            fresh.kill()
            await fresh.ended()
            self._coming.remove(fresh)
            return reason
        self._coming.remove(fresh)
        old, self._current = self._current, fresh
        if old is not None:
            self._leaving.append(old)
            self._group.create_task(self._see_off(old))
        return ""

    async def stop(self) -> None:
        """End all, side by side."""
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers))

    def _made(self) -> Keeper:
        self.made += 1
        return self._make("gateway" if self.made == 1 else f"gateway-{self.made}")

    def _adopted(self, kept: Kept) -> Keeper:
        keeper = self._make(kept.status.name)
        keeper.adopt(kept)
        self._group.create_task(keeper.keep())
        return keeper

    async def _see_off(self, keeper: Keeper) -> None:
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
