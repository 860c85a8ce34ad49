"""A model that fails: what it had used is told; one that only ends is asked again elsewhere."""

from types import TracebackType

import numpy as np
import pytest

from tiffin.dialects.openai.errors import hop_error_response
from tiffin.errors import (
    Draining,
    Loading,
    NoHealthyReplica,
    Overloaded,
    RunFailed,
    TiffinError,
    UpstreamUnavailable,
)
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

    def __init__(self, *errors: TiffinError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def start(self, call: Call) -> "Failing":
        return self

    async def __aenter__(self) -> Reply:
        self.calls += 1
        error = self.errors.pop(0)
        if isinstance(error, UpstreamUnavailable):
            raise error
        self.status, _, self.body = hop_error_response(error)
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


HOP = Hop(b"", 1e12)


async def ask(failing: Failing, hop: Hop = HOP) -> None:
    await Peer("m", {"x": "FP32"}, failing)({"x": np.zeros((1, 1), np.float32)}, ["y"], hop)


async def test_what_was_used_until_it_failed_is_told() -> None:
    spent: list[Usage] = []
    with pytest.raises(RunFailed, match="m: it broke"):
        await ask(Failing(RunFailed("it broke")), Hop(b"", 1e12, spent.append))
    assert spent == [Usage(device_ns=7)]


@pytest.mark.parametrize("first", [Draining("bye"), UpstreamUnavailable("gone")], ids=repr)
async def test_one_that_ends_is_asked_once_more_since_another_may_be_there(
    first: TiffinError,
) -> None:
    failing = Failing(first, RunFailed("it broke"))
    with pytest.raises(RunFailed, match="m: it broke"):
        await ask(failing)
    assert failing.calls == 2


@pytest.mark.parametrize("error", [Draining("bye"), Loading("soon"), UpstreamUnavailable("gone")])
async def test_that_nobody_takes_it_isnt_told_as_the_callers_own_state(error: TiffinError) -> None:
    failing = Failing(error, error, error)
    with pytest.raises(NoHealthyReplica):
        await ask(failing)
    assert failing.calls == 2


async def test_a_refusal_is_final() -> None:
    failing = Failing(Overloaded("full"), Overloaded("full"))
    with pytest.raises(Overloaded):
        await ask(failing)
    assert failing.calls == 1
