"""The walk as a whole, with scripted backends: one account each, work stopped, commit kept."""

import asyncio
import gc
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import TracebackType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.app.clock import SystemClock
from tiffin.errors import (
    JournalUnavailable,
    RunFailed,
    TiffinError,
    UpstreamFailed,
    UpstreamUnavailable,
)
from tiffin.gateway.account import Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.authenticate import Authentication
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.keyring import Keyring
from tiffin.gateway.operations import all_operations
from tiffin.gateway.pool import Pool
from tiffin.gateway.respond import Delivery
from tiffin.gateway.run import Run
from tiffin.gateway.walk import Stages, Walk
from tiffin.ports.backend import Call, Reply
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Finding, Piece
from tiffin.telemetry.events import Closed, Opened, Outcome
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange, answered, events_of, json_of
from tiffin.types.caching import Caching
from tiffin.types.snapshot import GuardPolicy, Limits, Plan, Principal, Snapshot, Target

OPERATIONS = all_operations()
KEY = "sk-test-key-000000000000"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
OTHER = WORD.replace(b"word", b"other")
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
WHOLE = (
    b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
)
OVER = b'{"error":{"message":"full","type":"server_error","param":null,"code":"overloaded"}}'


@dataclass
class Script:
    """What a backend does: fail at once, or answer `pieces` (an error in between is raised)."""

    pieces: list[bytes | TiffinError] = field(default_factory=list)
    status: int = 200
    streaming: bool = True
    fails: TiffinError | None = None
    hangs: bool = False


class ScriptedBackend:
    """Plays its scripts, one a call, the last again and again; counts what runs."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.calls: list[Call] = []
        self.running = 0
        self.hanging = asyncio.Event()

    def start(self, call: Call) -> "Playing":
        script = self.scripts[min(len(self.calls), len(self.scripts) - 1)]
        self.calls.append(call)
        return Playing(self, script)

    def close(self) -> None:
        pass


class Playing:
    """One call being played."""

    content_type = b"application/json"
    inference_header = b""
    usage = b""
    retry_after: float | None = None

    def __init__(self, backend: ScriptedBackend, script: Script) -> None:
        self.backend = backend
        self.script = script
        self.pieces = list(script.pieces)
        self.status = script.status
        self.streaming = script.streaming

    async def __aenter__(self) -> Reply:
        await asyncio.sleep(0)
        if self.script.fails is not None:
            raise self.script.fails
        self.backend.running += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.backend.running -= 1

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if not self.pieces:
            if self.script.hangs:
                self.backend.hanging.set()
                await asyncio.Event().wait()
            return b""
        piece = self.pieces.pop(0)
        if isinstance(piece, TiffinError):
            raise piece
        return piece

    async def read_all(self, limit: int) -> bytes:
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def rest(self, seconds: float) -> None:
        """Everything is here already."""


class Ledger:
    """Collects accounts; can refuse to open."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.closed: list[Closed] = []
        self.broken = False

    def open(self, event: Opened) -> None:
        if self.broken:
            raise JournalUnavailable("disk full", retry_after=1.0)
        self.opened.append(event)

    def close(self, event: Closed) -> None:
        self.closed.append(event)

    @property
    def last(self) -> Closed:
        return self.closed[-1]


