"""What all gateways together say is asked of models, read from their files."""

import time
from pathlib import Path

import msgspec

from tiffin.types.demand import Demand, Demands
from tiffin.types.json_file import read_json

SUFFIX = ".demand.json"
TICK_NS = 100_000_000


NONE = Demand()


class Asked:
    """The files of all gateways in a run folder, added up; read again only where one changed."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._seen: dict[str, tuple[int, int]] = {}
        self._folder = 0
        self.of: Demands = {}

    def changed(self) -> bool:
        """Look again; whether anything is different from last time."""
        # Every file is replaced whole, which shows in the folder.
        try:
            folder = self._run.stat().st_mtime_ns
        except OSError:
            return False
        if folder == self._folder:
            return False
        # What comes within the same tick of the file system's clock doesn't show any more.
        self._folder = folder if time.time_ns() - folder > TICK_NS else 0
        found = {}
        for path in self._run.glob(f"*{SUFFIX}"):
            try:
                stat = path.stat()
            except OSError:
                continue
            found[str(path)] = (stat.st_ino, stat.st_mtime_ns)
        if found == self._seen:
            return False
        # Nor does it in a file: an inode and a tick may come again with another content.
        settled_ns = time.time_ns() - TICK_NS
        self._seen = {name: seen for name, seen in found.items() if seen[1] < settled_ns}
        self.of = {}
        for name in found:
            for model, demand in self._read(Path(name)).items():
                self.of[model] = _sum(self.of.get(model, NONE), demand)
        return True

    @property
    def anybody_waits(self) -> bool:
        """Whether a request waits for a model."""
        return any(demand.waiting for demand in self.of.values())

    def _read(self, path: Path) -> Demands:
        try:
            return read_json(path, Demands)
        except (OSError, msgspec.MsgspecError):
            return {}


def _sum(one: Demand, other: Demand) -> Demand:
    since = [demand.since_ns for demand in (one, other) if demand.waiting]
    return Demand(
        waiting=one.waiting + other.waiting,
        since_ns=min(since, default=0),
        used_ns=max(one.used_ns, other.used_ns),
        outstanding=one.outstanding + other.outstanding,
    )
