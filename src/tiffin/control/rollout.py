"""New before old: what serves goes on until what is wanted instead is ready, then leaves."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tiffin.control.observed import Observed
from tiffin.types.snapshot import Deployment, Snapshot, Target

READY: Final = "ready-to-run"
FETCHING: Final = "fetching"
FAILED: Final = "failed"
UNLOADED: Final = "unloaded"

LINGER_NS: Final = 2_000_000_000
"""How long what served stays after the switch: by then every gateway has seen it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the configuration wants of one model: where it's tried, and what runs for that."""

    target: Target
    deployments: tuple[Deployment, ...] = ()


@dataclass(slots=True)
class Course:
    """What is published instead: `coming` are the targets that wait until they can take over."""

    targets: dict[str, Target] = field(default_factory=dict)
    coming: dict[str, Target] = field(default_factory=dict)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)

    def keep(self, deployments: Iterable[Deployment]) -> None:
        """Have these run, and don't have them leave."""
        for one in deployments:
            self.deployments[one.name] = one
            self.leaving.pop(one.name, None)


def course(
    wishes: Mapping[str, Wish],
    previous: Snapshot | None,
    observed: Observed,
    now_ns: int,
    drain_ns: int,
) -> Course:
    """How the installation gets from `previous` to what is wished for without a gap.

    What other deployments call stays for as long as these run, and for `drain_ns` after.
    """
    found = Course()
    before = _serving(previous) if previous else {}
    under_way = previous.coming if previous else {}
    for name, wish in wishes.items():
        old = before.get(name)
        if old is not None and _holds(wish, old, observed, under_way=name in under_way):
            found.targets[name] = old.target
            found.coming[name] = wish.target
            found.keep(old.deployments)
            found.keep(_awake(wish.deployments))
        else:
            found.targets[name] = wish.target
            found.keep(wish.deployments)
    if previous is not None:
        unloaded = {name for name, wish in wishes.items() if wish.target.state == UNLOADED}
        old_ones = [one for one in previous.deployments if one.model not in unloaded]
        _see_off(found, before, previous, old_ones, observed, now_ns)
        _keep_called(found, old_ones)
        _see_off_called(found, before, previous, old_ones, now_ns + drain_ns)
    return found


def _serving(previous: Snapshot) -> dict[str, Wish]:
    """By model: where requests for it go, and the replicas that are there."""
    found = {}
    for name, plan in previous.plans.items():
        target = plan.targets[0]
        if target.model == name and target.state == READY:
            there = (one for one in previous.deployments if one.socket in target.sockets)
            found[name] = Wish(target, tuple(there))
    return found


def _holds(wish: Wish, old: Wish, observed: Observed, *, under_way: bool) -> bool:
    """Whether the old goes on serving for now; it does over restarts once a rollout is `under_way`.

    What had failed to take over before the machine stopped would fail after it too.
    """
    if wish.target.state == UNLOADED or wish.target.kind == "remote":
        return False
    if _generation(wish) and _generation(wish) == _generation(old):
        # Of fewer replicas those that stay may be the ones that aren't there.
        ready = observed.ready
        return bool(_names(old.deployments) & ready) and not _names(wish.deployments) & ready
    if old.target.kind != "remote":
        # Nothing is lost with what isn't there; what has been there may come back.
        there = observed.ready if old.target.on_demand else observed.served
        if not _names(old.deployments) & there and (old.target.on_demand or not under_way):
            return False
    return wish.target.state != READY or not _names(wish.deployments) <= observed.ready


def _generation(wish: Wish) -> str:
    return wish.deployments[0].generation if wish.deployments else ""


def _names(deployments: Iterable[Deployment]) -> frozenset[str]:
    return frozenset(one.name for one in deployments)


def _awake(deployments: Iterable[Deployment]) -> list[Deployment]:
    """To be loaded without a request, since it can have none before it is."""
    return [msgspec.structs.replace(one, on_demand=False) for one in deployments]


def _see_off(
    found: Course,
    before: Mapping[str, Wish],
    previous: Snapshot,
    old_ones: Iterable[Deployment],
    observed: Observed,
    now_ns: int,
) -> None:
    """What served until now and is there stays a little longer."""
    serving = {one.name for old in before.values() for one in old.deployments} & observed.ready
    for one in old_ones:
        until = previous.leaving.get(one.name, 0)
        if one.name in serving and one.name not in previous.leaving:
            until = now_ns + LINGER_NS
        if one.name not in found.deployments and until > now_ns:
            found.deployments[one.name] = one
            found.leaving[one.name] = until


def _keep_called(found: Course, old_ones: Collection[Deployment]) -> None:
    """A pipeline calls the revisions that it was made for, so these stay with it."""
    missing = True
    while missing:
        called = {pair for one in found.deployments.values() for pair in one.peers.items()}
        staying = [one for one in found.deployments.values() if one.name not in found.leaving]
        missing = bool(called := called - {(one.model, one.revision) for one in staying})
        again = [one for one in old_ones if (one.model, one.revision) in called]
        found.keep(again)
        missing = missing and bool(again)


def _see_off_called(
    found: Course,
    before: Mapping[str, Wish],
    previous: Snapshot,
    old_ones: Iterable[Deployment],
    until_ns: int,
) -> None:
    """What only others called stays until these have finished what they had begun."""
    serving = {one.name for old in before.values() for one in old.deployments}
    called = {pair for one in previous.deployments for pair in one.peers.items()}
    for one in old_ones:
        if (
            (one.model, one.revision) in called
            and one.name not in found.deployments
            and one.name not in serving
            and one.name not in previous.leaving
        ):
            found.deployments[one.name] = one
            found.leaving[one.name] = until_ns