class Shop:
    """A walk over scripted backends, one a target; `plan` names them in order."""

    def __init__(self, *backends: ScriptedBackend, **plan: Any) -> None:
        self.backends = backends
        self.ledger = Ledger()
        self.admission = Admission(SystemClock(), 100)
        accounts = Accounts(self.ledger, Meter("t", "e"), SystemClock())
        targets = tuple(
            Target(model=f"t{n}", revision=f"r{n}", kind="remote", links=True)
            for n in range(len(backends))
        )
        self.names = {target: backends[n] for n, target in enumerate(targets)}
        self.pool = Pool(lambda target, _: self.names[target])
        self.snapshot = Snapshot(
            number=3,
            config_hash="",
            published_ns=0,
            keys={
                sha256(KEY.encode()).hexdigest(): Principal(tenant="acme", key="main"),
                sha256(b"sk-other-000000000000").hexdigest(): Principal(tenant="b", key="x"),
            },
            tenant_limits={"b": Limits(requests_per_minute=1, burst=1)},
            plans={"m": Plan(name="m", identity="m1", targets=targets, **plan)},
        )
        guards = Guards()
        guards.adopt(self.snapshot)
        self.pool.adopt(self.snapshot)
        self.walk = Walk(
            Stages(
                snapshot=lambda: self.snapshot,
                authenticate=Authentication(SystemClock(), Keyring()),
                admission=self.admission,
                accounts=accounts,
                guards=guards,
                cache=ReplayCache(accounts),
                pool=self.pool,
                max_body_bytes=100_000,
            )
        )

    async def handler(self, exchange: Exchange) -> None:
        operation = OPERATIONS.find(exchange.path)
        assert operation is not None
        await self.walk(exchange, operation)

    def request(self, *, key: str = KEY, headers: Any = (), **body: Any) -> FakeExchange:
        whole = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **body}
        return FakeExchange(
            b"POST",
            b"/v1/chat/completions",
            headers=[(b"authorization", b"Bearer " + key.encode()), *headers],
            body=msgspec.json.encode(whole),
        )

    async def ask(self, **body: Any) -> FakeExchange:
        return await answered(self.handler, self.request(**body))

    def settled(self) -> None:
        """L1: every account that was opened is closed once, and nothing is held."""
        assert sorted(e.id for e in self.ledger.opened) == sorted(e.id for e in self.ledger.closed)
        assert self.admission.in_flight == 0
        assert all(backend.running == 0 for backend in self.backends)
        assert all(s.running == 0 for s in self.pool._stations.values())


def whole(body: bytes = WHOLE, status: int = 200) -> Script:
    return Script([body], status=status, streaming=False)


def stream(*pieces: bytes | TiffinError, hangs: bool = False) -> Script:
    return Script(list(pieces), hangs=hangs)


GOOD = (ROLE, WORD, WORD, STOP, USAGE, DONE)


async def test_a_whole_answer_is_relayed_and_accounted() -> None:
    shop = Shop(ScriptedBackend(whole()))
    got = await shop.ask()
    assert (got.status, bytes(got.sent)) == (200, WHOLE)
    assert got.answer_headers[b"x-request-id"].decode() == shop.ledger.opened[0].id
    closed = shop.ledger.last
    assert (closed.outcome, closed.model, closed.revision) == (Outcome.OK, "m", "r0")
    assert (closed.usage.prompt_tokens, closed.usage.completion_tokens) == (7, 2)
    assert closed.snapshot == 3
    assert [a.error for a in closed.attempts] == [""]
    shop.settled()


async def test_a_stream_is_relayed_without_the_usage_event_nobody_asked_for() -> None:
    shop = Shop(ScriptedBackend(stream(*GOOD)))
    got = await shop.ask(stream=True)
    assert got.sent == b"".join([ROLE, WORD, WORD, STOP, DONE])
    assert shop.ledger.last.usage.completion_tokens == 2
    assert shop.ledger.last.ttft_ns > 0
    got = await shop.ask(stream=True, stream_options={"include_usage": True})
    assert got.sent == b"".join(GOOD)
    shop.settled()


async def test_before_the_commit_point_another_target_takes_over_unseen() -> None:
    broken = ScriptedBackend(stream(ROLE, UpstreamFailed("cut")))
    shop = Shop(broken, ScriptedBackend(stream(*GOOD)))
    got = await shop.ask(stream=True)
    assert got.sent.count(b'"role"') == 1
    assert got.sent.endswith(DONE)
    assert [a.error for a in shop.ledger.last.attempts] == ["upstream_failed", ""]
    assert shop.ledger.last.outcome is Outcome.OK
    shop.settled()


async def test_after_the_commit_point_a_cut_stream_ends_in_an_error_and_no_other_target() -> None:
    second = ScriptedBackend(stream(*GOOD))
    shop = Shop(ScriptedBackend(stream(ROLE, WORD, UpstreamFailed("cut"))), second)
    got = await shop.ask(stream=True)
    assert b"[DONE]" not in got.sent
    assert events_of(got)[-1]["error"]["code"] == "upstream_failed"
    assert second.calls == []
    closed = shop.ledger.last
    assert (closed.outcome, closed.error) == (Outcome.PARTIAL, "upstream_failed")
    assert closed.usage.completion_tokens == 1
    assert not closed.usage.measured
    shop.settled()


