"""What gateways say is asked of models: how many requests wait for which, and since when."""

from pathlib import Path

import msgspec

SUFFIX = ".demand.json"


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Of one model: `waiting` requests since `since_ns`, the last use at `used_ns` (UTC)."""

    waiting: int = 0
    since_ns: int = 0
    used_ns: int = 0
    outstanding: int = 0


NONE = Demand()


class Demands:
    """The files of all gateways in a run folder, added up; read again only where one changed."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._decoder = msgspec.json.Decoder(dict[str, Demand])
        self._seen: dict[str, tuple[int, int]] = {}
        self.of: dict[str, Demand] = {}

    def changed(self) -> bool:
        """Look again; whether anything is different from last time."""
        found = {}
        for path in self._run.glob(f"*{SUFFIX}"):
            try:
                stat = path.stat()
            except OSError:
                continue
            found[str(path)] = (stat.st_ino, stat.st_mtime_ns)
        if found == self._seen:
            return False
        self._seen = found
        self.of = {}
        for name in found:
            for model, demand in self._read(Path(name)).items():
                self.of[model] = _sum(self.of.get(model, NONE), demand)
        return True

    @property
    def anybody_waits(self) -> bool:
        """Whether a request waits for a model."""
        return any(demand.waiting for demand in self.of.values())

    def _read(self, path: Path) -> dict[str, Demand]:
        try:
            return self._decoder.decode(path.read_bytes())
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
