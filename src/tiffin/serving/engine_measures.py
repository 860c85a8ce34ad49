"""What an engine in a process of its own says about itself, counted under our names."""

from dataclasses import dataclass

from tiffin.telemetry.metrics import Meter

_LABEL = ("model_name",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNumbers:
    """An engine's own view, None where it doesn't tell. `moved` grows while it works."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    moved: float | None = None


class EngineMeasures:
    """Passes one model's engine's numbers on."""

    def __init__(self, meter: Meter, model: str) -> None:
        only = (model,)
        self._before = EngineNumbers(prefix_queries=0.0, prefix_hits=0.0)
        self._running = meter.gauge(
            "tiffin_engine_requests_running", "Requests that the engine itself works on", _LABEL
        ).labels(only)
        self._waiting = meter.gauge(
            "tiffin_engine_requests_waiting", "Requests that wait inside the engine", _LABEL
        ).labels(only)
        self._kv_usage = meter.gauge(
            "vllm:kv_cache_usage_perc", "Share of the engine's memory of tokens in use", _LABEL
        ).labels(only)
        self._queries = meter.counter(
            "vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache", _LABEL
        ).labels(only)
        self._hits = meter.counter(
            "vllm:prefix_cache_hits_total", "Tokens found in the prefix cache", _LABEL
        ).labels(only)

    def note(self, numbers: EngineNumbers) -> None:
        """Note what the engine says now."""
        self._running.set(numbers.running or 0)
        self._waiting.set(numbers.waiting or 0)
        self._kv_usage.set(numbers.kv_usage or 0)
        before, self._before = self._before, numbers
        self._queries.add(_more(before.prefix_queries, numbers.prefix_queries))
        self._hits.add(_more(before.prefix_hits, numbers.prefix_hits))


def _more(before: float | None, now: float | None) -> float:
    return max(0.0, now - (before or 0.0)) if now is not None else 0.0
