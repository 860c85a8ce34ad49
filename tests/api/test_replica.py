"""A replica's edge: what the gateway asks and gets, on exchanges without a socket."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiffin.api.replica import ReplicaApi
from tiffin.errors import ContextLengthExceeded, RunFailed
from tiffin.ports.exchange import Headers
from tiffin.ports.text_runtime import Delta
from tiffin.serving.measures import Measures
from tiffin.serving.progress import ProgressFile
from tiffin.serving.replica import Replica
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, events_of, json_of
from tiffin.testing.scripted import ScriptedRuntime, Step, words

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
WHO: Headers = [
    (b"x-tiffin-tenant", b"a"),
    (b"x-tiffin-request", b"req_" + b"f" * 32),
    (b"x-tiffin-timeout-ms", b"60000"),
]


class Site:
    """A replica's edge over a scripted runtime."""

    def __init__(self, folder: Path, script: Sequence[Step], **runtime: Any) -> None:
        self.runtime = ScriptedRuntime(script, **runtime)
        self.meter = Meter("replica", "ep_1")
        self.clock = FakeClock()
        self.progress = ProgressFile(folder / "progress")
        self.measures = Measures(self.meter, "m")
        self.replica = Replica(self.runtime, self.clock, self.progress, self.measures)
        self.api = ReplicaApi(self.replica, self.meter, fingerprint="fp_1", max_body_bytes=10_000)

    async def __aenter__(self) -> "Site":
        script, self.runtime.script = self.runtime.script, words("warm")
        await self.replica.load(4)
        await self.replica.warm_up()
        self.runtime.script = script
        self.runtime.runs.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not self.runtime.running
        assert self.replica.lanes.running == 0
        self.progress.close()

    def request(self, path: str, body: Any, headers: Headers = WHO) -> FakeExchange:
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return FakeExchange(b"POST", path.encode(), headers=list(headers), body=encoded)

    async def post(self, path: str, body: Any, headers: Headers = WHO) -> FakeExchange:
        return await answered(self.api, self.request(path, body, headers))

    async def get(self, path: str) -> FakeExchange:
        return await answered(self.api, FakeExchange(b"GET", path.encode()))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(tmp_path, words("a_b")) as made:
        yield made


def contents(events: list[Any], choice: int = 0) -> str:
    """The content of one choice of a chat stream."""
    deltas = [c for event in events[:-1] for c in event["choices"] if c["index"] == choice]
    return "".join(c["delta"].get("content") or "" for c in deltas)


async def test_a_whole_chat_answer(site: Site) -> None:
    exchange = await site.post("/v1/chat/completions", HELLO)
    answer = json_of(exchange)
    assert exchange.status == 200
    assert exchange.answer_headers[b"content-type"] == b"application/json"
    assert answer["id"] == "chatcmpl-" + "f" * 32
    assert answer["choices"][0]["message"]["content"] == "ab"
    assert answer["system_fingerprint"] == "fp_1"
    assert answer["usage"]["total_tokens"] == 5


async def test_a_streamed_chat_answer_ends_with_usage_and_done(site: Site) -> None:
    exchange = await site.post("/v1/chat/completions", {**HELLO, "stream": True, "n": 2})
    events = events_of(exchange)
    assert exchange.answer_headers[b"content-type"].startswith(b"text/event-stream")
    assert [contents(events, choice) for choice in (0, 1)] == ["ab", "ab"]
    assert events[-1] == "[DONE]"
    assert (events[-2]["choices"], events[-2]["usage"]["completion_tokens"]) == ([], 4)
    assert exchange.finished


async def test_steps_of_one_moment_go_out_in_one_write(site: Site) -> None:
    exchange = await site.post("/v1/chat/completions", {**HELLO, "stream": True})
    assert exchange.writes == 2  # all steps at once, then the end