async def test_a_stream_that_only_stops_is_an_error_too() -> None:
    shop = Shop(ScriptedBackend(stream(ROLE, WORD)))
    got = await shop.ask(stream=True)
    assert events_of(got)[-1]["error"]["code"] == "upstream_failed"
    assert shop.ledger.last.outcome is Outcome.PARTIAL


async def test_all_targets_failing_gives_one_error_that_lists_them() -> None:
    down = [ScriptedBackend(Script(fails=UpstreamUnavailable(f"no {n}"))) for n in range(3)]
    shop = Shop(*down, attempts=2)
    got = await shop.ask()
    assert got.status == 503
    message = json_of(got)["error"]["message"]
    assert "t0: no 0" in message
    assert "t1: no 1" in message
    assert [len(b.calls) for b in down] == [1, 1, 0]
    assert shop.ledger.last.outcome is Outcome.FAILED
    shop.settled()


async def test_a_full_target_is_passed_over_and_a_clients_fault_is_not() -> None:
    full = ScriptedBackend(whole(OVER, 503))
    shop = Shop(full, ScriptedBackend(whole()))
    assert (await shop.ask()).status == 200
    bad = ScriptedBackend(whole(b'{"error":{"message":"no","param":"n","code":"x"}}', 400))
    second = ScriptedBackend(whole())
    shop = Shop(bad, second)
    got = await shop.ask()
    assert (got.status, json_of(got)["error"]["param"]) == (400, "n")
    assert second.calls == []
    assert shop.ledger.last.outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    "first",
    [
        Script([b"{}"], status=401, streaming=False),
        Script([b"{}"], status=404, streaming=False),
        Script([b"{}"], status=500, streaming=False),
        Script([b"{}"], status=302, streaming=False),
        Script([ROLE, b'data: {"error":{"message":"oh"}}\n\n']),
        Script(fails=RunFailed("the engine failed")),
    ],
    ids=["key refused", "model gone", "failed", "moved", "error first", "run failed"],
)
async def test_a_target_that_fails_by_its_own_fault_is_passed_over(first: Script) -> None:
    shop = Shop(ScriptedBackend(first), ScriptedBackend(stream(ROLE, WORD, STOP, USAGE, DONE)))
    exchange = await shop.ask(stream=True)
    assert exchange.status == 200
    assert [attempt.target for attempt in shop.ledger.last.attempts] == ["t0", "t1"]
    assert shop.ledger.last.outcome is Outcome.OK
    shop.settled()


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("pieces", [0, 1, 2], ids=["in prefill", "after the role", "mid-stream"])
async def test_a_client_that_leaves_stops_the_work(pieces: int, streaming: bool) -> None:
    script = stream(*[ROLE, WORD][:pieces], hangs=True)
    script.streaming = streaming
    backend = ScriptedBackend(script)
    shop = Shop(backend)
    request = shop.request(stream=streaming)
    request.start(shop.handler)
    await asyncio.wait_for(backend.hanging.wait(), 5)
    assert backend.running == 1
    await request.leave()
    assert shop.ledger.last.outcome is Outcome.CANCELLED
    shop.settled()


async def test_a_server_that_stops_tells_the_client_of_a_running_stream() -> None:
    backend = ScriptedBackend(stream(ROLE, WORD, hangs=True))
    shop = Shop(backend)
    request = shop.request(stream=True)
    request.start(shop.handler)
    await asyncio.wait_for(backend.hanging.wait(), 5)
    assert request._task is not None
    request._task.cancel()
    await request.over()
    assert events_of(request)[-1]["error"]["code"] == "draining"
    assert b"[DONE]" not in request.sent
    assert shop.ledger.last.outcome is Outcome.PARTIAL
    shop.settled()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b'{"model":"nope","messages":[{"role":"user","content":"x"}]}', 404, "model_not_found"),
        (b'{"model":"m","messages":[]}', 400, "invalid_value"),
        (b" " * 200_000, 413, "payload_too_large"),
    ],
    ids=["not JSON", "unknown model", "no messages", "too large"],
)
async def test_bad_requests_are_refused_and_have_an_account(
    body: bytes, status: int, code: str
) -> None:
    shop = Shop(ScriptedBackend(whole()))
    request = shop.request()
    request._body = body
    got = await answered(shop.handler, request)
    assert (got.status, json_of(got)["error"]["code"]) == (status, code)
    assert shop.ledger.last.outcome is Outcome.REFUSED
    assert shop.backends[0].calls == []
    shop.settled()


