"""Of an answer that a guard blocks, or that breaks off, nothing is kept for later."""

from collections.abc import Iterable

import msgspec
import pytest

from tests.unit.gateway.test_walk import (
    GOOD,
    KEY,
    ROLE,
    WORD,
    ScriptedBackend,
    Shop,
    stream,
    whole,
)
from tiffin.app.clock import SystemClock
from tiffin.dialects.openai.responses import ResponsesDialect
from tiffin.errors import UpstreamFailed
from tiffin.gateway.conversations import MemoryConversations
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.operations import all_operations
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Finding, Piece
from tiffin.testing.exchange import FakeExchange, answered
from tiffin.types.snapshot import GuardPolicy


class Blocking:
    """A guard of answers that finds something in each."""

    checks_output = True

    def check_input(self, pieces: Iterable[Piece]) -> None:
        return None

    def check_output(self, text: str) -> Finding | None:
        return Finding(what="words")


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "free"])
async def test_a_conversation_keeps_only_what_its_client_got(
    streaming: bool, guarded: bool
) -> None:
    cut = stream(ROLE, WORD, UpstreamFailed("cut"))
    good = stream(*GOOD) if streaming else whole()
    shop = Shop(ScriptedBackend(*([cut, good] if streaming else [good])), guard="g")
    if guarded:
        policies = {"g": GuardPolicy(kind="words")}
        shop.walk._stages.guards = guards = Guards({"words": Blocking})
        guards.adopt(msgspec.structs.replace(shop.snapshot, guards=policies))
    else:
        plan = msgspec.structs.replace(shop.snapshot.plans["m"], guard="")
        shop.snapshot = msgspec.structs.replace(shop.snapshot, plans={"m": plan})
        shop.pool.adopt(shop.snapshot)
    kept = MemoryConversations(SystemClock())
    operations = all_operations(ResponsesDialect(kept, lambda exchange: "acme", SystemClock()))

    async def handler(exchange: Exchange) -> None:
        operation = operations.find(exchange.path)
        assert operation is not None
        await shop.walk(exchange, operation)

    body = msgspec.json.encode({"model": "m", "input": "hi", "stream": streaming})
    for _ in range(2 if streaming else 1):
        assert len(kept) == 0
        key = (b"authorization", b"Bearer " + KEY.encode())
        got = await answered(
            handler, FakeExchange(b"POST", b"/v1/responses", headers=[key], body=body)
        )
    assert got.status == (400 if guarded else 200)
    assert len(kept) == (0 if guarded else 1)
    shop.settled()
