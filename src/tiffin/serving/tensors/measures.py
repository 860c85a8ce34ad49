"""What a replica of tensors counts: under Triton's names, for its dashboards, and our own."""

from typing import Final

from tiffin.errors import (
    DeadlineExceeded,
    Rejected,
    RunFailed,
    TiffinError,
    Unavailable,
)
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.serving.tensors.schedule import Batch
from tiffin.telemetry.metrics import Meter

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
CANCELED: Final = "CANCELED"

_LABELS = ("model", "version")
_WITH_REASON = ("model", "version", "reason")


class TensorMeasures:
    """Counts one model's requests and batches; call it with each batch that has run."""

    def __init__(self, meter: Meter, model: str, version: str) -> None:
        only = (model, version)
        self._only = only

        self._success = meter.counter(
            "nv_inference_request_success", "Requests that were answered", _LABELS
        ).labels(only)
        self._rows = meter.counter(
            "nv_inference_count", "Rows that were computed for requests", _LABELS
        ).labels(only)
        self._runs = meter.counter("nv_inference_exec_count", "Runs of the model", _LABELS).labels(
            only
        )
        self._whole_us = meter.counter(
            "nv_inference_request_duration_us",
            "From asking to the end of the run, microseconds",
            _LABELS,
        ).labels(only)
        self._queue_us = meter.counter(
            "nv_inference_queue_duration_us", "Waiting, microseconds", _LABELS
        ).labels(only)
        self._infer_us = meter.counter(
            "nv_inference_compute_infer_duration_us", "Running, microseconds", _LABELS
        ).labels(only)
        self._input_us = meter.counter(
            "nv_inference_compute_input_duration_us", "Reading requests, microseconds", _LABELS
        ).labels(only)
        self._output_us = meter.counter(
            "nv_inference_compute_output_duration_us", "Writing responses, microseconds", _LABELS
        ).labels(only)
        self._failure = meter.counter(
            "nv_inference_request_failure",
            "Requests that weren't answered (REJECTED, CANCELED, BACKEND, OTHER)",
            _WITH_REASON,
        )
        self._pending = meter.gauge(
            "nv_inference_pending_request_count", "Requests that wait for a run", _LABELS
        ).labels(only)
        self._running = meter.gauge(
            "tiffin_batches_running", "Batches that are being computed", _LABELS
        ).labels(only)
        self._dispatched = meter.counter(
            "tiffin_batches_total",
            "Batches by why they went: idle (a lane was free), gathered (it had waited for one),"
            " full (no more rows are allowed), enough (more would gain nothing), shared (other"
            " lanes were free for the rest), pressed (by deadlines), trial (larger, to see)",
            _WITH_REASON,
        )
        self._refused = meter.counter(
            "tiffin_batch_refusals_total",
            "Refused by why: full (the queue), late (for what is ahead), long (by itself),"
            " overtaken (by more pressing ones), waited (over queue_timeout_s), expired",
            _WITH_REASON,
        )
        self._refused_before: dict[str, int] = {}
        self._batch_rows = meter.histogram(
            "tiffin_batch_rows", "Rows of a batch", _LABELS, ROWS
        ).labels(only)
        self._batch_s = meter.histogram(
            "tiffin_batch_seconds", "How long a batch was computed", _LABELS, SECONDS
        ).labels(only)

    def __call__(self, batch: Batch) -> None:
        """A batch has run."""
        self._runs.add(batch.outcome.runs)
        self._rows.add(batch.outcome.rows)
        self._dispatched.add((*self._only, batch.reason))
        self._batch_rows.observe(batch.rows)
        self._batch_s.observe(batch.ran_s)
        ran_us = batch.ran_s * len(batch.items) * 1e6
        self._infer_us.add(ran_us)
        asked = answered = 0.0
        for item, result in zip(batch.items, batch.outcome.results, strict=True):
            if result is not None and not isinstance(result, TiffinError):
                answered += 1
            asked += item.asked
        self._success.add(answered)
        waited_us = (batch.started * len(batch.items) - asked) * 1e6
        self._queue_us.add(waited_us)
        self._whole_us.add(waited_us + ran_us)

    def shaped(self, read_s: float, wrote_s: float) -> None:
        """What reading a request and writing its response took."""
        self._input_us.add(read_s * 1e6)
        self._output_us.add(wrote_s * 1e6)

    def failed(self, error: TiffinError | None) -> None:
        """A request ended without an answer; None: its client left."""
        self._failure.add((*self._only, CANCELED if error is None else _reason(error)))

    def look(self, replica: TensorReplica) -> None:
        """Note how full the replica is now."""
        self._pending.set(replica.waiting)
        self._running.set(replica.running)
        for reason, count in replica.refusals.items():
            more = count - self._refused_before.get(reason, 0)
            if more:
                self._refused.add((*self._only, reason), more)
                self._refused_before[reason] = count


def _reason(error: TiffinError) -> str:
    if isinstance(error, Rejected | Unavailable | DeadlineExceeded):
        return "REJECTED"
    return "BACKEND" if isinstance(error, RunFailed) else "OTHER"
