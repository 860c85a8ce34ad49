"""A gateway's limits: where they are counted, how they stand, what is kept of them."""

import asyncio
import contextlib
from itertools import islice
from pathlib import Path

import msgspec

from tiffin.adapters.stores.shared_limits import SharedLimits
from tiffin.adapters.stores.spent import SpentFile
from tiffin.adapters.stores.valkey import dialer
from tiffin.app.boot import Boot
from tiffin.errors import LimitStoreUnavailable
from tiffin.gateway.admit import Admission, moments
from tiffin.gateway.limits.together import SharedCounts
from tiffin.gateway.share import Share
from tiffin.ports.clock import Clock
from tiffin.telemetry.metrics import Meter
from tiffin.types.limits import Standings
from tiffin.types.paths import DataFolder, spent, standing_limits
from tiffin.types.snapshot import Snapshot
from tiffin.types.whole_file import replace_file

LOOK_AT = 5_000
TELL_OF = 500
REPAY_EVERY_S = 0.5
TELL_WITHIN_S = 1.0
DEGRADED = "the store of limits doesn't answer: each gateway counts its share, or refuses"
MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Limiting:
    """Admission with its file of what was spent, and the store that gateways share, where there is
    one. `tick` is called every second, `keep` runs for as long as requests come."""

    def __init__(self, boot: Boot, clock: Clock, meter: Meter) -> None:
        data = DataFolder(Path(boot.data))
        self._clock = clock
        self._spent = SpentFile(spent(data), boot.epoch, clock.now_ns())
        self._met = 0
        self._told = Standings()
        self._path = standing_limits(data, boot.name)
        self._turned = asyncio.Event()
        self._store = self._counts = None
        address = boot.server.limit_store
        if address.url:
            self._store = SharedLimits(
                dialer(address),
                clock,
                boot.epoch,
                boot=MACHINE_BOOT.read_text().strip(),
                prefix=address.prefix,
                turned=self._turn,
            )
            self._counts = SharedCounts(self._store, Share(boot.ordinal, boot.server.gateways))
        self._up = meter.gauge(
            "tiffin_limit_stores_up", "Gateways that reach the store in which they count limits"
        )
        self.admission = Admission(
            clock, boot.server.max_in_flight, self._spent, meter, self._counts
        )

    @property
    def degraded(self) -> str:
        """What is wrong with limits, for anybody to know, or empty."""
        return DEGRADED if self._store is not None and not self._store.up else ""

    async def keep(self) -> None:
        """Reach the store, again and again, and tell it what was spent without it."""
        if self._store is not None and self._counts is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._store.keep())
                group.create_task(self._repay(self._store, self._counts))

    async def settled(self) -> None:
        """Wait a moment until the store knows how everything ended; it holds what it isn't told."""
        if self._store is None:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + TELL_WITHIN_S
        # Each is acknowledged by itself.
        while self._store.up and self._store.unsettled and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def tick(self, snapshot: Snapshot | None) -> None:
        """Look at other gateways, forget what may be forgotten, tell how limits stand."""
        if self._store is None:
            self._spent.look()
        if snapshot is not None and snapshot.number != self._met:
            self._met = snapshot.number
            self.admission.limits.meet(snapshot, moments(self._clock))
        self.admission.sweep()
        self._tell()

    def _turn(self) -> None:
        """The store has come or gone: what others spent is on record, and what we owe is told."""
        self._spent.look()
        self._turned.set()

    async def _repay(self, store: SharedLimits, counts: SharedCounts) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPAY_EVERY_S):
                    await self._turned.wait()
            self._turned.clear()
            if store.up:
                with contextlib.suppress(LimitStoreUnavailable):
                    await counts.repay(moments(self._clock))

    def _tell(self) -> None:
        now = moments(self._clock)
        found = [limit.standing(now) for limit in islice(self.admission.limits, LOOK_AT)]
        if len(found) > TELL_OF:
            found.sort(key=lambda one: one.left / one.whole)
        why = f"{DEGRADED} ({self._store.why})" if self._store and not self._store.up else ""
        told = Standings(limits=tuple(found[:TELL_OF]), degraded=why)
        self._up.set(self._store is not None and self._store.up)
        if told == self._told:
            return
        try:
            content = msgspec.json.encode(msgspec.structs.replace(told, at_ns=now[1]))
            replace_file(self._path, content, lasting=False)
        except OSError:
            return  # the disk is full: it is tried again soon
        self._told = told
