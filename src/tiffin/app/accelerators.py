"""Gives replicas of one machine their devices, and remembers what was promised to whom."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from tiffin.app.polled_file import PolledFile
from tiffin.control.fleet.devices import Promise, seat
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.control.machine import FILE
from tiffin.types.machine import CPU, Machine
from tiffin.types.snapshot import Deployment

FIRST_LOOK_S = 10.0
LOOK_S = 0.05
UNKNOWN = "which devices this machine has isn't known yet"


class Accelerators:
    """Reads what control sees of the machine from the run folder. `promises` are by replica."""

    def __init__(self, run: Path) -> None:
        self._file = PolledFile(run / FILE, Machine)
        self._machine = Machine()
        self.promises: dict[str, Promise] = {}

    async def known(self, deployments: Iterable[Deployment]) -> None:
        """Wait until somebody has looked at the machine, where any of these wants a device of it.

        At the start that takes about as long as control does; after `FIRST_LOOK_S` nobody waits.
        """
        if not any(_wants_devices(one) for one in deployments):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S):
                while not self._seen():  # noqa: ASYNC110 - control tells by a file
                    await asyncio.sleep(LOOK_S)

    def placed(self, name: str, deployment: Deployment) -> Deployment:
        """The deployment with the devices that its replica gets now, promised to it from here on.

        Where there is no room it gets none, and `hindrance` says why.
        """
        self.promises.pop(name, None)
        if not _wants_devices(deployment):
            return deployment
        if not self._seen():
            return msgspec.structs.replace(deployment, devices=(), hindrance=UNKNOWN)
        need = deployment.device_bytes
        given = seat(deployment.devices, need, self._machine, list(self.promises.values()))
        if any(one != CPU for one in given.devices):
            self.promises[name] = Promise(devices=given.devices, need_bytes=need)
        return msgspec.structs.replace(deployment, devices=given.devices, hindrance=given.refusal)

    def follow(self, processes: Iterable[ProcessStatus]) -> None:
        """Take back what was promised to those that have gone; what the ready ones took shows."""
        if not self.promises:
            return
        living = {one.name: one for one in processes if one.pid}
        for name, promise in list(self.promises.items()):
            if name not in living:
                del self.promises[name]
            elif promise.loading and living[name].state is State.READY:
                self.promises[name] = replace(promise, loading=False)

    def _seen(self) -> bool:
        if (seen := self._file.changed()) is not None:
            self._machine = seen
        return self._machine.seen_ns > 0


def _wants_devices(deployment: Deployment) -> bool:
    return any(wanted != CPU for wanted in deployment.devices)
