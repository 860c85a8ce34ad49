"""A request with an Idempotency-Key through the whole walk: done once, answered again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.gateway.test_walk import (
    GOOD,
    KEY,
    OPERATIONS,
    ROLE,
    WHOLE,
    WORD,
    Script,
    ScriptedBackend,
    Shop,
    stream,
    whole,
)
from tiffin.adapters.stores.key_log import FolderKeyLog
from tiffin.api.grpc_exchange import CallExchange
from tiffin.errors import NotFound, RunFailed, TiffinError, UpstreamFailed
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.idempotency.finish import Finishing
from tiffin.gateway.idempotency.keys import Bounds
from tiffin.gateway.idempotency.register import Register
from tiffin.gateway.idempotency.stage import Once, fingerprint
from tiffin.ports.vault import Label
from tiffin.telemetry.events import Outcome
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.caching import Caching
from tiffin.types.snapshot import GuardPolicy
from tiffin.types.usage import Usage

BOUNDS = Bounds(
    keep_ns=86_400_000_000_000,
    keys=100,
    bytes=1_000_000,
    tenant_keys=10,
    tenant_bytes=500_000,
    answer_bytes=10_000,
)
USED = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'


class OpenVault:
    """Seals nothing, but knows labels; `shut` destroys the keys."""

    shut = False

    def ready(self, tenant: str) -> bool:
        return True

    def prepare(self, tenant: str) -> None:
        pass

    def seal(self, label: Label, content: bytes) -> bytes:
        return msgspec.msgpack.encode([list(label), content])

    def open(self, label: Label, sealed: bytes) -> bytes:
        about, content = msgspec.msgpack.decode(sealed, type=tuple[Label, bytes])
        if self.shut or about != label:
            raise NotFound("destroyed")
        return content


class Counter:
    """A shop whose requests may have keys; it can open again on the same folder."""

    def __init__(self, folder: Path, *scripts: Script, targets: int = 1, **plan: Any) -> None:
        self.backend = ScriptedBackend(*scripts)
        self.shop = Shop(*[self.backend] * targets, **plan)
        self.clock = FakeClock()
        self.vault = OpenVault()
        self.finishing = Finishing(self.shop.walk)
        self._folder = folder
        self._lives = 0
        self.log: FolderKeyLog
        self.open()

    def open(self, bounds: Bounds = BOUNDS) -> None:
        """A gateway's new life; the one before ends as if it was killed."""
        if self._lives:
            self.log.shut()
        self._lives += 1
        self.log = FolderKeyLog(
            self._folder, f"ep_{self._lives}", max_bytes=1 << 24, segment_bytes=1 << 18
        )
        self.register = Register(self.log, self.vault, self.clock, bounds)
        self.register._loaded = True
        self.shop.walk._stages.once = Once(self.register)

    def request(
        self, key: str | None = "k", *, headers: Any = (), token: str = KEY, **body: Any
    ) -> FakeExchange:
        keyed = [(b"idempotency-key", key.encode())] if key is not None else []
        return self.shop.request(key=token, headers=[*keyed, *headers], **body)

    async def ask(self, key: str | None = "k", **more: Any) -> FakeExchange:
        return await answered(self.shop.handler, self.request(key, **more))

    @property
    def ran(self) -> int:
        return len(self.backend.calls)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Counter] = []

    def make(*scripts: Script, **plan: Any) -> Counter:
        made.append(Counter(tmp_path / f"keys-{len(made)}", *scripts, **plan))
        return made[-1]

    yield make
    for counter in made:
        counter.log.shut()


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_the_same_request_again_is_the_same_answer_and_costs_nothing(
    make: Any, streaming: bool
) -> None:
    counter = make(stream(*GOOD) if streaming else whole())
    first = await counter.ask(stream=streaming)
    again = await counter.ask(stream=streaming)
    assert (first.status, first.sent) == (200, again.sent)
    assert first.answer_headers[b"content-type"] == again.answer_headers[b"content-type"]
    assert b"idempotency-replayed" not in first.answer_headers
    assert again.answer_headers[b"idempotency-replayed"] == b"true"
    opened = [event.id.encode() for event in counter.shop.ledger.opened]
    assert again.answer_headers[b"x-tiffin-original-request"] == opened[0]
    assert again.answer_headers[b"x-request-id"] == opened[1]
    assert counter.ran == 1
    closed = counter.shop.ledger.last
    assert (closed.outcome, closed.cache, closed.usage) == (Outcome.OK, "replayed", Usage())
    assert closed.attempts == []
    counter.shop.settled()


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_who_answered_is_told_again(make: Any, streaming: bool) -> None:
    counter = make(
        Script(fails=UpstreamFailed("no")), stream(*GOOD) if streaming else whole(), targets=2
    )
    for _ in range(2):
        got = await counter.ask(stream=streaming)
        assert (got.status, got.answer_headers.get(b"x-tiffin-fallback")) == (200, b"t1")
    assert got.answer_headers[b"idempotency-replayed"] == b"true"


