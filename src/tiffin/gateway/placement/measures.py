"""What is counted of placement. A replica is named by its number, so that names don't pile up."""

from collections.abc import Collection, Sequence

from tiffin.gateway.placement.choice import Reason, Standing
from tiffin.gateway.placement.circuit import State
from tiffin.telemetry.metrics import Meter

COLD_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)


class Measures:
    """Counters of one gateway."""

    def __init__(self, meter: Meter) -> None:
        self._placements = meter.counter(
            "tiffin_placements_total",
            "Requests that went to one of several replicas, by why to that one",
            ("model", "reason"),
        )
        self._ejections = meter.counter(
            "tiffin_ejections_total", "Times that a replica was set aside for failing", ("model",)
        )
        self._upstreams = meter.gauge(
            "tiffin_upstream_state",
            "Whether an upstream is called: 0, or 2 where it is left alone, 1 where one tries it",
            ("model",),
            alike=True,
        )
        self._openings = meter.counter(
            "tiffin_upstream_openings_total",
            "Times that an upstream was left alone for failing",
            ("model",),
        )
        self._outstanding = meter.gauge(
            "tiffin_place_outstanding",
            "Requests that this gateway has at a replica",
            ("model", "replica"),
        )
        self._state = meter.gauge(
            "tiffin_place_ready",
            "Whether a replica gets requests: 1, or 0 where it isn't ready or is set aside",
            ("model", "replica"),
            alike=True,
        )
        self._held = meter.gauge(
            "tiffin_requests_held", "Requests that wait for their model to be loaded", ("model",)
        )
        self._cold_starts = meter.histogram(
            "tiffin_cold_start_seconds",
            "From the first request that waits for a model to its being ready",
            ("model",),
            COLD_SECONDS,
        )
        self._shown: dict[str, int] = {}

    def placed(self, model: str, reason: Reason) -> None:
        """A request went to one of several."""
        self._placements.add((model, reason.value))

    def ejected(self, model: str) -> None:
        """A place was set aside."""
        self._ejections.add((model,))

    def opened(self, model: str) -> None:
        """An upstream is left alone."""
        self._openings.add((model,))

    def upstream(self, model: str, state: State) -> None:
        """How an upstream stands now."""
        self._upstreams.set(state, (model,))

    def started(self, model: str, seconds: float) -> None:
        """A model that requests waited for is ready."""
        self._cold_starts.observe((model,), seconds)

    def look(self, model: str, held: int, places: Sequence[tuple[Standing, bool]]) -> None:
        """How a model stands now; each place comes with whether it is ready."""
        self._held.set(held, (model,))
        for number, (place, ready) in enumerate(places):
            self._outstanding.set(place.outstanding, (model, str(number)))
            self._state.set(float(ready and not place.health.out), (model, str(number)))
        # What had the higher numbers is gone, and has nothing outstanding.
        for number in range(len(places), self._shown.get(model, 0)):
            self._outstanding.set(0, (model, str(number)))
            self._state.set(0, (model, str(number)))
        self._shown[model] = len(places)

    def gone(self, models: Collection[str]) -> None:
        """Every model but these was taken away."""
        for model in self._shown.keys() - models:
            self.look(model, 0, ())
            del self._shown[model]
