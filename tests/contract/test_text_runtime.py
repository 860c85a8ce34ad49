"""What every text runtime does alike: answers, stops, refuses and forgets as its port says."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.text_runtimes import (
    CONTEXT,
    SLOTS,
    Bench,
    chat,
    loaded_echo,
    loaded_llamacpp,
    loaded_openvino,
)
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    SchemaViolation,
    UnsupportedParameter,
)
from tiffin.types.text import (
    CompletionRequest,
    Function,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

REAL = [pytest.mark.models, pytest.mark.xdist_group("real models")]
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,"
# Small vocabularies lack the bytes of what nobody writes.
LETTERS = st.characters(max_codepoint=0x1FAFF, exclude_categories=["Cc", "Cn", "Co", "Cs"])
SCRIPTS = "नमस्ते दुनिया 😀🎉 👩‍👩‍👧 안녕 नमस्ते दुनिया 😀🎉 👩‍👩‍👧 안녕 नमस्ते दुनिया 😀🎉"


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["echo", pytest.param("llamacpp", marks=REAL), pytest.param("openvino", marks=REAL)],
)
async def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    if request.param == "echo":
        async with loaded_echo() as echo:
            yield echo
        return
    if request.param == "openvino":
        pytest.importorskip(
            "openvino_genai", reason="needs the extra openvino", exc_type=ImportError
        )
    loaded = loaded_llamacpp if request.param == "llamacpp" else loaded_openvino
    async with loaded(tmp_path_factory.mktemp("rt")) as real:
        yield real


async def test_loading_tells_what_one_slot_really_has(bench: Bench) -> None:
    assert bench.capabilities.context_tokens == CONTEXT
    assert bench.capabilities.slots == SLOTS
    assert bench.capabilities.chat
    assert not bench.capabilities.tools


async def test_the_last_delta_alone_carries_finish_and_usage(bench: Bench) -> None:
    answer = await bench.complete(COUNTING, max_tokens=8, temperature=0)
    assert [delta for delta in answer.deltas[:-1] if delta.finish or delta.usage] == []
    assert answer.finish == "length"
    assert answer.usage.completion_tokens == 8 == sum(delta.tokens for delta in answer.deltas)
    assert answer.usage.prompt_tokens == len((await bench.prompt(COUNTING)).tokens)
    assert answer.usage.measured
    assert answer.usage.device_ns > 0


async def test_a_chat_is_answered(bench: Bench) -> None:
    answer = await bench.chat("Say hello", max_completion_tokens=20)
    assert answer.text
    assert answer.finish in ("stop", "length")


async def test_without_a_limit_a_chat_may_fill_the_context(bench: Bench) -> None:
    [prompt] = await bench.runtime.prepare(chat("hello"))
    assert len(prompt.tokens) + prompt.answer_tokens == CONTEXT


async def test_a_completions_default_limit_is_the_wires(bench: Bench) -> None:
    assert (await bench.prompt("hello")).answer_tokens == 16


@pytest.mark.parametrize("steps", [0, 1, 5])
async def test_leaving_stops_the_work(bench: Bench, steps: int) -> None:
    prompt = await bench.prompt(COUNTING, max_tokens=400)
    run = bench.runtime.start(prompt, slot=1, sample=0, reuse_prefix=False)
    async with run as deltas:
        for _ in range(steps):
            await anext(deltas)
    await bench.until_idle()
    again = await bench.run(await bench.prompt("again", max_tokens=2), slot=1)
    assert again.usage.completion_tokens > 0


@pytest.mark.parametrize("steps", [0, 3])
async def test_cancellation_stops_the_work(bench: Bench, steps: int) -> None:
    prompt = await bench.prompt(COUNTING, max_tokens=400)
    reached = asyncio.Event()

    async def read() -> None:
        run = bench.runtime.start(prompt, slot=2, sample=0, reuse_prefix=False)
        async with run as deltas:
            for _ in range(steps):
                await anext(deltas)
            reached.set()
            async for _ in deltas:
                pass

    task = asyncio.ensure_future(read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.until_idle()


async def test_a_run_that_is_never_entered_holds_nothing(bench: Bench) -> None:
    prompt = await bench.prompt(COUNTING)
    bench.runtime.start(prompt, slot=0, sample=0, reuse_prefix=False)
    assert not await bench.busy()


async def test_an_error_of_the_reader_stops_the_work(bench: Bench) -> None:
    prompt = await bench.prompt(COUNTING, max_tokens=400)
    with contextlib.suppress(ZeroDivisionError):
        async with bench.runtime.start(prompt, slot=0, sample=0, reuse_prefix=False):
            raise ZeroDivisionError
    await bench.until_idle()


async def test_all_slots_answer_at_once(bench: Bench) -> None:
    texts = [f"The number {n} is followed by the number" for n in range(SLOTS)]
    prompts = [await bench.prompt(text, max_tokens=6, temperature=0) for text in texts]
    alone = [await bench.run(prompt) for prompt in prompts]
    runs = [bench.run(prompt, slot=slot) for slot, prompt in enumerate(prompts)]
    together = await asyncio.gather(*runs)
    assert [a.text.split()[:1] for a in together] == [a.text.split()[:1] for a in alone]
    assert [a.usage.completion_tokens for a in together] == [6] * SLOTS


async def test_a_lane_is_remembered_for_its_tenant_only(bench: Bench) -> None:
    prompt = await bench.prompt(COUNTING, max_tokens=2)
    await bench.run(prompt, slot=3)
    other_tenant = await bench.run(prompt, slot=3, reuse_prefix=False)
    same_tenant = await bench.run(prompt, slot=3, reuse_prefix=True)
    assert other_tenant.usage.cached_tokens == 0
    if bench.remembers:
        assert same_tenant.usage.cached_tokens > len(prompt.tokens) // 2


async def test_characters_are_never_split(bench: Bench) -> None:
    answer = await bench.complete(SCRIPTS, max_tokens=40, temperature=0)
    assert [delta.text for delta in answer.deltas[:-1] if "\ufffd" in delta.text] == []
    assert any(ord(letter) > 0x7F for letter in answer.text)


async def test_a_stop_text_ends_the_answer_and_isnt_in_it(bench: Bench) -> None:
    free = await bench.complete(COUNTING, max_tokens=16, temperature=0)
    stop = free.text[6:9]
    answer = await bench.complete(COUNTING, max_tokens=16, temperature=0, stop=["nowhere", stop])
    assert answer.finish == "stop"
    assert answer.text == free.text[: free.text.index(stop)]


async def test_log_probabilities_come_with_their_tokens(bench: Bench) -> None:
    rivals = 2 if bench.rivals else 0
    answer = await bench.complete(COUNTING, max_tokens=6, temperature=0, logprobs=rivals)
    told = [one for delta in answer.deltas for one in delta.logprobs or []]
    assert "".join(one.token for one in told) == answer.text
    assert len(told) == sum(delta.tokens for delta in answer.deltas)
    for one in told:
        assert bytes(one.token_bytes).decode() == one.token
        assert one.logprob <= 0
        assert bool(rivals) <= len(one.top) <= rivals
        if one.top:
            assert one.top[0].logprob == one.logprob, "the first choice was taken"


async def test_rivals_are_refused_where_the_engine_hides_them(bench: Bench) -> None:
    if bench.rivals:
        pytest.skip("it tells them")
    with pytest.raises(UnsupportedParameter) as refused:
        await bench.prompt("x", logprobs=1)
    assert refused.value.param == "logprobs"


async def test_log_probabilities_come_only_where_asked(bench: Bench) -> None:
    answer = await bench.complete(COUNTING, max_tokens=3)
    assert {delta.logprobs is None for delta in answer.deltas} == {True}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(text=st.text(alphabet=LETTERS, max_size=60))
async def test_detokenizing_undoes_tokenizing(bench: Bench, text: str) -> None:
    ids = await bench.runtime.tokenize(text=text, messages=None, tools=None, special=False)
    assert await bench.runtime.detokenize(ids) == text


async def test_messages_have_the_tokens_that_a_chat_has(bench: Bench) -> None:
    messages = [Message(role="user", content="hello")]
    ids = await bench.runtime.tokenize(text=None, messages=messages, tools=None, special=True)
    [prompt] = await bench.runtime.prepare(chat("hello"))
    assert ids == prompt.tokens


async def test_prompts_come_as_text_or_as_tokens_one_or_many(bench: Bench) -> None:
    one = (await bench.prompt("hello")).tokens
    forms: list[tuple[Any, list[list[int]]]] = [
        ("hello", [one]),
        (["hello", "hello"], [one, one]),
        (one, [one]),
        ([one, one], [one, one]),
    ]
    for form, expected in forms:
        request = CompletionRequest(model="m", prompt=form)
        assert [prompt.tokens for prompt in await bench.runtime.prepare(request)] == expected


async def test_the_text_of_a_prompt_is_known_for_its_echo(bench: Bench) -> None:
    forms: list[Any] = ["hello", (await bench.prompt("hello")).tokens]
    for prompt in forms:
        request = CompletionRequest(model="m", prompt=prompt, echo=True)
        assert [one.text for one in await bench.runtime.prepare(request)] == ["hello"]


@pytest.mark.parametrize("word", ["prompt", "messages"])
async def test_a_prompt_over_the_context_is_refused_with_both_numbers(
    bench: Bench, word: str
) -> None:
    text = "12 " * CONTEXT
    request = chat(text) if word == "messages" else CompletionRequest(model="m", prompt=text)
    with pytest.raises(ContextLengthExceeded, match=str(CONTEXT)) as refused:
        await bench.runtime.prepare(request)
    assert refused.value.param == word
    numbers = [int(n) for n in refused.value.message.replace(";", " ").split() if n.isdigit()]
    assert max(numbers) > CONTEXT


async def test_prompt_and_answer_fit_to_the_last_token(bench: Bench) -> None:
    left = CONTEXT - len((await bench.prompt(COUNTING)).tokens)
    assert (await bench.prompt(COUNTING, max_tokens=left)).answer_tokens == left
    with pytest.raises(ContextLengthExceeded, match=str(left + 1)):
        await bench.prompt(COUNTING, max_tokens=left + 1)


async def test_a_prompt_that_can_never_fit_is_refused_fast(bench: Bench) -> None:
    began = time.monotonic()
    with pytest.raises(ContextLengthExceeded):
        await bench.prompt("x" * 5_000_000)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("prompt", ["", [10**8], [[0, 10**8]]])
async def test_a_prompt_that_is_none_is_refused(bench: Bench, prompt: Any) -> None:
    with pytest.raises(SchemaViolation):
        await bench.runtime.prepare(CompletionRequest(model="m", prompt=prompt))


async def test_tokens_that_the_model_lacks_are_refused(bench: Bench) -> None:
    with pytest.raises(SchemaViolation) as refused:
        await bench.runtime.detokenize([1, 10**8])
    assert str(refused.value.param).startswith("tokens")
    with pytest.raises(InvalidRequest) as biased:
        await bench.prompt("x", logit_bias={"99999999": 1.0})
    assert biased.value.param == "logit_bias"


async def test_tools_are_refused_where_the_model_has_none(bench: Bench) -> None:
    tools = [Tool(type="function", function=Function(name="f"))]
    with pytest.raises(UnsupportedParameter) as refused:
        await bench.runtime.prepare(chat("hello", tools=tools))
    assert refused.value.param == "tools"


def in_schema(definition: dict[str, Any]) -> ResponseFormat:
    return ResponseFormat(
        type="json_schema", json_schema=JsonSchema(name="x", definition=definition)
    )


async def test_an_answer_in_a_schema_is_in_it(bench: Bench) -> None:
    wanted = in_schema({"type": "object", "additionalProperties": {"enum": [1, 2]}})
    if not bench.schemas:
        with pytest.raises(UnsupportedParameter) as refused:
            await bench.chat("x", response_format=wanted)
        assert refused.value.param == "response_format"
        return
    answer = await bench.chat('{"a": 1, "b": 2}', response_format=wanted, temperature=0)
    assert answer.finish == "stop"
    assert set(json.loads(answer.text).values()) <= {1, 2}


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param({"type": "objectx"}, id="unknown type"),
        pytest.param({"not": {}}, id="keyword that isn't enforced"),
        pytest.param({"$ref": "#"}, id="nothing satisfies it"),
        pytest.param({"type": "string", "pattern": "(?=x)y"}, id="pattern out of reach"),
        pytest.param({"type": "string", "pattern": "(" * 50_000}, id="hostile pattern"),
        pytest.param({"type": "array", "minItems": 10**9}, id="hostile size"),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_refused(
    bench: Bench, definition: dict[str, Any]
) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidRequest) as refused:
        await bench.runtime.prepare(chat("hello", response_format=in_schema(definition)))
    if bench.schemas:
        assert refused.value.param == "response_format.json_schema.schema"
    assert time.monotonic() - began < 2


async def test_closing_twice_is_closing_once() -> None:
    async with loaded_echo() as echo:
        await echo.runtime.close()
        await echo.runtime.close()