async def test_without_a_writable_journal_no_work_is_taken() -> None:
    shop = Shop(ScriptedBackend(whole()))
    shop.ledger.broken = True
    with pytest.raises(JournalUnavailable):
        await shop.ask()
    assert shop.backends[0].calls == []
    shop.settled()


async def test_a_deadline_from_the_client_reaches_the_backend() -> None:
    shop = Shop(ScriptedBackend(whole()))
    before = asyncio.get_running_loop().time()
    await shop.ask(headers=[(b"x-request-timeout-ms", b"1500")])
    assert shop.backends[0].calls[0].deadline - before == pytest.approx(1.5, abs=0.5)
    got = await shop.ask(headers=[(b"x-request-timeout-ms", b"soon")])
    assert got.status == 400


def local_shop(**settings: Any) -> Shop:
    """One whose only target is a replica of ours."""
    shop = Shop(ScriptedBackend(whole()), **settings)
    [target] = shop.snapshot.plans["m"].targets
    local = msgspec.structs.replace(target, kind="llamacpp", sockets=("/s",))
    shop.pool = Pool(lambda target, _: shop.backends[0])
    plan = msgspec.structs.replace(shop.snapshot.plans["m"], targets=(local,))
    shop.snapshot = msgspec.structs.replace(shop.snapshot, plans={"m": plan})
    shop.pool.adopt(shop.snapshot)
    shop.walk._stages.pool = shop.pool
    [station] = shop.pool._stations.values()
    station.places[0].ready = True
    return shop


async def test_a_replica_is_told_the_objectives_of_who_names_no_timeout() -> None:
    shop = local_shop(p95_ms=800.0, ttft_p95_ms=300.0)
    before = asyncio.get_running_loop().time()
    await shop.ask()
    await shop.ask(headers=[(b"x-request-timeout-ms", b"1500")])
    free, bound = shop.backends[0].calls
    assert free.deadline - before == pytest.approx(3.2, abs=0.5)
    assert b"x-tiffin-aim-ms: " in free.headers
    assert b"x-tiffin-first-ms: " in free.headers
    assert b"-aim-ms" not in bound.headers


@pytest.mark.parametrize("said", [b"0", b"-1", b"86400001", b"9" * 5000, b"\xb2", b"1.5", b""])
async def test_a_deadline_that_is_none_is_refused_by_name(said: bytes) -> None:
    shop = Shop(ScriptedBackend(whole()))
    request = shop.request(headers=[(b"x-request-timeout-ms", said)])
    await answered(shop.handler, request)
    assert request.status == 400
    assert "x-request-timeout-ms" in json_of(request)["error"]["message"]
    shop.settled()


async def test_nothing_personal_of_a_clients_own_id_is_kept() -> None:
    shop = Shop(ScriptedBackend(whole()))
    for said in (b"asha@example.com", b"9876543210", b"2341 2341 2346", "\u0967".encode()):
        await answered(shop.handler, shop.request(headers=[(b"x-request-id", said)]))
    kept = [event.client_id for event in shop.ledger.opened]
    assert kept == ["email", "phone", "aadhaar", ""]


@pytest.mark.parametrize(
    ("script", "body"),
    [
        (whole(), {}),
        (whole(), {"model": "unknown"}),
        (whole(), {"temperature": "hot"}),
        (whole(OVER, status=503), {}),
        (stream(ROLE, WORD, STOP, USAGE, DONE), {"stream": True}),
        (stream(ROLE, WORD), {"stream": True}),
        (stream(ROLE, WORD, b'data: {"error":{"message":"oh"}}\n\n'), {"stream": True}),
        (stream(ROLE, WORD, hangs=True), {"stream": True}),
    ],
    ids=["ok", "no model", "wrong", "refused", "streamed", "cut", "error event", "left"],
)
async def test_a_request_that_is_over_leaves_nothing_to_the_collector(
    script: Script, body: dict[str, Any]
) -> None:
    def alive() -> int:
        return sum(isinstance(one, Delivery | Run) for one in gc.get_objects())

    shop = Shop(ScriptedBackend(script), ScriptedBackend(script))
    gc.collect()
    before = alive()
    gc.disable()
    try:
        exchange = shop.request(**body)
        exchange.start(shop.handler)
        if script.hangs:
            await shop.backends[0].hanging.wait()
            await exchange.leave()
        await exchange.over()
        del exchange
        assert alive() == before
    finally:
        gc.enable()


