"""Tokens of upstreams in virtual time, under the walk: how often they are had, and what refuses."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.faulty_walk import Walking, now
from tests.virtual_time import in_virtual_time
from tiffin.adapters.upstreams.authorised import AuthorisedBackend
from tiffin.adapters.upstreams.bearer import BearerSigner
from tiffin.adapters.upstreams.google import asked
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.ports.backend import Call
from tiffin.testing.faulty import FaultyUpstream, Script
from tiffin.testing.plays import Play, Seen
from tiffin.types.snapshot import KeyAt, Target

LASTS_S = 3600


class Tokens:
    """A token endpoint that gives `t1`, `t2` and so on, or what `play` says."""

    def __init__(self) -> None:
        self.endpoint = FaultyUpstream(self._play)
        self.play: Play | None = None
        self.head_s = 0.1
        self.given = 0

    def _play(self, seen: Seen) -> Play:
        if self.play is not None:
            return self.play
        self.given += 1
        body = b'{"access_token":"t%d","expires_in":%d}' % (self.given, LASTS_S)
        return Play(body=body, head_s=self.head_s)

    def signer(self) -> BearerSigner:
        backend = self.endpoint.backend()
        loop = asyncio.get_running_loop()

        async def ask() -> Any:
            call = Call(b"/token", b"grant", b"", loop.time() + 10)
            return await asked(backend, call, "tokens.test")

        return BearerSigner(ask, backend.close)


class Lent(Walking):
    """A walk to upstreams that take tokens; those in `revoked` are refused with 401."""

    def __init__(self, *others: Script, **more: Any) -> None:
        self.tokens = Tokens()
        self.revoked: set[str] = set()
        super().__init__(self._answer, *others, **more)

    def _answer(self, seen: Seen) -> Play:
        return Play(status=401) if seen.key in self.revoked else Play()

    def _connect(self, target: Target, at: str) -> ClosableBackend:
        inner = self.upstreams[target.model].backend()
        if target.model != "a":
            return inner
        return AuthorisedBackend(inner, self.tokens.signer(), inner.close)

    @property
    def keys(self) -> list[str]:
        return [seen.key for seen in self.a.seen]

    @property
    def asked(self) -> int:
        """How often a token was asked for."""
        return self.tokens.endpoint.hits


def lent(
    work: Callable[[Lent], Awaitable[None]],
    *,
    settled: bool = True,
    others: Sequence[Script] = ([Play()],),
    **more: Any,
) -> None:
    async def run() -> None:
        walk = Lent(*others, **more)
        await work(walk)
        walk.pool.close()
        await asyncio.sleep(0.01)
        if settled:
            walk.settle()

    in_virtual_time(run)


def test_a_hundred_at_once_have_one_token() -> None:
    async def work(walk: Lent) -> None:
        answers = await asyncio.gather(*(walk.ask() for _ in range(60)))
        answers += await asyncio.gather(*(walk.ask() for _ in range(40)))
        assert {answer.status for answer in answers} == {200}
        assert walk.keys == ["t1"] * 100
        assert walk.asked == 1

    lent(work)


def test_one_that_leaves_takes_no_token_from_those_who_wait() -> None:
    async def work(walk: Lent) -> None:
        first, second = walk.request(), walk.request()
        first.start(walk.handler)
        second.start(walk.handler)
        await asyncio.sleep(0.05)
        await first.leave()
        await second.over()
        assert (second.status, walk.keys, walk.asked) == (200, ["t1"], 1)

    lent(work, settled=False)


def test_a_token_is_had_anew_before_it_is_over_and_nobody_waits_for_it() -> None:
    async def work(walk: Lent) -> None:
        await walk.ask()
        await asyncio.sleep(LASTS_S - 200)
        walk.tokens.head_s = 5.0
        began = now()
        assert (await walk.ask()).status == 200
        assert now() - began < 1.0
        await asyncio.sleep(6)
        assert (await walk.ask()).status == 200
        assert (walk.keys, walk.asked) == (["t1", "t1", "t2"], 2)

    lent(work)


def test_one_that_is_over_isnt_sent() -> None:
    async def work(walk: Lent) -> None:
        await walk.ask()
        await asyncio.sleep(LASTS_S)
        assert (await walk.ask()).status == 200
        assert walk.keys == ["t1", "t2"]

    lent(work)


def test_while_none_can_be_had_the_old_one_serves_as_long_as_it_holds() -> None:
    async def work(walk: Lent) -> None:
        await walk.ask()
        await asyncio.sleep(LASTS_S - 200)
        walk.tokens.play = Play(status=503)
        for _ in range(50):
            assert (await walk.ask()).status == 200
            await asyncio.sleep(1)
        assert set(walk.keys) == {"t1"}
        assert 4 <= walk.asked - 1 <= 7, "it is asked again, not with every call"

    lent(work)


def test_a_revoked_one_is_replaced_at_once_and_the_call_counts() -> None:
    async def work(walk: Lent) -> None:
        await walk.ask()
        walk.revoked.add("t1")
        answers = await asyncio.gather(*(walk.ask() for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        assert walk.keys == ["t1"] * 21 + ["t2"] * 20
        assert walk.asked == 2
        statuses = [[one.status for one in closed.attempts] for closed in walk.ledger.closed[1:]]
        assert statuses == [[401, 200]] * 20
        assert now() < 1.0

    lent(work, others=())


def test_where_there_is_another_target_that_has_its_turn_before() -> None:
    async def work(walk: Lent) -> None:
        await walk.ask()
        walk.revoked.add("t1")
        assert (await walk.ask()).status == 200
        assert [(one.target, one.status) for one in walk.last.attempts] == [("a", 401), ("b", 200)]
        assert (await walk.ask()).status == 200
        assert walk.keys == ["t1", "t1", "t2"], "nothing is left alone"

    lent(work)


def test_a_fresh_one_that_is_refused_is_a_key_that_is() -> None:
    async def work(walk: Lent) -> None:
        walk.revoked |= {f"t{number}" for number in range(100)}
        assert (await walk.ask()).status == 200
        assert [(one.target, one.status) for one in walk.last.attempts] == [("a", 401), ("b", 200)]
        assert (await walk.ask()).status == 200
        assert [one.target for one in walk.last.attempts] == ["b"], "it is left alone"

    lent(work)


def test_a_token_endpoint_that_is_down_opens_the_circuit_and_is_said() -> None:
    async def work(walk: Lent) -> None:
        walk.tokens.play = Play(status=503)
        for _ in range(6):
            assert (await walk.ask()).status == 200
        assert walk.a.hits == 0
        assert [one.target for one in walk.last.attempts] == ["b"]
        assert walk.asked == 5
        walk.tokens.play = None
        await asyncio.sleep(31)
        assert (await walk.ask()).status == 200
        assert walk.keys == ["t1"]

    lent(work, settled=False)


def test_alone_its_error_says_why_and_a_silent_one_ends_with_the_deadline() -> None:
    async def work(walk: Lent) -> None:
        walk.tokens.play = Play(status=400)
        got = await walk.ask()
        assert got.status == 502
        assert "tokens.test gives our account no token (status 400" in str(got.sent)
        assert [one.status for one in walk.last.attempts] == [401]
        await asyncio.sleep(60)
        walk.tokens.play = Play(fault="stall")
        began = now()
        got = await walk.ask(within_ms=3000)
        assert (got.status, 2.9 < now() - began < 3.2) == (504, True)

    lent(work, settled=False, others=())


def test_another_account_takes_over() -> None:
    async def work(walk: Lent) -> None:
        walk.revoked.add("t1")
        assert (await walk.ask()).status == 200
        assert [one.status for one in walk.last.attempts] == [401, 200]
        assert walk.keys == ["t1", "t2"]

    lent(work, targets=[{"keys": (KeyAt(file="one"), KeyAt(file="two"))}])
