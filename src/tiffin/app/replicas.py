"""The replicas of one machine, made to agree with what the snapshot wants."""

import asyncio
from collections.abc import Callable, Iterable

from tiffin.app.keeper import Keeper
from tiffin.control.fleet.reconcile import Stop, reconcile
from tiffin.control.fleet.status import State
from tiffin.types.snapshot import Deployment

Make = Callable[[str, Deployment], Keeper]


class Replicas:
    """One keeper a deployment, kept in tasks of `group`; `make` builds a keeper."""

    def __init__(self, group: asyncio.TaskGroup, make: Make) -> None:
        self._group = group
        self._make = make
        self._running: dict[str, Deployment] = {}
        self._keepers: dict[str, Keeper] = {}
        self._leaving: list[Keeper] = []

    @property
    def keepers(self) -> list[Keeper]:
        """Those that run and those that drain."""
        return [*self._keepers.values(), *self._leaving]

    def follow(self, desired: Iterable[Deployment]) -> None:
        """Start, replace and stop replicas until `desired` runs; gives failed ones another try."""
        for keeper in self._keepers.values():
            if keeper.status.state is State.FAILED:
                keeper.wake()
        wanted = list(desired)
        for action in reconcile(wanted, self._running):
            if action.name in self._running:
                self._leave(action.name)
            if not isinstance(action, Stop):
                self._enter(action.name, action.deployment)
        self._running.update((one.name, one) for one in wanted)

    async def stop(self) -> None:
        """Drain and end all, side by side."""
        for name in list(self._running):
            self._leave(name)
        await asyncio.gather(*(keeper.stop() for keeper in self._leaving))

    def _enter(self, name: str, deployment: Deployment) -> None:
        keeper = self._make(name, deployment)
        self._running[name] = deployment
        self._keepers[name] = keeper
        # They use the same socket, so those that leave come first.
        before = [leaving for leaving in self._leaving if leaving.status.name == name]
        self._group.create_task(self._keep(keeper, before))

    async def _keep(self, keeper: Keeper, before: list[Keeper]) -> None:
        for leaving in before:
            await leaving.ended()
        await keeper.keep()

    def _leave(self, name: str) -> None:
        del self._running[name]
        keeper = self._keepers.pop(name)
        self._leaving.append(keeper)
        self._group.create_task(self._see_off(keeper))

    async def _see_off(self, keeper: Keeper) -> None:
        await keeper.stop()
        self._leaving.remove(keeper)