async def test_it_is_answered_again_after_the_gateway_died_and_until_a_day_later(make: Any) -> None:
    counter = make(whole())
    await counter.ask()
    for _ in range(3):
        counter.open()
        assert (await counter.ask()).answer_headers[b"idempotency-replayed"] == b"true"
    counter.clock.advance(86_400)
    assert b"idempotency-replayed" not in (await counter.ask()).answer_headers
    assert counter.ran == 2


@pytest.mark.parametrize(
    "other", [{"max_tokens": 3}, {"stream": True}], ids=["another body", "as a stream"]
)
async def test_another_request_with_the_key_is_a_422_that_says_so(
    make: Any, other: dict[str, Any]
) -> None:
    counter = make(whole())
    await counter.ask()
    got = await counter.ask(**other)
    assert got.status == 422
    assert json_of(got)["error"]["code"] == "idempotency_key_reused"
    assert "another request" in json_of(got)["error"]["message"]
    assert counter.shop.ledger.last.outcome is Outcome.REFUSED
    assert counter.ran == 1


async def test_of_two_at_once_one_runs_and_the_other_is_told_to_come_again(make: Any) -> None:
    counter = make(stream(ROLE, WORD, hangs=True))
    running = counter.request(stream=True)
    running.start(counter.shop.handler)
    await counter.backend.hanging.wait()
    got = await counter.ask(stream=True)
    assert got.status == 409
    assert int(got.answer_headers[b"retry-after"]) >= 1
    assert json_of(got)["error"]["code"] == "idempotency_key_in_use"
    assert counter.shop.ledger.last.outcome is Outcome.REFUSED
    await running.leave()
    assert counter.ran == 1
    counter.shop.settled()


async def test_many_at_once_run_once(make: Any) -> None:
    counter = make(whole())
    got = await asyncio.gather(*(counter.ask() for _ in range(20)))
    assert sorted(one.status for one in got) == [200] + [409] * 19
    assert counter.ran == 1
    counter.shop.settled()


async def test_a_key_is_its_tenants_alone(make: Any) -> None:
    counter = make(whole())
    await counter.ask()
    got = await counter.ask(token="sk-other-000000000000", max_tokens=3)
    assert got.status == 200
    assert b"idempotency-replayed" not in got.answer_headers
    assert counter.ran == 2


@pytest.mark.parametrize("key", ["", "k" * 256, "k\n", "k\x7f", "ké"], ids=ascii)
async def test_what_cant_be_a_key_is_refused_by_name(make: Any, key: str) -> None:
    counter = make(whole())
    got = await counter.ask(key)
    assert got.status == 400
    assert json_of(got)["error"]["param"] == "Idempotency-Key"
    assert "255" in json_of(got)["error"]["message"]
    assert counter.ran == 0


