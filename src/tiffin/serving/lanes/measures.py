"""What a queue in front of slots counts: why its choices went, and why requests were refused."""

from collections.abc import Mapping

from tiffin.serving.lanes.slots import DISPATCHES, REASONS, Lanes
from tiffin.telemetry.metrics import Counter, Meter


class LaneMeasures:
    """Counts for one model; `look` notes what is new."""

    def __init__(self, meter: Meter, model: str) -> None:
        labels = ("model", "reason")
        self._model = model
        self._dispatched = meter.counter(
            "tiffin_dispatches_total",
            "Choices of requests that got a slot by why: " + _listed(DISPATCHES),
            labels,
        )
        self._refused = meter.counter(
            "tiffin_slot_refusals_total", "Refused by why: " + _listed(REASONS), labels
        )
        self._before: dict[tuple[str, str], int] = {}

    def look(self, lanes: Lanes) -> None:
        """Note what was done since the last look."""
        self._note(self._dispatched, "dispatches", lanes.dispatches)
        self._note(self._refused, "refusals", lanes.refusals)

    def _note(self, counter: Counter, what: str, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            more = count - self._before.get((what, reason), 0)
            if more:
                counter.add((self._model, reason), more)
                self._before[what, reason] = count


def _listed(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({why})" for name, why in reasons.items())
