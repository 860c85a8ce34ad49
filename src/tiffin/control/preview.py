"""What taking a configuration would do, told before it is done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tiffin.control.differences import Change
from tiffin.control.rollout import FETCHING
from tiffin.types.snapshot import Deployment, Snapshot, Target

What = Literal["starts", "stops", "rolls", "scales", "fetches"]


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a model's processes, and why where that isn't its own section.

    It `starts` or `stops`; `rolls`: others take their place, without a gap; `scales`: there are
    more or fewer of the same; `fetches`: its files must come first.
    """

    model: str
    what: What
    why: str = ""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What would change: settings, models, and by path the limits that would be tighter and what
    the running processes would only follow after the next start."""

    config_hash: str
    changes: list[Change]
    models: list[Move]
    tighter: list[str]
    restart: list[str]


@dataclass(slots=True)
class Planned:
    """A model that runs here, and its processes."""

    target: Target
    deployments: list[Deployment] = field(default_factory=list)


def models_of(outlook: Snapshot) -> dict[str, Planned]:
    """The models that run here, by their names."""
    targets = {target.model: target for plan in outlook.plans.values() for target in plan.targets}
    found = {name: Planned(one) for name, one in targets.items() if one.kind != "remote"}
    for deployment in outlook.deployments:
        if deployment.model in found:
            found[deployment.model].deployments.append(deployment)
    return found


def moves(before: Mapping[str, Planned], after: Mapping[str, Planned]) -> Iterator[Move]:
    """What would become of every model of which something would."""
    for name in sorted(before.keys() | after.keys()):
        old = before[name].deployments if name in before else []
        new = after[name].deployments if name in after else []
        move = _fetched(name, after) or _move(name, old, new)
        if move is not None:
            yield move


def _fetched(name: str, after: Mapping[str, Planned]) -> Move | None:
    if name in after and after[name].target.state == FETCHING:
        return Move(model=name, what="fetches", why="its files, or those of a model that it calls")
    return None


def _move(name: str, old: list[Deployment], new: list[Deployment]) -> Move | None:
    if not old or not new:
        if not old and not new:
            return None
        return Move(model=name, what="starts" if new else "stops")
    was, now = old[0], new[0]
    if was.generation != now.generation:
        shared = was.spec == now.spec and was.threads != now.threads
        why = f"its share of the cores: {was.threads} → {now.threads} threads" if shared else ""
        return Move(model=name, what="rolls", why=why)
    if len(old) != len(new):
        return Move(model=name, what="scales", why=f"{len(old)} → {len(new)} replicas")
    return None
