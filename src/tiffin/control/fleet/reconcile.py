"""From what should run to what must be done about what runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiffin.types.snapshot import Deployment


@dataclass(frozen=True, slots=True)
class Start:
    """Run this deployment, which nothing of this name runs yet."""

    name: str
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Stop:
    """Drain this replica and end its process."""

    name: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Drain and end what runs under this name, then run the deployment instead.

    Only where two generations happen to share a name.
    """

    name: str
    deployment: Deployment


Action = Start | Stop | Replace


def reconcile(
    desired: Iterable[Deployment], running: Mapping[str, Deployment]
) -> tuple[Action, ...]:
    """What turns `running`, by replica name, into `desired`; nothing where they agree.

    Starts come first, so that a new generation loads while the old one drains. Of two deployments
    with one name the first counts. Deployments of one generation are the same process, whatever
    else they say.
    """
    wanted: dict[str, Deployment] = {}
    for deployment in desired:
        wanted.setdefault(deployment.name, deployment)
    starts = [Start(name, what) for name, what in wanted.items() if name not in running]
    replaced = [
        Replace(name, what)
        for name, what in wanted.items()
        if name in running and running[name].generation != what.generation
    ]
    stops = [Stop(name) for name in running if name not in wanted]
    return (*starts, *replaced, *stops)
