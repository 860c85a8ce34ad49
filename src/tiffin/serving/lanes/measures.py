"""What a queue in front of slots counts: why its choices went, and why requests were refused."""

from collections.abc import Mapping

from tiffin.serving.lanes.slots import Lanes
from tiffin.telemetry.metrics import Counter, Meter

_LABELS = ("model", "reason")


class LaneMeasures:
    """Counts for one model; `look` notes what is new."""

    def __init__(self, meter: Meter, model: str) -> None:
        self._model = model
        self._dispatched = meter.counter(
            "tiffin_dispatches_total",
            "Choices that got a slot by why: idle (one was free), turn (it came first), fair (its"
            " tenant's share put it before others), batch_share (batch work had its share due)",
            _LABELS,
        )
        self._refused = meter.counter(
            "tiffin_slot_refusals_total",
            "Refused by why: full (queue), late (for what is ahead), long (by itself), overtaken"
            " (by more pressing ones), waited (for longer than queue_timeout_s), expired",
            _LABELS,
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
