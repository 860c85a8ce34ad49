"""Whose requests a gateway finds odd, told to control through a file."""

import msgspec

from tiffin.gateway.anomalies.watch import Watch
from tiffin.ports.clock import Clock
from tiffin.types.anomalies import Oddities, Oddity
from tiffin.types.paths import DataFolder, odd_keys
from tiffin.types.whole_file import replace_file


class OddKeys:
    """Writes what a watch has seen, where that changed; there is no file where that is nothing."""

    def __init__(self, folder: DataFolder, gateway: str, watch: Watch, clock: Clock) -> None:
        self._path = odd_keys(folder, gateway)
        self._watch = watch
        self._clock = clock
        self._told: tuple[Oddity, ...] | None = None

    def tell(self) -> None:
        """Write it, if it can be written: it is tried again soon."""
        told = self._watch.told()
        if told == self._told:
            return
        try:
            if told:
                content = msgspec.json.encode(Oddities(at_ns=self._clock.now_ns(), keys=told))
                replace_file(self._path, content, lasting=False)
            else:
                self._path.unlink(missing_ok=True)
        except OSError:
            return
        self._told = told
