"""What a request costs its tenant, and what it cost us alone: by how it ended and what is known."""

from collections.abc import Callable, Iterable

import msgspec

from tiffin.ledger.marginal import MOST_PICO, marginal
from tiffin.ports.guard import Piece
from tiffin.telemetry.events import Outcome
from tiffin.types.money import shown
from tiffin.types.price import Price
from tiffin.types.snapshot import Target
from tiffin.types.usage import Usage

BYTES_A_TOKEN = 4
"""Of input that nobody counted; about what tokenizers make of English."""

_USAGE = msgspec.json.Decoder(Usage)
NO_USAGE = Usage()

Pieces = Callable[[], Iterable[Piece]]


class Charge:
    """The price of the target that is tried last, and what is known of its work until now.

    Who left in the middle pays the input in full and the output as far as it was counted. What
    failed costs the tenant nothing; where somebody else was paid for it, that is our loss.
    """

    __slots__ = (
        "_at",
        "_began",
        "_lost_pico",
        "_pieces",
        "_so_far",
        "currency",
        "price",
        "retried_ns",
        "target",
        "upstream",
    )

    def __init__(self) -> None:
        self.price: Price | None = None
        self.currency = ""
        self.retried_ns = 0
        self.target = ""
        self.upstream = False
        self._pieces: Pieces = tuple
        self._so_far = b""
        self._at = 0.0
        self._began = False
        self._lost_pico = 0

    def at(self, target: Target, pieces: Pieces, spent: Usage, moment: float) -> None:
        """A target is tried at a monotonic moment; the one before, if any, `spent` that in vain.

        `pieces` are the input's strings, looked at only where nobody else counts.
        """
        self._waste(spent, moment)
        self.price = target.price
        self.currency = target.price.currency if target.price else ""
        self.target, self.upstream = target.model, target.kind == "remote"
        self._pieces = pieces

    def began(self, so_far: bytes, moment: float) -> None:
        """A stream began at a monotonic moment; `so_far` is a replica's word on what it took."""
        self._so_far, self._at, self._began = so_far, moment, True

    def free(self, price: Price | None, spent: Usage, moment: float) -> None:
        """The answer was here already; what was tried until a monotonic moment `spent` in vain."""
        self._waste(spent, moment)
        self.price = None
        self.currency = price.currency if price else ""

    def beside(self, other: "Charge", spent: Usage, moment: float, *, stopped: bool) -> None:
        """What was tried beside this, and `spent` so much until a monotonic moment, was in vain.

        Whoever is paid for a call that was `stopped` has had its input, and charges for that.
        """
        other._began = other._began or (stopped and other.upstream)
        other._waste(spent, moment)
        self.retried_ns += other.retried_ns
        self._lost_pico = min(self._lost_pico + other._lost_pico, MOST_PICO)

    def _waste(self, spent: Usage, moment: float) -> None:
        """What the target that was tried last took came to nothing."""
        if self._began or spent != NO_USAGE:
            wasted = self.used(spent, Outcome.FAILED, moment)
            self.retried_ns += wasted.device_ns
            self._lost_pico = self.settle(wasted, Outcome.FAILED)[1]
        self._so_far, self._began = b"", False

    def told(self, usage: Usage) -> str:
        """The cost of a use as clients read it, with its currency; empty where nobody knows."""
        if not self.currency:
            return ""
        return shown(marginal(self.price, usage) if self.price else 0, self.currency)

    def used(self, usage: Usage, outcome: Outcome, moment: float) -> Usage:
        """The use as far as it can be known when the request ends at a monotonic moment."""
        if usage.measured and (outcome is Outcome.OK or usage != NO_USAGE):
            return usage
        if not self._began and outcome is not Outcome.OK:
            return usage
        known = None if self.upstream else _read(self._so_far)
        if known is not None:
            since_ns = max(0, int((moment - self._at) * 1e9))
            return msgspec.structs.replace(
                known,
                completion_tokens=usage.completion_tokens,
                device_ns=known.device_ns + since_ns,
                measured=False,
            )
        if self.price is None or not self.price.input_token or usage.prompt_tokens:
            return usage
        size = sum(len(piece.text or "") for piece in self._pieces())
        estimate = -(-size // BYTES_A_TOKEN)
        return msgspec.structs.replace(usage, prompt_tokens=estimate, measured=False)

    def settle(self, usage: Usage, outcome: Outcome) -> tuple[int, int]:
        """What the tenant pays, and what is lost to us; pico-units."""
        if self.price is None:
            return 0, self._lost_pico
        cost = marginal(self.price, usage)
        if _is_charged(usage, outcome, began=self._began):
            return cost, self._lost_pico
        lost = cost if self.upstream and usage != NO_USAGE else 0
        return 0, min(self._lost_pico + lost, MOST_PICO)


def _read(so_far: bytes) -> Usage | None:
    """A replica's word; closing an account must not fail of it."""
    try:
        return _USAGE.decode(so_far) if so_far else None
    except msgspec.MsgspecError:
        return None


def _is_charged(usage: Usage, outcome: Outcome, *, began: bool) -> bool:
    """Whether the tenant got what it asked for, or left while getting it.

    A broken answer is charged only as far as its model itself said what it took.
    """
    match outcome:
        case Outcome.OK:
            return True
        case Outcome.CANCELLED:
            return began
        case Outcome.PARTIAL | Outcome.REFUSED:
            return usage.measured and usage != NO_USAGE
    return False