async def test_the_longest_key_and_one_with_spaces_are_keys(make: Any) -> None:
    counter = make(whole())
    for key in ("k" * 255, '"a b"'):
        assert (await counter.ask(key)).status == 200
        assert (await counter.ask(key)).answer_headers[b"idempotency-replayed"] == b"true"


async def test_without_a_key_nothing_is_remembered(make: Any) -> None:
    counter = make(whole())
    for _ in range(2):
        await counter.ask(None)
    assert counter.ran == 2
    assert counter.register.keys.all.keys == 0


async def test_a_wrong_request_leaves_its_key_free(make: Any) -> None:
    counter = make(whole())
    assert (await counter.ask(max_tokens="three")).status == 400
    assert (await counter.ask(model="unknown")).status == 404
    assert (await counter.ask()).status == 200


@pytest.mark.parametrize(
    "first",
    [
        whole(b'{"error":{"message":"no"}}', 400),
        whole(b"{}", 500),
        Script(fails=RunFailed("the engine failed")),
        stream(ROLE, UpstreamFailed("cut")),
    ],
    ids=["refused there", "failed there", "run failed", "cut before content"],
)
async def test_what_failed_and_costs_nothing_leaves_its_key_free(make: Any, first: Script) -> None:
    counter = make(first, stream(*GOOD), attempts=1)
    assert (await counter.ask(stream=True)).status >= 400
    got = await counter.ask(stream=True)
    assert got.status == 200
    assert b"idempotency-replayed" not in got.answer_headers


async def test_a_stream_that_was_paid_for_and_cut_is_given_again_as_it_was(make: Any) -> None:
    counter = make(stream(ROLE, WORD, USED, UpstreamFailed("cut")), stream(*GOOD))
    first = await counter.ask(stream=True, stream_options={"include_usage": True})
    assert counter.shop.ledger.last.outcome is Outcome.PARTIAL
    again = await counter.ask(stream=True, stream_options={"include_usage": True})
    assert first.sent == again.sent
    assert b'"code":"upstream_failed"' in again.sent
    assert counter.ran == 1


async def test_an_answer_that_a_guard_kept_back_was_paid_for_and_its_refusal_is_kept(
    make: Any,
) -> None:
    from tests.unit.gateway.test_kept_answers import Blocking

    counter = make(whole(), guard="g")
    guards = Guards({"words": Blocking})
    guards.adopt(
        msgspec.structs.replace(counter.shop.snapshot, guards={"g": GuardPolicy(kind="words")})
    )
    counter.shop.walk._stages.guards = guards
    first, again = await counter.ask(), await counter.ask()
    assert (first.status, first.sent) == (400, again.sent)
    assert again.status == 400
    assert again.answer_headers[b"idempotency-replayed"] == b"true"
    assert counter.ran == 1


LARGE = WHOLE.replace(b"hi", b"h" * 20_000)


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_an_answer_that_is_too_large_is_given_once_and_its_request_not_run_again(
    make: Any, streaming: bool
) -> None:
    counter = make(stream(ROLE, *[WORD] * 300, *GOOD[3:]) if streaming else whole(LARGE))
    assert len((await counter.ask(stream=streaming)).sent) > BOUNDS.answer_bytes
    got = await counter.ask(stream=streaming)
    assert got.status == 409
    assert json_of(got)["error"]["code"] == "indeterminate"
    assert "too large" in json_of(got)["error"]["message"]
    assert counter.ran == 1


async def test_an_answer_whose_key_was_destroyed_isnt_run_again_either(make: Any) -> None:
    counter = make(whole())
    await counter.ask()
    counter.vault.shut = True
    got = await counter.ask()
    assert (got.status, json_of(got)["error"]["code"]) == (409, "indeterminate")
    assert counter.ran == 1