async def test_the_cache_replays_to_the_same_tenant_only() -> None:
    backend = ScriptedBackend(whole())
    shop = Shop(backend, cache=Caching(ttl_s=60.0))
    first, second = await shop.ask(), await shop.ask()
    assert (first.answer_headers[b"x-tiffin-cache"], second.answer_headers[b"x-tiffin-cache"]) == (
        b"miss",
        b"hit",
    )
    assert second.sent == first.sent
    assert shop.ledger.last.cache == "hit"
    assert shop.ledger.last.usage.completion_tokens == 0
    await shop.ask(key="sk-other-000000000000")
    assert len(backend.calls) == 2
    await shop.ask(temperature=0.5)
    assert len(backend.calls) == 3
    shop.settled()


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("breaks", [True, False], ids=["broken guard", "finding"])
async def test_a_guard_of_answers_sees_all_before_anything_goes_out(
    streaming: bool, breaks: bool
) -> None:
    class NoWords:
        checks_output = True

        def check_input(self, pieces: Iterable[Piece]) -> None:
            return None

        def check_output(self, text: str) -> Finding | None:
            if breaks:
                raise ZeroDivisionError
            return Finding(what="words") if text in ("word word ", "hi") else None

    shop = Shop(ScriptedBackend(stream(*GOOD) if streaming else whole()), guard="g")
    guards = Guards({"words": NoWords})
    guards.adopt(msgspec.structs.replace(shop.snapshot, guards={"g": GuardPolicy(kind="words")}))
    shop.walk._stages.guards = guards
    got = await shop.ask(stream=streaming)
    assert (got.status, json_of(got)["error"]["code"]) == (400, "content_filter")
    assert shop.ledger.last.usage.completion_tokens == 2
    shop.settled()


async def test_a_gap_in_our_own_code_is_a_500_with_an_account() -> None:
    class Broken(ScriptedBackend):
        def start(self, call: Call) -> Any:
            raise ZeroDivisionError

    shop = Shop(Broken())
    got = await shop.ask()
    assert (got.status, json_of(got)["error"]["code"]) == (500, "internal_error")
    assert shop.ledger.last.outcome is Outcome.FAILED
    shop.settled()


PIECES = st.lists(
    st.sampled_from([ROLE, WORD, WORD, STOP, USAGE, DONE, UpstreamFailed("cut"), WORD[:20]]),
    max_size=8,
)
SCRIPTS = st.builds(
    Script,
    pieces=PIECES,
    status=st.sampled_from([200, 200, 200, 429, 500, 400]),
    streaming=st.booleans(),
    fails=st.sampled_from([None, None, None, UpstreamUnavailable("down")]),
    hangs=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(
    first=SCRIPTS,
    second=SCRIPTS,
    leaves=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    streaming=st.booleans(),
)
def test_whatever_happens_every_account_closes_once_and_nothing_is_held(
    first: Script, second: Script, leaves: list[int], streaming: bool
) -> None:
    async def play() -> None:
        others = [OTHER if piece == WORD else piece for piece in second.pieces]
        shop = Shop(ScriptedBackend(first), ScriptedBackend(replace(second, pieces=others)))
        requests = [shop.request(stream=streaming) for _ in leaves]
        for request, steps in zip(requests, leaves, strict=True):
            request.start(shop.handler)
            for _ in range(steps):
                await asyncio.sleep(0)
        for request in requests:
            await request.leave()
        shop.settled()
        for request in requests:
            answer = request.sent
            if b'"error"' in answer and streaming:
                assert b"[DONE]" not in answer
            assert not (b"word" in answer and b"other" in answer)

    asyncio.run(play())
