"""What follows from a guard's finding, or from a guard that fails: its named policy says it."""

from collections.abc import Callable, Iterable, Mapping

from tiffin.errors import Blocked
from tiffin.gateway.guard.personal_data import PersonalData
from tiffin.ports.guard import Finding, Guard, Piece
from tiffin.telemetry import log
from tiffin.types.snapshot import GuardPolicy, Snapshot

KINDS: Mapping[str, Callable[[], Guard]] = {"personal_data": PersonalData}


class Guards:
    """The guards of the current snapshot by name. A name that isn't there refuses everything."""

    def __init__(self, kinds: Mapping[str, Callable[[], Guard]] = KINDS) -> None:
        self._kinds = kinds
        self._guards: dict[str, tuple[Guard | None, GuardPolicy]] = {}

    def adopt(self, snapshot: Snapshot) -> None:
        """Take the guards of a snapshot; a kind that isn't known here is one that fails."""
        guards: dict[str, tuple[Guard | None, GuardPolicy]] = {}
        for name, policy in snapshot.guards.items():
            make = self._kinds.get(policy.kind)
            guards[name] = (make() if make else None, policy)
        self._guards = guards

    def check_input(self, name: str, pieces: Callable[[], Iterable[Piece]]) -> None:
        """Raise `Blocked` where the guard finds something; an empty name checks nothing."""
        if name:
            self._check(name, "request", lambda guard: guard.check_input(pieces()))

    def check_output(self, name: str, text: str) -> None:
        """Raise `Blocked` where the guard of this name finds something in an answer."""
        if self.checks_output(name):
            self._check(name, "answer", lambda guard: guard.check_output(text))

    def checks_output(self, name: str) -> bool:
        """Whether answers under this guard must be whole before any of it goes out."""
        guard, _ = self._guards.get(name, _NONE)
        return guard is not None and guard.checks_output

    def _check(self, name: str, what: str, look: Callable[[Guard], Finding | None]) -> None:
        guard, policy = self._guards.get(name, _NONE)
        try:
            if guard is None:
                raise LookupError(f"there is no guard of kind '{policy.kind}'")
            finding = look(guard)
        except Exception as error:  # whatever breaks, the policy decides
            log.error("guard_failed", guard=name, on_error=policy.on_error, exc_info=error)
            if policy.on_error == "allow":
                return
            raise Blocked(
                f"the guard '{name}' couldn't check the {what}, so it is refused"
            ) from error
        if finding is not None:
            raise Blocked(
                f"the guard '{name}' blocked the {what}: it has {finding.what}",
                param=finding.param,
            )


_NONE: tuple[Guard | None, GuardPolicy] = (None, GuardPolicy(kind=""))
