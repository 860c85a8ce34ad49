"""What a replica of texts counts beside its batches."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tiffin.errors import TiffinError
from tiffin.serving.measures import REQUEST_BUCKETS
from tiffin.telemetry.metrics import Meter

_LABEL = ("model_name",)


class TextMeasures:
    """Counts one model's requests by how they ended, their tokens and their time."""

    def __init__(self, meter: Meter, model: str) -> None:
        self._model = model
        self._tokens = meter.counter(
            "vllm:prompt_tokens_total", "Tokens of prompts that were answered", _LABEL
        ).labels((model,))
        self._ended = meter.counter(
            "tiffin_text_requests_total",
            "Requests for vectors or rankings by how they ended (ok, cancelled, an error's slug)",
            ("model_name", "ended"),
        )
        self._whole = meter.histogram(
            "tiffin_text_request_seconds",
            "From a request for vectors or a ranking to its answer",
            _LABEL,
            REQUEST_BUCKETS,
        ).labels((model,))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the request that is answered inside."""
        began, ended = time.monotonic(), "internal_error"
        try:
            yield
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

    def read(self, tokens: int) -> None:
        """An answer to so many tokens."""
        self._tokens.add(tokens)
