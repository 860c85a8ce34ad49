"""What replicas really took, by generation: memory and times, kept over restarts."""

from pathlib import Path
from typing import Final

import msgspec

from tiffin.telemetry import log
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

MOST: Final = 256
"""How many generations are remembered; the one that was measured longest ago goes first."""

TRUSTED_LOOKS: Final = 10
"""After so many looks while it worked, a replica may be counted as smaller than was estimated."""

_NOTABLE_BYTES: Final = 1 << 20
_MARGIN: Final = 1.05


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One generation: the most memory that one of its replicas had, and how often one was looked at
    while it worked; milliseconds of its last start."""

    memory_bytes: int = 0
    looks: int = 0
    ready_ms: int = 0


class Measured:
    """The measures of a machine; `save` writes them where they changed notably."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Measure] = {}
        self._changed = False
        try:
            self._known = read_json(path, dict[str, Measure])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as failure:
            log.warning("what was measured can't be read; estimates count", error=str(failure))

    def of(self, generation: str) -> Measure:
        """What is known of a generation; zeros where nothing is."""
        return self._known.get(generation, _NOTHING)

    def need_bytes(self, generation: str, estimate_bytes: int) -> int:
        """What a replica of it should be counted with.

        More than the estimate where more was measured; less only once it has been seen at work.
        """
        known = self.of(generation)
        measured = int(known.memory_bytes * _MARGIN)
        if measured and known.looks >= TRUSTED_LOOKS:
            return measured
        return max(measured, estimate_bytes)

    def memory(self, generation: str, memory_bytes: int, *, worked: bool) -> None:
        """A replica was looked at; `worked` is whether it did something since the last look."""
        known = self.of(generation)
        looks = min(TRUSTED_LOOKS, known.looks + worked)
        most = max(known.memory_bytes, memory_bytes)
        notable = looks != known.looks or most - known.memory_bytes >= _NOTABLE_BYTES
        if notable:
            self._keep(generation, memory_bytes=most, looks=looks)

    def ready(self, generation: str, ready_ms: int) -> None:
        """A replica became ready so long after it was started."""
        self._keep(generation, ready_ms=ready_ms)

    def save(self) -> None:
        """Write what changed; a full disk is no reason to stop."""
        if not self._changed:
            return
        try:
            replace_file(self._path, msgspec.json.encode(self._known), lasting=False)
            self._changed = False
        except OSError as failure:
            log.warning("what was measured can't be kept", error=str(failure))

    def _keep(self, generation: str, **changed: int) -> None:
        if not generation:
            return
        fresh = msgspec.structs.replace(self._known.pop(generation, _NOTHING), **changed)
        self._known[generation] = fresh
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        self._changed = True


_NOTHING = Measure()
