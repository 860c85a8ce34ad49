"""What is known of somebody else's server: whether it is called, and with which keys; pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tiffin.errors import UpstreamUnavailable
from tiffin.gateway.placement.circuit import Circuit, Held, State
from tiffin.gateway.retries import Blame, Fault

KEY_PATIENCE = 1
KEY = "key "


@dataclass(slots=True, eq=False)
class Upstream:
    """One server's circuit, and one for each key there by what the key is referred to as."""

    model: str
    circuit: Circuit = field(default_factory=Circuit)
    keys: dict[str, Circuit] = field(default_factory=dict)

    def key(self, name: str) -> Circuit:
        """The circuit of a key."""
        return self.keys.setdefault(name, Circuit(KEY_PATIENCE))

    def keep(self, keys: Collection[Circuit | None]) -> None:
        """Forget every key but these."""
        self.keys = {name: key for name, key in self.keys.items() if key in keys}

    def enter(self, tenant: str, keys: Iterable[Circuit], now: float) -> None:
        """A tenant's request goes there with one of these keys; raises `UpstreamUnavailable` where
        the server or each of them is left alone for now."""
        left_s = self.circuit.left_s(tenant, now)
        if left_s > 0:
            raise UpstreamUnavailable(
                f"'{self.model}' failed again and again, and isn't tried for {left_s:.1f} s",
                retry_after=left_s,
            )
        left_s = min((key.left_s(tenant, now) for key in keys), default=0.0)
        if left_s > 0:
            raise UpstreamUnavailable(
                f"'{self.model}' let no key of ours in, and isn't asked for {left_s:.1f} s",
                retry_after=left_s,
            )
        self.circuit.enter(now)

    def went_well(self, key: Circuit, began: float) -> bool:
        """A call that began then went well; true where the server is back."""
        key.went_well(began)
        return self.circuit.went_well(began)

    def failed(self, key: Circuit, fault: Fault, tenant: str, began: float, now: float) -> bool:
        """A tenant's call that began then failed; true where the server is left alone for it."""
        if fault.blame is Blame.SERVER:
            return self.circuit.failed(tenant, began, now)
        if fault.blame is Blame.KEY and fault.retry_after_s:
            key.rest(fault.retry_after_s, now)
        elif fault.blame is Blame.KEY and (len(self.keys) > 1 or not fault.passes):
            key.failed("", began, now)
        return False

    def state(self, now: float) -> State:
        """As it is shown: open too where each of its keys is."""
        keys = [key.state(now) for key in self.keys.values()]
        return max(self.circuit.state(now), min(keys, default=State.CLOSED))

    def resume(self, held: Mapping[str, Held], now: float) -> None:
        """Go on as it was held."""
        for name, one in held.items():
            circuit = self.circuit if not name else self.key(name.removeprefix(KEY))
            circuit.resume(one, now)

    def held(self, now: float) -> dict[str, Held]:
        """What is to be known after a restart, by key; the server's own under an empty name."""
        circuits = {"": self.circuit, **{f"{KEY}{name}": key for name, key in self.keys.items()}}
        found = {name: circuit.held(now) for name, circuit in circuits.items()}
        return {name: one for name, one in found.items() if one is not None}
