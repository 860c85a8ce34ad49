"""A gateway's limits: what is spent is kept, how they stand is told, the idle are forgotten."""

from itertools import islice
from pathlib import Path

import msgspec

from tiffin.adapters.stores.spent import SpentFile
from tiffin.app.boot import Boot
from tiffin.gateway.admit import Admission, moments
from tiffin.ports.clock import Clock
from tiffin.telemetry.metrics import Meter
from tiffin.types.limits import Standing, Standings
from tiffin.types.paths import DataFolder, spent, standing_limits
from tiffin.types.snapshot import Snapshot
from tiffin.types.whole_file import replace_file

LOOK_AT = 5_000
TELL_OF = 500


class Limiting:
    """Admission with its file of what was spent; `tick` is called every second."""

    def __init__(self, boot: Boot, clock: Clock, meter: Meter) -> None:
        data = DataFolder(Path(boot.data))
        self._clock = clock
        self._spent = SpentFile(spent(data), boot.epoch, clock.now_ns())
        self._met = 0
        self._told: tuple[Standing, ...] = ()
        self._path = standing_limits(data, boot.name)
        self.admission = Admission(clock, boot.server.max_in_flight, self._spent, meter)

    def tick(self, snapshot: Snapshot | None) -> None:
        """Look at other gateways, forget what may be forgotten, tell how limits stand."""
        self._spent.look()
        if snapshot is not None and snapshot.number != self._met:
            self._met = snapshot.number
            self.admission.limits.meet(snapshot, moments(self._clock))
        self.admission.sweep()
        self._tell()

    def _tell(self) -> None:
        now = moments(self._clock)
        found = [limit.standing(now) for limit in islice(self.admission.limits, LOOK_AT)]
        if len(found) > TELL_OF:
            found.sort(key=lambda one: one.left / one.whole)
        told = tuple(found[:TELL_OF])
        if told == self._told:
            return
        try:
            content = msgspec.json.encode(Standings(at_ns=now[1], limits=told))
            replace_file(self._path, content, lasting=False)
        except OSError:
            return  # the disk is full: it is tried again soon
        self._told = told
