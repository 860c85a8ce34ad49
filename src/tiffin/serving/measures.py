"""What a replica counts, under the names that vLLM gave them, so that its dashboards fit."""

from tiffin.serving.lanes.measures import LaneMeasures
from tiffin.serving.replica import Replica, Served
from tiffin.telemetry.metrics import Meter

FIRST_TOKEN_BUCKETS = (
    *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
# vLLM's begin at 0.3 s, too coarse for small models.
REQUEST_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5),
    *(5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0, 480.0),
)

_LABEL = ("model_name",)


class Measures:
    """Counts one model's answers; call it with each one that ended."""

    def __init__(self, meter: Meter, model: str) -> None:
        only = (model,)
        self._model = model
        self._running = meter.gauge(
            "vllm:num_requests_running", "Answers that hold a slot of the engine", _LABEL
        ).labels(only)
        self._waiting = meter.gauge(
            "vllm:num_requests_waiting", "Requests that wait for a slot", _LABEL
        ).labels(only)
        self._slots = meter.gauge("tiffin_engine_slots", "Slots of the engine", _LABEL).labels(only)
        self._prompt_tokens = meter.counter(
            "vllm:prompt_tokens_total", "Tokens of prompts that were answered", _LABEL
        ).labels(only)
        self._answer_tokens = meter.counter(
            "vllm:generation_tokens_total", "Tokens generated", _LABEL
        ).labels(only)
        self._ended = meter.counter(
            "vllm:request_success_total",
            "Choices by how they ended (abort: left, expired or failed)",
            ("model_name", "finished_reason"),
        )
        self._lanes = LaneMeasures(meter, model)
        self._first = meter.histogram(
            "vllm:time_to_first_token_seconds",
            "From asking for a slot to the first token",
            _LABEL,
            FIRST_TOKEN_BUCKETS,
        ).labels(only)
        self._queue = meter.histogram(
            "vllm:request_queue_time_seconds",
            "From asking for a slot to the first slot",
            _LABEL,
            REQUEST_BUCKETS,
        ).labels(only)
        self._whole = meter.histogram(
            "vllm:e2e_request_latency_seconds",
            "From asking for a slot to the last token",
            _LABEL,
            REQUEST_BUCKETS,
        ).labels(only)

    def __call__(self, served: Served) -> None:
        """An answer has ended."""
        self._prompt_tokens.add(served.usage.prompt_tokens)
        self._answer_tokens.add(served.usage.completion_tokens)
        self._queue.observe(served.queue_s)
        self._whole.observe(served.whole_s)
        if served.first_s is not None:
            self._first.observe(served.first_s)
        for reason in served.reasons:
            self._ended.add((self._model, reason))

    def look(self, replica: Replica) -> None:
        """Note how full the replica is now."""
        self._running.set(replica.lanes.running)
        self._waiting.set(replica.lanes.waiting)
        self._slots.set(replica.capabilities.slots)
        self._lanes.look(replica.lanes)
