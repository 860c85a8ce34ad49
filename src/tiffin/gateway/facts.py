"""What models say of themselves: whether they take requests, and what tensors they know."""

from collections import OrderedDict
from dataclasses import dataclass
from math import inf

from tiffin.dialects.oip.metadata import Tensors, read_tensors
from tiffin.dialects.oip.paths import path_of
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import Loading, NoHealthyReplica, TiffinError
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


class Facts:
    """Asks targets through the pool, and keeps their answers for as long as they hold."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: OrderedDict[tuple[str, Target], tuple[float, Tensors]] = OrderedDict()

    async def tensors(self, plan: Plan) -> Tensors:
        """What the first of a plan's targets that takes tensors knows; raises what it says."""
        target = next((one for one in plan.targets if TENSOR_MODELS in one.serves), None)
        if target is None:
            return Tensors(platform=plan.targets[0].kind)
        kept = self._find("metadata", target)
        if kept is None:
            kept = read_tensors(await self._ask(target, ""), target.model)
            holds_s = REMOTE_METADATA_S if target.kind == "remote" else inf
            self._keep("metadata", target, kept, holds_s)
        return kept

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

    def state(self, plan: Plan) -> State:
        """The best state of a plan's targets, from what is known now; no remote is asked."""
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
        if self._find("ready", target) is None:
            try:
                await self._ask(target, "ready")
            except TiffinError as error:
                raise NoHealthyReplica(
                    f"the model '{target.model}' isn't ready at its server: {error.message}",
                    retry_after=error.retry_after,
                ) from error
            self._keep("ready", target, Tensors(), REMOTE_READY_S)

    async def _ask(self, target: Target, verb: str) -> bytes:
        call = Call(
            path=path_of(target.upstream_model or target.model, verb),
            body=b"",
            headers=b"",
            deadline=self._clock.monotonic() + ASK_TIMEOUT_S,
            method=b"GET",
        )
        async with self._pool.station(target).visit(call) as reply:
            body = await reply.read_all(MAX_METADATA_BYTES)
            if reply.status >= 300:
                trusted = target.kind != "remote"
                raise error_from_reply(
                    reply.status, body, trusted=trusted, retry_after=reply.retry_after
                )
            return body

    def _find(self, fact: str, target: Target) -> Tensors | None:
        until, kept = self._kept.get((fact, target), (-inf, None))
        return kept if self._clock.monotonic() < until else None

    def _keep(self, fact: str, target: Target, told: Tensors, holds_s: float) -> None:
        self._kept[fact, target] = (self._clock.monotonic() + holds_s, told)
        self._kept.move_to_end((fact, target))
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
