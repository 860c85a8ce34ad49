"""The line to the engine: its answers are read in any pieces, and its failures become ours."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapters.runtimes.engines import FakeEngine
from tiffin.adapters.runtimes.cadence import Cadence
from tiffin.adapters.runtimes.engine import Engine, Event, Extent, Line
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed, UpstreamFailed


def event(**values: Any) -> bytes:
    return b"data: " + json.dumps(values).encode() + b"\n\n"


REFUSAL = b'{"error":{"code":400,"message":"too odd","type":"invalid_request_error"}}'
EACH = Cadence(0.0, 9)
PROGRESS = event(content="", tokens=[0], prompt_progress={"total": 9, "processed": 3})
STREAM = (
    PROGRESS
    + b": ping\n\n"
    + event(content="नम", tokens_predicted=2)
    + event(content="😀", tokens_predicted=5, stop=True, stop_type="eos", timings={"cache_n": 3})
)


async def events_of(engine: FakeEngine) -> list[Event]:
    """All events up to the one that ends the stream."""
    found: list[Event] = []
    async with Line(engine).stream({"prompt": [1]}, EACH) as stream:
        while not found or not found[-1].stop:
            found += await stream.next()
    return found


@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=8, unique=True).map(sorted))
async def test_a_stream_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *cuts, len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(edges)]
    first, last = await events_of(FakeEngine(200, *pieces))
    assert (first.content, first.tokens_predicted) == ("नम", 2)
    assert (last.content, last.stop_type) == ("😀", "eos")
    assert last.timings is not None
    assert last.timings.cache_n == 3


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        pytest.param([], "broke", id="nothing"),
        pytest.param([event(content="a")], "broke", id="broken off"),
        pytest.param([UpstreamFailed("cut")], "cut", id="connection lost"),
        pytest.param([b"data: {nonsense\n\n"], "can't be read", id="nonsense"),
        pytest.param([b'data: {"content": "\xff"}\n\n'], "can't be read", id="not UTF-8"),
    ],
)
async def test_a_stream_that_goes_wrong_fails_the_run(
    pieces: list[bytes | Exception], word: str
) -> None:
    engine = FakeEngine(200, *pieces)
    with pytest.raises(RunFailed, match=word):
        await events_of(engine)
    assert engine.open == 0


async def test_an_error_in_a_stream_is_an_event() -> None:
    engine = FakeEngine(200, b'error: {"message": "no memory", "type": "server_error"}\n\n')
    async with Line(engine).stream({}, EACH) as stream:
        (failed,) = await stream.next()
    assert failed.error is not None
    assert failed.error.message == "no memory"


async def test_what_has_come_is_taken_at_once_and_a_failure_alone() -> None:
    failure = b'error: {"message": "no memory"}\n\n'
    steps = [event(content=word, tokens_predicted=n) for n, word in enumerate("abc", 1)]
    engine = FakeEngine(200, steps[0], steps[1] + steps[2] + failure)
    async with Line(engine).stream({}, EACH) as stream:
        taken = [await stream.next() for _ in range(3)]
    said = [[event.error.message if event.error else event.content for event in t] for t in taken]
    assert said == [["a"], ["b", "c"], ["no memory"]]


async def test_a_refused_stream_says_why_and_holds_nothing() -> None:
    engine = FakeEngine(400, REFUSAL)
    with pytest.raises(InvalidRequest, match="too odd"):
        await events_of(engine)
    assert engine.open == 0


async def test_leaving_a_stream_lets_go_of_the_connection() -> None:
    engine = FakeEngine(200, event(content="a"))
    async with Line(engine).stream({}, EACH) as stream:
        await stream.next()
        assert engine.open == 1
    assert engine.open == 0


@pytest.mark.parametrize(
    ("engine", "error", "word"),
    [
        pytest.param(FakeEngine(0), RunFailed, "nobody listens", id="unreachable"),
        pytest.param(FakeEngine(400, REFUSAL), InvalidRequest, "too odd", id="refused"),
        pytest.param(FakeEngine(500, REFUSAL), RunFailed, "too odd", id="failed"),
        pytest.param(FakeEngine(503, b"<html>"), RunFailed, "status 503", id="not JSON"),
        pytest.param(FakeEngine(200, b"[]"), RunFailed, "can't be read", id="another shape"),
    ],
)
async def test_a_question_that_goes_wrong_says_why(
    engine: FakeEngine, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        await Line(engine).ask("/props", None, dict[str, int])
    assert engine.open == 0


async def test_a_question_without_words_is_a_get() -> None:
    engine = FakeEngine(200, b'{"a":', b"1}")
    assert await Line(engine).ask("/props", None, dict[str, int]) == {"a": 1}
    await Line(engine).ask("/tokenize", {"content": "x"}, dict[str, int])
    assert [call.method for call in engine.calls] == [b"GET", b"POST"]
    assert msgspec.json.decode(engine.calls[1].body) == {"content": "x"}


@pytest.mark.parametrize("name", ["engine", "e" * 200 + ".sock"])
def test_a_socket_that_the_engine_would_misunderstand_is_refused(tmp_path: Path, name: str) -> None:
    engine = Engine("model.gguf", str(tmp_path / name), Extent(context=512))
    with pytest.raises(LoadFailed, match="socket"):
        engine.start()
