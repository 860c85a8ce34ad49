"""A model that fails midway: what it had used by then is told to whoever called it."""

from types import TracebackType

import numpy as np
import pytest

from tiffin.dialects.openai.errors import hop_error_response
from tiffin.errors import RunFailed
from tiffin.ports.backend import Call, Reply
from tiffin.serving.pipeline.peer import Hop, Peer
from tiffin.types.usage import Usage


class Failing:
    """Answers every call with an error, and with what was used until it happened."""

    content_type = b"application/json"
    inference_header = b""
    usage = b'{"device_ns":7}'
    retry_after: float | None = None
    streaming = False

    def __init__(self) -> None:
        self.status, _, self.body = hop_error_response(RunFailed("it broke"))

    def start(self, call: Call) -> "Failing":
        return self

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    async def read(self) -> bytes:
        return b""

    async def read_all(self, limit: int) -> bytes:
        return self.body

    def rest(self, seconds: float) -> None:
        pass


async def test_what_was_used_until_it_failed_is_told() -> None:
    spent: list[Usage] = []
    peer = Peer("m", {"x": "FP32"}, Failing())
    with pytest.raises(RunFailed, match="m: it broke"):
        await peer({"x": np.zeros((1, 1), np.float32)}, ["y"], Hop(b"", 1e12, spent.append))
    assert spent == [Usage(device_ns=7)]
