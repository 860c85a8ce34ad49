"""Which upstreams a gateway leaves alone, in a file of its own: the next one goes on from there.

What is left of a time is kept with the moment by the wall clock, since the other clock begins anew
with the machine; a clock that went back makes it no longer than it was.
"""

from contextlib import suppress
from typing import Final

import msgspec

from tiffin.gateway.placement.circuit import Held
from tiffin.ports.clock import Clock
from tiffin.types.json_file import read_json
from tiffin.types.paths import DataFolder, left_alone
from tiffin.types.whole_file import replace_file

Upstreams = dict[str, dict[str, Held]]

MAX_KEPT: Final = 1000
TOUCHED_S: Final = 1.0
"""What is left may have changed by as much without being written anew."""


class _File(msgspec.Struct, frozen=True):
    at_ns: int
    held: Upstreams


class LeftAlone:
    """One gateway's file; it is there while anything is left alone."""

    def __init__(self, folder: DataFolder, gateway: str, clock: Clock) -> None:
        self._path = left_alone(folder, gateway)
        self._any = left_alone(folder, "*").name
        self._clock = clock
        self._written = _File(0, {})

    def read(self) -> Upstreams:
        """What any gateway of this folder left alone, with what is left of it now."""
        found: Upstreams = {}
        for path in sorted(self._path.parent.glob(self._any)):
            with suppress(OSError, msgspec.DecodeError):
                file = read_json(path, _File)
                for name, held in _since(file, self._clock.now_ns()).items():
                    found[name] = {**found.get(name, {}), **held}
        return found

    def write(self, held: Upstreams) -> None:
        """Keep this, where it isn't what was kept already; a disk that is full keeps nothing."""
        now_ns = self._clock.now_ns()
        if _alike(_since(self._written, now_ns), held):
            return
        file = _File(now_ns, dict(list(held.items())[:MAX_KEPT]))
        with suppress(OSError):  # written again at the next look
            if held:
                replace_file(self._path, msgspec.json.encode(file), lasting=False)
            else:
                self._path.unlink(missing_ok=True)
            self._written = file


def _since(file: _File, now_ns: int) -> Upstreams:
    """What is left of it: nothing where all is over."""
    passed_s = max(0, now_ns - file.at_ns) / 1e9
    return {
        name: {
            key: Held(
                one.openings, max(0.0, one.left_s - passed_s), max(0.0, one.rests_s - passed_s)
            )
            for key, one in held.items()
        }
        for name, held in file.held.items()
    }


def _alike(one: Upstreams, other: Upstreams) -> bool:
    """Whether two say the same but for a moment."""
    if {name: held.keys() for name, held in one.items()} != {
        name: held.keys() for name, held in other.items()
    }:
        return False
    pairs = ((held[key], other[name][key]) for name, held in one.items() for key in held)
    return all(
        mine.openings == theirs.openings
        and abs(mine.left_s - theirs.left_s) < TOUCHED_S
        and abs(mine.rests_s - theirs.rests_s) < TOUCHED_S
        for mine, theirs in pairs
    )
