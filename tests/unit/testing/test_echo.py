"""The echo model says what it's told, fails as it's told, and waits as it's told."""

import json
import threading
import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.polling import until
from tiffin.config.models import EchoModel
from tiffin.errors import LoadFailed, RunFailed, UnsupportedParameter
from tiffin.ports.text_runtime import Delta
from tiffin.testing.echo import EchoRuntime
from tiffin.types.snapshot import Deployment
from tiffin.types.text import (
    ChatRequest,
    Function,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
)

TOOL = Tool(type="function", function=Function(name="f", parameters={"required": ["a"]}))


class Slept:
    """A sleep that passes at once and remembers how long it was."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def echo(slept: Slept | None = None, **spec: Any) -> EchoRuntime:
    raw = msgspec.Raw(msgspec.json.encode(EchoModel(**spec)))
    deployment = Deployment(model="m", revision="r", socket="", spec=raw)
    return EchoRuntime(deployment, sleep=slept or Slept())


def chat(text: str, **given: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=[Message(role="user", content=text)], **given)


async def said(runtime: EchoRuntime, request: ChatRequest) -> list[Delta]:
    [prompt] = await runtime.prepare(request)
    async with runtime.start(prompt, slot=0, sample=0, reuse_prefix=False) as deltas:
        return [delta async for delta in deltas]


async def test_it_says_the_last_message_word_by_word() -> None:
    deltas = await said(echo(), chat("one two  three"))
    assert [delta.text for delta in deltas] == ["one ", "two  ", "three", ""]


async def test_its_delays_go_through_the_sleep_that_it_was_given() -> None:
    slept = Slept()
    runtime = echo(slept, load_ms=1000, prefill_ms=500, token_ms=20)
    await runtime.load()
    deltas = await said(runtime, chat("one two"))
    assert slept.seconds == [1.0, 0.5, 0.02, 0.02]
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.device_ns == 540_000_000


async def test_it_fails_to_load_as_told() -> None:
    with pytest.raises(LoadFailed, match="no room"):
        await echo(fail_load="no room").load()


async def test_it_breaks_off_as_told() -> None:
    runtime = echo(fail_after=2)
    with pytest.raises(RunFailed):
        await said(runtime, chat("one two three"))
    assert (runtime.started, runtime.finished, runtime.cancelled) == (1, 0, 1)
    assert runtime.running == 0


async def test_it_counts_what_ran_and_how_it_ended() -> None:
    runtime = echo()
    await said(runtime, chat("one"))
    [prompt] = await runtime.prepare(chat("one two"))
    async with runtime.start(prompt, slot=0, sample=0, reuse_prefix=False) as deltas:
        await anext(deltas)
        assert runtime.running == 1
    assert (runtime.started, runtime.finished, runtime.cancelled) == (2, 1, 1)


async def test_it_holds_the_interpreter_as_told() -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        until(lambda: ticks)
        await said(echo(spin_ms=300), chat("one"))
    finally:
        until(lambda: ticks[-1] > time.monotonic() - 0.1)
        stop.set()
        ticker.join()
    gaps = [after - before for before, after in pairwise(ticks)]
    assert max(gaps) > 0.1


async def test_a_format_is_kept_or_refused() -> None:
    runtime = echo()
    wanted = ResponseFormat(type="json_object")
    deltas = await said(runtime, chat('{"a": 1}', response_format=wanted))
    assert "".join(delta.text for delta in deltas) == '{"a": 1}'
    with pytest.raises(UnsupportedParameter) as refused:
        await runtime.prepare(chat("no JSON", response_format=wanted))
    assert refused.value.param == "response_format"


async def test_a_schema_that_the_message_breaks_is_refused() -> None:
    definition = {"type": "object", "required": ["b"]}
    wanted = ResponseFormat(
        type="json_schema", json_schema=JsonSchema(name="x", definition=definition)
    )
    with pytest.raises(UnsupportedParameter):
        await echo().prepare(chat('{"a": 1}', response_format=wanted))


async def test_a_required_call_has_the_message_as_its_arguments() -> None:
    runtime = echo(tools=True)
    deltas = await said(runtime, chat('{"a": 1}', tools=[TOOL], tool_choice="required"))
    call = json.loads("".join(delta.text for delta in deltas))
    assert call == {"name": "f", "arguments": {"a": 1}}
    with pytest.raises(UnsupportedParameter):
        await runtime.prepare(chat("go", tools=[TOOL], tool_choice="required"))


async def test_it_has_tools_only_where_told() -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        await echo().prepare(chat("go", tools=[TOOL]))
    assert refused.value.param == "tools"
    [prompt] = await echo(tools=True).prepare(chat("go", tools=[TOOL]))
    assert prompt.tool_names == ["f"]