async def test_at_the_bound_new_keys_are_refused_and_old_ones_answered(make: Any) -> None:
    counter = make(whole())
    for number in range(BOUNDS.tenant_keys):
        assert (await counter.ask(f"k{number}")).status == 200
    got = await counter.ask("one more")
    assert got.status == 429
    assert "idempotency keys" in json_of(got)["error"]["message"]
    assert int(got.answer_headers[b"retry-after"]) > 3600
    assert (await counter.ask("k0")).answer_headers[b"idempotency-replayed"] == b"true"
    assert (await counter.ask(None)).status == 200
    assert (await counter.ask("k", token="sk-other-000000000000")).status == 200


async def test_a_client_that_leaves_frees_its_key(make: Any) -> None:
    counter = make(stream(ROLE, WORD, hangs=True), stream(*GOOD))
    leaving = counter.request(stream=True)
    leaving.start(counter.shop.handler)
    await counter.backend.hanging.wait()
    await leaving.leave()
    assert counter.backend.running == 0
    assert (await counter.ask(stream=True)).status == 200
    assert counter.ran == 2
    counter.shop.settled()


async def test_a_gateway_that_dies_while_somebody_is_paid_leaves_it_undecided(make: Any) -> None:
    counter = make(stream(ROLE, WORD, hangs=True), stream(*GOOD))
    running = counter.request(stream=True)
    running.start(counter.shop.handler)
    await counter.backend.hanging.wait()
    counter.open()
    got = await counter.ask(stream=True)
    assert (got.status, json_of(got)["error"]["code"]) == (409, "indeterminate")
    assert b"retry-after" not in got.answer_headers
    counter.open()
    assert (await counter.ask(stream=True)).status == 409
    assert counter.ran == 1
    await running.leave()


async def test_a_server_that_stops_while_somebody_is_paid_leaves_it_undecided(make: Any) -> None:
    counter = make(stream(ROLE, WORD, hangs=True))
    running = counter.request(stream=True)
    running.start(counter.shop.handler)
    await counter.backend.hanging.wait()
    assert running._task is not None
    running._task.cancel()
    await asyncio.wait([running._task])
    assert json_of(await counter.ask(stream=True))["error"]["code"] == "indeterminate"