async def test_completions_of_several_prompts_and_choices_with_echo(site: Site) -> None:
    body = {"model": "m", "prompt": ["x", "y"], "n": 2, "echo": True}
    whole = json_of(await site.post("/v1/completions", body))
    texts = [(choice["index"], choice["text"]) for choice in whole["choices"]]
    assert texts == [(0, "xab"), (1, "xab"), (2, "yab"), (3, "yab")]
    assert whole["id"].startswith("cmpl-")
    assert whole["usage"]["prompt_tokens"] == 6
    events = events_of(await site.post("/v1/completions", {**body, "stream": True}))
    streamed = ["", "", "", ""]
    for event in events[:-1]:
        for choice in event["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == [text for _, text in texts]


async def test_tool_calls_come_out_of_the_text(tmp_path: Path) -> None:
    call = '{"name": "add", "arguments": {"a": 1}}'
    async with Site(tmp_path, words(f"{call[:9]}_{call[9:]}"), tools=["add"]) as site:
        body = {**HELLO, "tools": [TOOL]}
        choice = json_of(await site.post("/v1/chat/completions", body))["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"] == {
            "name": "add",
            "arguments": '{"a": 1}',
        }
        plain = json_of(await site.post("/v1/chat/completions", HELLO))["choices"][0]
        assert plain["message"]["content"] == call


async def test_tokenize_and_back(site: Site) -> None:
    body = {"model": "m", "prompt": "ab", "return_token_strs": True}
    assert json_of(await site.post("/tokenize", body)) == {
        "count": 3,
        "max_model_len": 4096,
        "tokens": [0, 97, 98],
        "token_strs": ["\x00", "a", "b"],
    }
    plain = {"model": "m", "prompt": "ab", "add_special_tokens": False}
    assert json_of(await site.post("/tokenize", plain))["tokens"] == [97, 98]
    back = await site.post("/detokenize", {"model": "m", "tokens": [97, 98]})
    assert json_of(back) == {"prompt": "ab"}


async def test_strings_of_more_tokens_than_the_context_are_refused(site: Site) -> None:
    body = {"model": "m", "prompt": "x" * 5000, "return_token_strs": True}
    exchange = await site.post("/tokenize", body)
    assert json_of(exchange)["error"]["code"] == "context_length_exceeded"


async def test_an_error_before_the_first_byte_has_its_status(site: Site) -> None:
    site.runtime.refusal = ContextLengthExceeded("too long", param="messages")
    exchange = await site.post("/v1/chat/completions", {**HELLO, "stream": True})
    assert exchange.status == 400
    assert json_of(exchange)["error"] == {
        "message": "too long",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }


async def test_a_broken_stream_ends_in_an_error_event_and_is_cut(tmp_path: Path) -> None:
    async with Site(tmp_path, [Delta(text="a"), RunFailed("it fell over")]) as site:
        exchange = await site.post("/v1/chat/completions", {**HELLO, "stream": True})
    events = events_of(exchange)
    assert contents(events) == "a"
    assert events[-1]["error"]["code"] == "run_failed"
    assert exchange.aborted
    assert not exchange.finished


async def test_a_whole_answer_that_breaks_is_an_error_only(tmp_path: Path) -> None:
    async with Site(tmp_path, [Delta(text="a"), RunFailed("it fell over")]) as site:
        exchange = await site.post("/v1/chat/completions", HELLO)
    assert (exchange.status, json_of(exchange)["error"]["code"]) == (500, "run_failed")


async def test_a_defect_ends_one_request_and_tells_nothing_of_it(tmp_path: Path) -> None:
    async with Site(tmp_path, [ZeroDivisionError("secret text")]) as site:
        exchange = await site.post("/v1/chat/completions", HELLO)
        assert exchange.status == 500
        assert b"secret" not in exchange.sent
        assert json_of(await site.get("/v2/health/ready")) == {"ready": True}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("steps", [0, 1], ids=["in prefill", "mid-answer"])
async def test_a_client_that_leaves_stops_the_work(site: Site, stream: bool, steps: int) -> None:
    site.runtime.held = True
    exchange = site.request("/v1/chat/completions", {**HELLO, "stream": stream})
    exchange.start(site.api)
    await site.runtime.until(lambda: len(site.runtime.running) == 1)
    site.runtime.release(steps)
    if stream and steps:
        await exchange.wrote.wait()
    await exchange.leave()
    assert not site.runtime.running
    assert site.replica.lanes.running == 0
    assert not exchange.finished


async def test_a_slow_client_holds_the_stream_back(site: Site) -> None:
    exchange = site.request("/v1/chat/completions", {**HELLO, "stream": True})
    exchange.room.clear()
    exchange.start(site.api)
    await exchange.wrote.wait()
    assert exchange.writes == 1
    exchange.room.set()
    await exchange.over()
    assert exchange.finished


async def test_a_passed_deadline_is_a_504(site: Site) -> None:
    exchange = await site.post("/v1/chat/completions", HELLO, [(b"x-tiffin-timeout-ms", b"0")])
    assert (exchange.status, json_of(exchange)["error"]["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize("weight", [b"0", b"-1", b"nan", b"inf", b"much"])
async def test_a_weight_that_is_none_is_refused(site: Site, weight: bytes) -> None:
    exchange = await site.post("/v1/chat/completions", HELLO, [(b"x-tiffin-weight", weight)])
    assert (exchange.status, b"x-tiffin-weight" in exchange.sent) == (400, True)


async def test_usage_says_why_it_went_and_metrics_count_it(site: Site) -> None:
    answer = json_of(await site.post("/v1/chat/completions", HELLO))
    assert answer["usage"]["tiffin"]["reason"] == "idle"
    site.measures.look(site.replica)
    told = (await site.get("/metrics.json")).sent.decode()
    assert "tiffin_dispatches_total" in told
    assert '[["m","idle"]' in told


async def test_a_full_queue_says_when_to_come_again(site: Site) -> None:
    site.runtime.held = True
    exchanges = [site.request("/v1/chat/completions", HELLO) for _ in range(5)]
    for exchange in exchanges:
        exchange.start(site.api)
    await site.runtime.until(lambda: len(site.runtime.running) == 1)
    refused = await site.post("/v1/chat/completions", HELLO)
    assert refused.status == 503
    assert refused.answer_headers[b"retry-after"] == b"1"
    for exchange in exchanges:
        await exchange.leave()


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/chat/completions", b"{", 400, "malformed_body"),
        ("/v1/chat/completions", {"model": "m"}, 400, "invalid_value"),
        ("/v1/completions", {"model": "m", "prompt": "x" * 20_000}, 413, "payload_too_large"),
        (
            "/v1/completions",
            {"model": "m", "prompt": "x", "best_of": 2},
            400,
            "unsupported_parameter",
        ),
        ("/v1/embeddings", {}, 404, "endpoint_not_found"),
        ("/v2/health/live", {}, 405, "method_not_allowed"),
    ],
    ids=["not JSON", "no messages", "too large", "best_of", "no such endpoint", "wrong method"],
)
async def test_bad_requests(site: Site, path: str, body: Any, status: int, code: str) -> None:
    exchange = await site.post(path, body)
    assert (exchange.status, json_of(exchange)["error"]["code"]) == (status, code)


async def test_health_and_counters(site: Site) -> None:
    await site.post("/v1/chat/completions", HELLO)
    assert json_of(await site.get("/v2/health/live")) == {"live": True}
    site.measures.look(site.replica)
    families = {f["name"]: f for f in json_of(await site.get("/metrics.json"))["families"]}
    numbers = {
        name: family["series"][0][1] for name, family in families.items() if family["series"]
    }
    assert numbers["vllm:prompt_tokens_total"] == [3]
    assert numbers["vllm:generation_tokens_total"] == [2]
    assert numbers["vllm:num_requests_running"] == [0]
    assert numbers["tiffin_engine_slots"] == [1]
    assert sum(numbers["vllm:time_to_first_token_seconds"][1:]) == 1
    assert families["vllm:request_success_total"]["series"] == [[["m", "stop"], [1]]]


async def test_a_draining_replica_is_live_and_not_ready(site: Site) -> None:
    await site.replica.drain(0)
    assert (await site.get("/v2/health/live")).status == 200
    assert (await site.get("/v2/health/ready")).status == 503
    exchange = await site.post("/v1/chat/completions", HELLO)
    assert (exchange.status, json_of(exchange)["error"]["code"]) == (503, "draining")
