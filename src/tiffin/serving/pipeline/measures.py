"""What a pipeline counts."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tiffin.errors import TiffinError
from tiffin.serving.lanes.measures import LaneMeasures
from tiffin.serving.lanes.slots import Lanes
from tiffin.serving.measures import REQUEST_BUCKETS
from tiffin.telemetry.metrics import Meter
from tiffin.types.usage import Usage

_LABEL = ("model_name",)


@dataclass(slots=True)
class Watched:
    """A request that is being watched; `usage` is told when it has been answered."""

    usage: Usage = field(default_factory=Usage)


class PipelineMeasures:
    """Counts one pipeline's requests by how they ended, their time, pages and pixels."""

    def __init__(self, meter: Meter, model: str) -> None:
        self._model = model
        self._lanes = LaneMeasures(meter, model)
        self._ended = meter.counter(
            "tiffin_pipeline_requests_total",
            "Requests by how they ended (ok, cancelled, or the error's slug)",
            ("model_name", "ended"),
        )
        self._whole = meter.histogram(
            "tiffin_pipeline_request_seconds",
            "From asking for a place to the last step",
            _LABEL,
            REQUEST_BUCKETS,
        ).labels((model,))
        self._pages = meter.counter("tiffin_pipeline_pages_total", "Pages read", _LABEL)
        self._pixels = meter.counter("tiffin_pipeline_pixels_total", "Pixels read", _LABEL)
        self._running = meter.gauge(
            "tiffin_pipeline_requests_running", "Requests whose steps run", _LABEL
        ).labels((model,))
        self._waiting = meter.gauge(
            "tiffin_pipeline_requests_waiting", "Requests that wait", _LABEL
        ).labels((model,))

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watched]:
        """Count the request that runs inside."""
        watched, began, ended = Watched(), time.monotonic(), "internal_error"
        try:
            yield watched
            ended = "ok"
        except asyncio.CancelledError:
            ended = "cancelled"
            raise
        except TiffinError as error:
            ended = error.slug
            raise
        finally:
            self._ended.add((self._model, ended))
            self._whole.observe(time.monotonic() - began)
            self._pages.add((self._model,), watched.usage.pages)
            self._pixels.add((self._model,), watched.usage.pixels)

    def look(self, lanes: Lanes) -> None:
        """Note how full it is now."""
        self._running.set(lanes.running)
        self._waiting.set(lanes.waiting)
        self._lanes.look(lanes)
