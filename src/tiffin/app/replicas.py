"""The replicas of one machine: a keeper for each that runs, told to start and to end by name."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from tiffin.app.keeper import Keeper, Kept
from tiffin.control.fleet.reconcile import Start, reconcile
from tiffin.control.fleet.status import State
from tiffin.types.snapshot import Deployment

Make = Callable[[str, Deployment], Keeper]


class Replicas:
    """One keeper a running deployment, kept in tasks of `group`; `make` builds a keeper.

    What ends has `finish_s` to finish what it has begun.
    """

    def __init__(self, group: asyncio.TaskGroup, make: Make, finish_s: float = 0.0) -> None:
        self._group = group
        self._make = make
        self._finish_s = finish_s
        self._running: dict[str, Deployment] = {}
        self._keepers: dict[str, Keeper] = {}
        self._leaving: list[tuple[Deployment, Keeper]] = []
        self.wanted: Mapping[str, Deployment] = {}

    @property
    def keepers(self) -> list[Keeper]:
        """Those that run and those that drain."""
        return [*self._keepers.values(), *(keeper for _, keeper in self._leaving)]

    @property
    def running(self) -> list[tuple[Deployment, Keeper]]:
        """What is to go on running, with its keeper."""
        return [(self._running[name], keeper) for name, keeper in self._keepers.items()]

    @property
    def leaving(self) -> list[Deployment]:
        """What drains, and has its memory still."""
        return [deployment for deployment, _ in self._leaving]

    @property
    def handed(self) -> list[tuple[Deployment, Keeper, bool]]:
        """Everything for `adopt`: what runs and what drains (true), with its keeper."""
        running = [(deployment, keeper, False) for deployment, keeper in self.running]
        return [*running, *((deployment, keeper, True) for deployment, keeper in self._leaving)]

    def adopt(self, deployment: Deployment, kept: Kept, *, leaving: bool) -> None:
        """Go on with a replica that another program in this process had."""
        name = kept.status.name
        keeper = self._make(name, deployment)
        keeper.adopt(kept)
        self._group.create_task(keeper.keep())
        if leaving:
            self._leave(deployment, keeper)
        else:
            self._running[name], self._keepers[name] = deployment, keeper

    def follow(self, desired: Iterable[Deployment]) -> None:
        """Want these, which may be started; end all others; give failed ones another try."""
        for keeper in self._keepers.values():
            if keeper.status.state is State.FAILED:
                keeper.wake()
        self.wanted = {one.name: one for one in desired}
        for action in reconcile(self.wanted.values(), self._running):
            if not isinstance(action, Start):
                self.retire(action.name)
        self._running.update({name: self.wanted[name] for name in self._running})

    def start(self, name: str) -> None:
        """Run what is wanted under this name, where nothing of it runs or drains."""
        deployment = self.wanted[name]
        self._keepers[name] = keeper = self._make(name, deployment)
        self._running[name] = deployment
        self._group.create_task(keeper.keep())

    def retire(self, name: str) -> None:
        """End what runs under this name, after what it has begun."""
        self._leave(self._running.pop(name), self._keepers.pop(name))

    async def stop(self) -> None:
        """End all within the grace that they have, side by side."""
        leaving = [keeper for _, keeper in self._leaving]
        await asyncio.gather(*(keeper.stop() for keeper in (*leaving, *self._keepers.values())))

    def _leave(self, deployment: Deployment, keeper: Keeper) -> None:
        leaving = (deployment, keeper)
        self._leaving.append(leaving)
        self._group.create_task(self._see_off(leaving))

    async def _see_off(self, leaving: tuple[Deployment, Keeper]) -> None:
        await leaving[1].finish(self._finish_s)
        self._leaving.remove(leaving)