async def test_while_the_log_cant_be_written_keys_are_refused_and_the_rest_goes_on(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = make(whole())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(counter.log, "_allocate", full)
    got = await counter.ask()
    assert got.status == 503
    assert "No space left" in json_of(got)["error"]["message"]
    assert (await counter.ask(None)).status == 200
    monkeypatch.undo()
    assert (await counter.ask()).status == 200


class TestFinishing:
    """`x-tiffin-finish: true`: the client leaves, the work goes on."""

    FINISH = ((b"x-tiffin-finish", b"true"),)

    def handler(self, counter: Counter) -> Any:
        finishing = counter.finishing = Finishing(counter.shop.walk)
        operation = OPERATIONS.find(b"/v1/chat/completions")
        assert operation is not None
        return lambda exchange: finishing(exchange, operation)

    async def test_the_answer_is_made_and_kept_when_the_client_has_left(self, make: Any) -> None:
        counter = make(stream(ROLE, WORD, hangs=True))
        handler = self.handler(counter)
        leaving = counter.request(headers=self.FINISH, stream=True)
        leaving.start(handler)
        await counter.backend.hanging.wait()
        await leaving.leave()
        assert counter.backend.running == 1
        assert len(counter.finishing.running()) == 1
        assert (await counter.ask(stream=True)).status == 409
        sent = bytes(leaving.sent)
        await counter.finishing.end(cut=True)  # the server stops
        assert leaving.sent == sent
        counter.shop.settled()

    async def test_what_it_came_to_is_there_for_the_next_try(self, make: Any) -> None:
        counter = make(stream(*GOOD))
        handler = self.handler(counter)
        leaving = counter.request(headers=self.FINISH, stream=True)
        leaving.room.clear()  # the client doesn't read, then leaves
        leaving.start(handler)
        await leaving.wrote.wait()
        counter.backend.scripts = [Script(fails=RunFailed("it ran again"))]
        leaving.room.set()
        await leaving.leave()
        await counter.finishing.end(cut=False)
        again = await counter.ask(stream=True)
        assert again.sent == b"".join([ROLE, WORD, WORD, *GOOD[3:4], GOOD[5]])
        assert again.answer_headers[b"idempotency-replayed"] == b"true"
        assert counter.shop.ledger.closed[0].outcome is Outcome.OK
        counter.shop.settled()

    async def test_a_client_that_stays_notices_nothing(self, make: Any) -> None:
        counter = make(whole())
        got = await answered(self.handler(counter), counter.request(headers=self.FINISH))
        assert got.status == 200
        assert counter.finishing.running() == []

    async def test_who_leaves_before_the_work_began_ends_it(self, make: Any) -> None:
        counter = make(whole())
        exchange = counter.request(headers=self.FINISH)
        waiting = asyncio.Event()

        async def never(limit: int) -> bytes:
            waiting.set()
            await asyncio.Event().wait()
            return b""

        exchange.body = never
        exchange.start(self.handler(counter))
        await waiting.wait()
        await exchange.leave()
        assert counter.finishing.running() == []
        assert counter.shop.ledger.last.outcome is Outcome.CANCELLED
        counter.shop.settled()

    async def test_it_needs_a_key(self, make: Any) -> None:
        counter = make(whole())
        got = await counter.ask(None, headers=self.FINISH)
        assert got.status == 400
        assert "Idempotency-Key" in json_of(got)["error"]["message"]

    async def test_no_more_are_begun_than_may_be_finished(self, make: Any) -> None:
        counter = make(stream(ROLE, WORD, hangs=True))
        handler = self.handler(counter)
        counter.finishing._most = 1
        first = counter.request(headers=self.FINISH, stream=True)
        first.start(handler)
        await counter.backend.hanging.wait()
        with pytest.raises(TiffinError, match="which is the most"):
            await answered(handler, counter.request("other", headers=self.FINISH))
        assert first._task is not None
        first._task.cancel()
        await asyncio.wait([first._task])
        counter.shop.settled()


async def test_a_call_over_grpc_may_have_a_key_too(make: Any) -> None:
    counter = make(whole())
    asked = counter.request()
    headers = dict(asked.headers)
    calls = [CallExchange(b"POST", asked.path, headers, await asked.body(10_000)) for _ in range(2)]
    for call in calls:
        await counter.shop.handler(call)
    assert calls[0].sent == calls[1].sent
    assert calls[1].answer[b"idempotency-replayed"] == b"true"
    assert counter.ran == 1


async def test_an_answer_from_the_cache_is_kept_under_the_key_like_any_other(make: Any) -> None:
    counter = make(whole(), cache=Caching(ttl_s=60.0))
    await counter.ask(None)
    hit = await counter.ask()
    assert hit.answer_headers[b"x-tiffin-cache"] == b"hit"
    again = await counter.ask()
    assert again.answer_headers[b"idempotency-replayed"] == b"true"
    assert b"x-tiffin-cache" not in again.answer_headers
    assert (hit.sent, counter.ran) == (again.sent, 1)


async def test_a_form_is_the_same_whatever_boundary_its_client_chose(make: Any) -> None:
    def form(boundary: bytes, word: bytes = b"one") -> FakeExchange:
        kind = b'multipart/form-data; boundary="%b"' % boundary
        body = b"--%b\r\n\r\n%b\r\n--%b--\r\n" % (boundary, word, boundary)
        return FakeExchange(b"POST", b"/x", headers=[(b"content-type", kind)], body=body)

    digests = [
        fingerprint(b"k", one, await one.body(1000))
        for one in (form(b"aaa"), form(b"bbbb"), form(b"aaa", b"two"))
    ]
    assert digests[0] == digests[1] != digests[2]
