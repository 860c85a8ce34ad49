"""Engines that we launch, from start to end, with a fake in the place of each."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.launched_engines import EngineName, loaded, runtime
from tiffin.adapters.launchers import tether
from tiffin.adapters.runtimes.launched import LaunchedRuntime
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    LoadFailed,
    RunFailed,
    UnsupportedOperation,
    UnsupportedParameter,
)
from tiffin.ports.backend import Call
from tiffin.ports.text_runtime import Delta, Prompt
from tiffin.types.text import ChatRequest, CompletionRequest, Function, Message, Tool

pytestmark = pytest.mark.xdist_group("launched engines")

ENGINES: list[EngineName] = ["vllm", "sglang", "tgi", "command"]


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LaunchedRuntime]:
    async with loaded(tmp_path, request.param) as made:
        yield made


@pytest.fixture
async def vllm(tmp_path: Path) -> AsyncIterator[LaunchedRuntime]:
    async with loaded(tmp_path, "vllm") as made:
        yield made


def chat(text: str, **given: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=[Message(role="user", content=text)], **given)


async def run(made: LaunchedRuntime, prompt: Prompt, *, reuse: bool = False) -> list[Delta]:
    async with made.start(prompt, slot=0, sample=0, reuse_prefix=reuse) as deltas:
        return [delta async for delta in deltas]


async def asked(made: LaunchedRuntime) -> dict[str, Any]:
    """The last thing that the engine was asked."""
    call = Call(b"/last", b"", b"", float("inf"), b"GET")
    async with made._line.pool.start(call) as reply:
        found: dict[str, Any] = msgspec.json.decode(await reply.read_all(1_000_000))
    return found


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the other side is another process
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def pid_of(pids: Path, *, parent: bool = False) -> int:
    own = int(pids.read_text().split()[0])
    return (
        int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1]) if parent else own
    )


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a_chat_is_answered_and_counted(engine: LaunchedRuntime) -> None:
    [prompt] = await engine.prepare(chat("one two three"))
    deltas = await run(engine, prompt)
    assert "".join(delta.text for delta in deltas) == "one two three"
    assert [delta.finish for delta in deltas if delta.finish] == ["stop"]
    usage = deltas[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (14, 3, 3)
    assert sum(delta.tokens for delta in deltas) == 3
    assert usage.measured


async def test_a_completion_ends_at_its_limit(engine: LaunchedRuntime) -> None:
    request = CompletionRequest(model="m", prompt="a b c d e", max_tokens=2)
    [prompt] = await engine.prepare(request)
    deltas = await run(engine, prompt)
    assert "".join(delta.text for delta in deltas) == "a b "
    assert deltas[-1].finish == "length"


async def test_tokens_are_the_engines_own(engine: LaunchedRuntime) -> None:
    [prompt] = await engine.prepare(CompletionRequest(model="m", prompt="ab"))
    assert prompt.tokens[-2:] == [98, 99]
    with pytest.raises(ContextLengthExceeded, match="1024"):
        await engine.prepare(CompletionRequest(model="m", prompt="x" * 1024))


async def test_leaving_stops_the_engine(tmp_path: Path) -> None:
    async with loaded(tmp_path, "vllm", "--token-s", "0.05") as made:
        [prompt] = await made.prepare(chat("word " * 200))
        async with made.start(prompt, slot=0, sample=0, reuse_prefix=False) as deltas:
            await anext(deltas)
            assert (await made.numbers()).running == 1
        async with asyncio.timeout(5):
            while (await made.numbers()).running:  # noqa: ASYNC110 - the other side is a process
                await asyncio.sleep(0.02)


async def test_what_is_asked_is_what_the_client_asked(vllm: LaunchedRuntime) -> None:
    request = chat("hi", n=3, seed=7, stop=["."], user="jane", max_completion_tokens=5)
    [prompt] = await vllm.prepare(request)
    async with vllm.start(prompt, slot=0, sample=2, reuse_prefix=False) as deltas:
        [delta async for delta in deltas]
    got = await asked(vllm)
    assert (got["seed"], got["stop"], got["max_tokens"], got["stream"]) == (9, ["."], 5, True)
    assert (got["temperature"], got["top_p"]) == (1.0, 1.0)
    assert not {"n", "user", "max_completion_tokens"} & got.keys()


async def test_no_tenant_reuses_anothers_prefix(vllm: LaunchedRuntime) -> None:
    [prompt] = await vllm.prepare(chat("hi there, everybody"))
    salts = []
    for reuse in (False, True, False):
        await run(vllm, prompt, reuse=reuse)
        salts.append((await asked(vllm))["cache_salt"])
    assert salts[0] == salts[1] != salts[2]


async def test_tool_calls_come_as_text_that_is_found_again(tmp_path: Path) -> None:
    tools = [Tool(type="function", function=Function(name="f", parameters={"type": "object"}))]
    async with loaded(tmp_path, "vllm", tools=True) as made:
        [prompt] = await made.prepare(chat("go", tools=tools))
        deltas = await run(made, prompt)
    assert deltas[-1].text == '<tool_call>\n{"name":"f","arguments":{"a":1}}\n</tool_call>'
    assert prompt.tool_names == ["f"]


async def test_tools_are_refused_where_the_section_has_none(vllm: LaunchedRuntime) -> None:
    tools = [Tool(type="function", function=Function(name="f"))]
    with pytest.raises(UnsupportedParameter) as refused:
        await vllm.prepare(chat("go", tools=tools))
    assert refused.value.param == "tools"


@pytest.mark.parametrize("form", ["chat", "text"])
async def test_log_probabilities_of_both_shapes(vllm: LaunchedRuntime, form: str) -> None:
    request: ChatRequest | CompletionRequest = CompletionRequest(
        model="m", prompt="a b", logprobs=1
    )
    if form == "chat":
        request = chat("a b", logprobs=True, top_logprobs=1)
    [prompt] = await vllm.prepare(request)
    told = [one for delta in await run(vllm, prompt) for one in delta.logprobs or []]
    assert [one.token for one in told] == ["a ", "b"]
    assert told[0].top[0].logprob == told[0].logprob == -0.5


async def test_what_an_engine_cannot_honour_is_refused_by_name(tmp_path: Path) -> None:
    async with loaded(tmp_path, "tgi") as made:
        with pytest.raises(UnsupportedParameter) as refused:
            await made.prepare(chat("hi", logit_bias={"1": 2.0}))
        assert refused.value.param == "logit_bias"
        with pytest.raises(UnsupportedParameter, match="tokens"):
            await made.prepare(CompletionRequest(model="m", prompt=[1, 2]))
        with pytest.raises(UnsupportedOperation):
            await made.detokenize([1])


async def test_an_engines_refusal_is_the_clients_to_see(vllm: LaunchedRuntime) -> None:
    [prompt] = await vllm.prepare(chat("hi", temperature=1.5))
    with pytest.raises(InvalidRequest, match="too hot"):
        await run(vllm, prompt)


async def test_a_refusal_in_a_stream_is_one_too(vllm: LaunchedRuntime) -> None:
    [prompt] = await vllm.prepare(chat("hi", logit_bias={"9": 1.0}))
    with pytest.raises(InvalidRequest, match="out of vocabulary"):
        await run(vllm, prompt)


async def test_without_a_tokenizer_tokens_are_guessed(tmp_path: Path) -> None:
    async with loaded(tmp_path, "command", "--fault", "no-tokens") as made:
        [one] = await made.prepare(chat("the same beginning, and this"))
        [two] = await made.prepare(chat("the same beginning, or that"))
        assert one.tokens[:4] == two.tokens[:4] != one.tokens[4:8]
        assert "max_tokens" not in one.sampling
        with pytest.raises(UnsupportedOperation):
            await made.tokenize(text="x", messages=None, tools=None, special=True)


async def test_its_numbers_are_passed_on(vllm: LaunchedRuntime) -> None:
    numbers = await vllm.numbers()
    assert (numbers.kv_usage, numbers.waiting, numbers.prefix_hits) == (0.25, 0.0, 4.0)
    before = numbers.moved or 0.0
    [prompt] = await vllm.prepare(chat("one two"))
    await run(vllm, prompt)
    assert (await vllm.numbers()).moved == before + 2


async def test_a_slow_load_is_waited_for(tmp_path: Path) -> None:
    async with loaded(tmp_path, "vllm", "--load-s", "0.5") as made:
        assert not made.fault


@pytest.mark.parametrize(
    ("fault", "said"),
    [("crash-on-start", "this model doesn't fit"), ("mute", "CUDA error")],
)
async def test_what_fails_to_load_says_why_and_leaves_nothing(
    tmp_path: Path, fault: str, said: str
) -> None:
    pids = tmp_path / "pids"
    made = runtime(tmp_path, "vllm", "--fault", fault, "--pids", str(pids))
    with pytest.raises(LoadFailed, match=said):
        await made.load()
    if pids.exists():
        await until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))
    await made.close()


async def test_a_load_that_takes_too_long_fails(tmp_path: Path) -> None:
    made = runtime(tmp_path, "vllm", "--fault", "never-healthy", load_timeout_s=1.0)
    with pytest.raises(LoadFailed, match="isn't healthy"):
        await made.load()


async def test_an_executable_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = runtime(tmp_path, "vllm", executable="/nowhere/vllm")
    with pytest.raises(LoadFailed, match="/nowhere/vllm"):
        await made.load()


async def test_an_engine_that_crashes_breaks_its_answers_off_and_is_at_fault(
    tmp_path: Path,
) -> None:
    async with loaded(tmp_path, "vllm", "--fault", "crash-serving") as made:
        [prompt] = await made.prepare(chat("one two three four"))
        with pytest.raises(RunFailed, match="broke the answer off"):
            await run(made, prompt)
        await until(lambda: made.fault)
        assert "ended by itself" in made.fault


async def test_an_engine_that_ignores_term_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiffin.adapters.runtimes.launched_child.END_S", 0.3)
    pids = tmp_path / "pids"
    async with loaded(tmp_path, "vllm", "--fault", "ignore-term", "--pids", str(pids)):
        own = [int(pid) for pid in pids.read_text().split()]
        assert all(map(alive, own))
    await until(lambda: not any(map(alive, own)))


async def test_no_key_is_seen_in_lists_of_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with loaded(tmp_path, "command", "--pids", str(pids)) as made:
        seen = [command_line(pid) for pid in (pid_of(pids), pid_of(pids, parent=True))]
        assert not any(made._child.address.key.encode() in line for line in seen)


def test_when_its_owner_is_killed_the_engine_and_its_workers_end(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake = Path(__file__).parents[1] / "fake_engine.py"
    program = [sys.executable, str(fake), "--uds", str(tmp_path / "s"), "--pids", str(pids)]
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            "from tiffin.adapters.launchers import tether\n"
            "subprocess.Popen(tether.command(os.getpid(), sys.argv[1:]), start_new_session=True)\n"
            "time.sleep(60)",
            *program,
        ],
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 10
    while not (pids.exists() and pids.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    own = [int(pid) for pid in pids.read_text().split()]
    owner.kill()
    owner.wait()
    while any(map(alive, own)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(alive, own))


@pytest.mark.parametrize(("program", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_a_tether_ends_as_its_program_does(program: str, code: int) -> None:
    command = tether.command(os.getpid(), ["sh", "-c", program])
    assert subprocess.run(command, start_new_session=True, check=False).returncode == code
