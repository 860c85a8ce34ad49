"""What models say of themselves: whether they take requests, and what tensors they know."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import NamedTuple
from weakref import WeakValueDictionary

from tiffin.dialects.oip.metadata import Tensors, read_tensors
from tiffin.dialects.oip.paths import path_of
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import Loading, NoHealthyReplica, TiffinError
from tiffin.gateway.due import Due
from tiffin.gateway.pool import Pool
from tiffin.ports.backend import Call
from tiffin.ports.clock import Clock
from tiffin.types.snapshot import Plan, Target

MAX_KEPT = 512
MAX_METADATA_BYTES = 1_048_576
ASK_TIMEOUT_S = 5.0
# A revision here never changes; what somebody else's server has under a name may.
REMOTE_METADATA_S = 60.0
REMOTE_READY_S = 1.0
TENSOR_MODELS = "infer"


@dataclass(frozen=True, slots=True)
class State:
    """Where a name's best target is: `READY`, `LOADING` or `UNAVAILABLE`, and why."""

    name: str
    reason: str = ""


class Fact(NamedTuple):
    """A question to a target, by the end of its path."""

    target: Target
    verb: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error that a question ended with."""

    kind: type[TiffinError]
    message: str
    retry_after: float | None


class Facts:
    """Asks targets through the pool, one question of a kind at a time, and keeps the answers.

    So whoever asks again and again takes no room from a target's requests.
    """

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: OrderedDict[Fact, tuple[float, Tensors | Refusal]] = OrderedDict()
        self._turns: WeakValueDictionary[Fact, asyncio.Lock] = WeakValueDictionary()

    async def tensors(self, plan: Plan) -> Tensors:
        """What the first of a plan's targets that takes tensors knows; raises what it says."""
        target = next((one for one in plan.targets if TENSOR_MODELS in one.serves), None)
        if target is None:
            return Tensors(platform=plan.targets[0].kind)
        holds_s = REMOTE_METADATA_S if target.kind == "remote" else inf
        return await self._know(Fact(target, ""), holds_s)

    async def check_ready(self, plan: Plan) -> None:
        """Return where one of a plan's targets takes requests; else raise why the last doesn't."""
        reason: TiffinError = NoHealthyReplica(f"'{plan.name}' leads nowhere")
        for target in plan.targets:
            try:
                await self._check(target)
            except TiffinError as error:
                reason = error
            else:
                return
        raise reason

    async def ask_ready(self, plan: Plan) -> None:
        """The same, after the replicas of its targets were asked."""
        for target in plan.targets:
            await self._pool.look_at(target)
        await self.check_ready(plan)

    def state(self, plan: Plan) -> State:
        """The best state of a plan's targets, from what is known now; no remote is asked.

        A model that is loaded on demand takes requests, so it is ready while it sleeps too.
        """
        best = State("UNAVAILABLE")
        for target in plan.targets:
            try:
                self._pool.station(target)
            except Loading as error:
                best = State("LOADING", error.message)
            except TiffinError as error:
                best = best if best.reason else State("UNAVAILABLE", error.message)
            else:
                return State("READY")
        return best

    def failure(self, plan: Plan) -> str:
        """Why none of a plan's targets will run by itself; empty where one may."""
        reasons = [self._pool.failure(target) for target in plan.targets]
        return reasons[-1] if all(reasons) else ""

    async def _check(self, target: Target) -> None:
        self._pool.station(target)
        if target.kind != "remote" or target.protocol != "oip":
            return
        try:
            await self._know(Fact(target, "ready"), REMOTE_READY_S)
        except TiffinError as error:
            raise NoHealthyReplica(
                f"the model '{target.model}' isn't ready at its server: {error.message}",
                retry_after=error.retry_after,
            ) from error

    async def _know(self, fact: Fact, holds_s: float) -> Tensors:
        told = self._find(fact)
        if told is None:
            turn = self._turns.setdefault(fact, asyncio.Lock())
            async with turn:
                told = self._find(fact) or await self._learn(fact, holds_s)
        if isinstance(told, Refusal):
            raise told.kind(told.message, retry_after=told.retry_after)
        return told

    async def _learn(self, fact: Fact, holds_s: float) -> Tensors:
        target = fact.target
        try:
            body = await self._ask(fact)
            told = Tensors() if fact.verb else read_tensors(body, target.model)
        except TiffinError as error:
            if target.kind == "remote":
                refusal = Refusal(type(error), error.message, error.retry_after)
                self._keep(fact, refusal, REMOTE_READY_S)
            raise
        self._keep(fact, told, holds_s)
        return told

    async def _ask(self, fact: Fact) -> bytes:
        target = fact.target
        call = Call(
            path=path_of(target.upstream_model or target.model, fact.verb),
            body=b"",
            headers=b"",
            deadline=self._clock.monotonic() + ASK_TIMEOUT_S,
            method=b"GET",
        )
        station = self._pool.station(target)
        if not station.ready():
            await self._pool.awake(target, Due(call.deadline, named=True))
            station = self._pool.station(target)
        async with station.visit(call) as reply:
            body = await reply.read_all(MAX_METADATA_BYTES)
            if reply.status >= 300:
                trusted = target.kind != "remote"
                raise error_from_reply(
                    reply.status, body, trusted=trusted, retry_after=reply.retry_after
                )
            return body

    def _find(self, fact: Fact) -> Tensors | Refusal | None:
        until, told = self._kept.get(fact, (-inf, None))
        return told if self._clock.monotonic() < until else None

    def _keep(self, fact: Fact, told: Tensors | Refusal, holds_s: float) -> None:
        self._kept[fact] = (self._clock.monotonic() + holds_s, told)
        self._kept.move_to_end(fact)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
