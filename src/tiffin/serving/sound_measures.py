"""What a replica of sounds counts."""

from tiffin.serving.lanes.measures import LaneMeasures
from tiffin.serving.measures import REQUEST_BUCKETS
from tiffin.serving.sound import Listener
from tiffin.telemetry.metrics import Meter
from tiffin.types.usage import Usage

_LABEL = ("model_name",)


class SoundMeasures:
    """Counts one model's transcripts; call it with what each that ended used."""

    def __init__(self, meter: Meter, model: str) -> None:
        only = (model,)
        self._lanes = LaneMeasures(meter, model)
        self._model = model
        self._running = meter.gauge(
            "tiffin_sound_running", "Sounds being heard now", _LABEL
        ).labels(only)
        self._waiting = meter.gauge(
            "tiffin_sound_waiting", "Sounds that wait to be heard", _LABEL
        ).labels(only)
        self._audio_ms = meter.counter(
            "tiffin_sound_audio_milliseconds_total", "Length of what was heard", _LABEL
        ).labels(only)
        self._ended = meter.counter(
            "tiffin_sound_requests_total",
            "Sounds by how they ended (abort: left, expired or failed)",
            ("model_name", "finished_reason"),
        )
        self._device = meter.histogram(
            "tiffin_sound_seconds", "Time that hearing took", _LABEL, REQUEST_BUCKETS
        ).labels(only)
        self._queue = meter.histogram(
            "tiffin_sound_queue_seconds", "Time in the queue", _LABEL, REQUEST_BUCKETS
        ).labels(only)

    def __call__(self, usage: Usage, outcome: str) -> None:
        """A request has ended."""
        self._ended.add((self._model, outcome))
        if outcome == "stop":
            self._audio_ms.add(usage.audio_ms)
            self._device.observe(usage.device_ns / 1e9)
            self._queue.observe(usage.queue_ns / 1e9)

    def look(self, listener: Listener) -> None:
        """Note how full it is now."""
        self._running.set(listener.lanes.running)
        self._waiting.set(listener.lanes.waiting)
        self._lanes.look(listener.lanes)
