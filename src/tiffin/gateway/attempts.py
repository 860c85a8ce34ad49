"""The one loop over a plan's targets, inside one deadline and one budget.

Nothing of an attempt reaches the client before the **commit point**: the whole answer, or a
stream's first byte of content. Before it another target may be tried; after it, never.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import msgspec

from tiffin.dialects.dialect import Asked, Reading, Told, Whole
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import Overloaded, Rejected, RunFailed, TiffinError, UpstreamFailed
from tiffin.gateway.account import NO_USAGE, Account
from tiffin.gateway.due import Due
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.placement.choice import Reason, Wish
from tiffin.gateway.placement.full import Ask, Kind
from tiffin.gateway.placement.place import Place
from tiffin.gateway.placement.prefixes import Chain, chain_of
from tiffin.gateway.pool import Pool
from tiffin.gateway.station import Visit
from tiffin.ports.backend import Call, Reply
from tiffin.ports.clock import Clock
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

_USAGE = msgspec.json.Decoder(Usage)

MAX_ANSWER_BYTES = 67_108_864
MAX_ERROR_BYTES = 65_536
# What a stream may hold back before its first content; a role chunk and a comment are far less.
MAX_BEFORE_COMMIT_BYTES = 262_144
# What an answer may have where a guard must see all of it before any goes out.
MAX_GUARDED_BYTES = 8_388_608


@dataclass(slots=True)
class Run:
    """A request on its way: what every attempt at it needs.

    `paying` is called before a target that may charge for the attempt; where it raises that target
    isn't called.
    """

    asked: Asked
    plan: Plan
    tenant: str
    trace_id: str
    due: Due
    weight: float = 1.0
    batch: bool = False
    read_at: float = 0.0
    paying: Callable[[], None] | None = None

    def trying(self, target: Target) -> None:
        """This target is called next; raises what forbids it."""
        if self.paying is not None and target.kind == "remote":
            self.paying()


@dataclass(slots=True)
class Begun:
    """A stream at its commit point: its first bytes for the client, and where the rest is read."""

    first: bytes
    reply: Reply
    reading: Reading


Answer = Whole | Begun


class Attempts:
    """Entering finds an answer or raises the reason there is none; leaving stops the work."""

    __slots__ = (
        "_account",
        "_clock",
        "_guards",
        "_pool",
        "_run",
        "_size",
        "_started",
        "_target",
        "_tried",
        "_visit",
        "_warm",
    )

    def __init__(
        self, pool: Pool, guards: Guards, run: Run, account: Account, clock: Clock
    ) -> None:
        self._pool = pool
        self._guards = guards
        self._run = run
        self._account = account
        self._clock = clock
        self._visit: Visit | None = None
        self._target: Target | None = None
        self._started = 0.0
        self._size = 0
        self._tried: tuple[Place, ...] = ()
        self._warm = False

    async def __aenter__(self) -> Answer:
        plan = self._run.plan
        failures: list[str] = []
        at = 0
        while at < len(plan.targets):
            target = plan.targets[at]
            try:
                return await self._try(target)
            except TiffinError as error:
                await self._leave(error)
                failures.append(f"{target.model}: {error.message}")
                if not _is_the_targets(error):
                    raise
                if not self._elsewhere(target, error):
                    self._tried = ()
                    at += 1
                last = len(failures) >= plan.attempts or at == len(plan.targets)
                if last and len(set(failures)) == 1:
                    raise
                if last:
                    raise _of_all(error, failures) from error
            except BaseException as error:
                await self._leave(error)
                raise
        raise UpstreamFailed("the plan has no target to try")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    async def _try(self, target: Target) -> Answer:
        account, run = self._account, self._run
        asked = run.asked
        account.revision = target.revision
        self._target = target
        self._started = self._clock.monotonic()
        account.charge.at(target, asked.pieces, account.usage, self._started)
        account.usage = NO_USAGE
        station = self._pool.station(target)
        if target.on_demand and not station.ready():
            run.due = await self._pool.awake(target, run.due)
            station = self._pool.station(target)
        if station.target is not target:
            account.revision = station.target.revision
        path, content, body = asked.forward(target)
        self._size = len(body)
        if station.full():
            refusal = station.refusal(self._ask(), self._started)
            if refusal is not None:
                raise refusal
        run.trying(target)
        call = Call(path, body, self._headers(target), run.due.deadline, b"POST", content)
        if station.only is None:
            visit = station.visit(call, self._wish(target), self._tried)
        else:
            visit = station.visit(call)
        self._visit = visit
        reply = await visit.__aenter__()
        if reply.status >= 300:
            raise await self._told(target, reply)
        if reply.streaming != asked.streaming:
            wanted = "a stream" if asked.streaming else "a whole answer"
            raise UpstreamFailed(f"'{target.model}' didn't answer with {wanted}")
        if asked.streaming:
            return await self._until_content(target, reply)
        told = Told(
            await reply.read_all(MAX_ANSWER_BYTES), reply.content_type, reply.inference_header
        )
        if reply.usage and target.kind != "remote":
            told.usage = _USAGE.decode(reply.usage)
        whole = asked.whole(told, target)
        account.usage = whole.usage
        self._guard_out(whole.body)
        return whole

    async def _told(self, target: Target, reply: Reply) -> TiffinError:
        """The error that a reply tells; what had run when it failed was used."""
        trusted = target.kind != "remote"
        body = await reply.read_all(MAX_ERROR_BYTES)
        if reply.usage and trusted:
            self._account.usage = _USAGE.decode(reply.usage)
        return error_from_reply(reply.status, body, trusted=trusted, retry_after=reply.retry_after)

    def _ask(self) -> Ask:
        run = self._run
        left_s = min(run.due.deadline, run.due.aim, run.due.first) - self._started
        return Ask(Kind(run.tenant, run.batch), left_s, self._size)

    def _wish(self, target: Target) -> Wish:
        """What makes one place better than another; its last attempt isn't for trying one out."""
        run = self._run
        may_try = len(self._account.attempts) + 1 < run.plan.attempts
        chain: Chain = ()
        if run.asked.leaves_prefix:
            chain = chain_of(run.asked.canonical())
        return Wish(run.tenant, chain, may_try)

    def _elsewhere(self, target: Target, error: TiffinError) -> bool:
        """Whether the same target may do better at another try, at another of its places."""
        if not self._tried or (isinstance(error, Rejected) and not self._warm):
            return False  # a refusal of the place that had least to do is one of all
        try:
            station = self._pool.station(target)
        except TiffinError:
            return False
        return bool(station.others(self._tried)) if station.ready() else target.on_demand

    async def _until_content(self, target: Target, reply: Reply) -> Begun:
        reading = self._run.asked.reading(target)
        charge = self._account.charge
        charge.began(reply.usage, self._clock.monotonic())
        if charge.price is not None:
            reading.priced = charge.told
        guarded = self._guards.checks_output(self._run.plan.guard)
        limit = MAX_GUARDED_BYTES if guarded else MAX_BEFORE_COMMIT_BYTES
        first = b""
        while not reading.done and (guarded or not reading.content) and len(first) <= limit:
            data = await reply.read()
            first += reading.feed(data)
            if reading.error is not None:
                raise reading.error
            if not data and not reading.done:
                raise UpstreamFailed(f"'{target.model}' ended its stream before it was complete")
        if guarded:
            self._account.usage = reading.usage
            if not reading.done:
                raise UpstreamFailed(f"the answer is over the {limit} bytes that can be guarded")
            self._guard_out(first)
        return Begun(first, reply, reading)

    def _guard_out(self, body: bytes) -> None:
        """The guard of answers, before anything of one goes out; raises `Blocked`."""
        run = self._run
        if self._guards.checks_output(run.plan.guard):
            self._guards.check_output(run.plan.guard, run.asked.answer_text(body))

    def _headers(self, target: Target) -> bytes:
        account, run = self._account, self._run
        trace = b"traceparent: 00-%b-%b-01\r\n" % (
            run.trace_id.encode(),
            account.id[-16:].encode(),
        )
        if target.kind == "remote":
            return trace
        now = self._clock.monotonic()
        return (
            b"%bx-tiffin-tenant: %b\r\nx-tiffin-request: %b\r\nx-tiffin-attempt: %d\r\n"
            % (
                trace,
                run.tenant.encode(),
                account.id.encode(),
                len(account.attempts) + 1,
            )
            + _times(run.due, now, run.read_at or account.opened)
            + _share(run)
        )

    async def _leave(self, error: BaseException | None) -> None:
        target, self._target = self._target, None
        if target is None:
            return
        visit, self._visit = self._visit, None
        slug = ""
        if error is not None:
            slug = error.slug if isinstance(error, TiffinError) else "cancelled"
        placed = visit.reason if visit is not None else ""
        self._account.tried(target.model, self._started, 0 if error else 200, slug, placed)
        if visit is not None:
            await visit.__aexit__(None, error, None)
            if error is not None and visit.place is not None:
                self._tried = (*self._tried, visit.place)
                self._warm = visit.reason == Reason.PREFIX.value
                if isinstance(error, Overloaded):
                    visit.place.full.said(self._ask(), error, self._clock.monotonic())


def _times(due: Due, now: float, read_at: float) -> bytes:
    """What is left of a request's time, in milliseconds, and of its objectives where it has any.

    And when it was read and when this is said, in microseconds of the machine's clock: so the way
    there counts as well.
    """
    lines = b"x-tiffin-clock: %d %d\r\n" % (read_at * 1e6, now * 1e6)
    lines += b"x-tiffin-timeout-ms: %d\r\n" % max(1, int((due.deadline - now) * 1000))
    if due.aim != math.inf:
        lines += b"x-tiffin-aim-ms: %d\r\n" % max(0, int((due.aim - now) * 1000))
    if due.first != math.inf:
        lines += b"x-tiffin-first-ms: %d\r\n" % max(0, int((due.first - now) * 1000))
    return lines


def _share(run: Run) -> bytes:
    """How urgent a request is, and its tenant's weight where that isn't 1."""
    line = b"x-tiffin-priority: batch\r\n" if run.batch else b"x-tiffin-priority: interactive\r\n"
    return line if run.weight == 1 else b"%bx-tiffin-weight: %g\r\n" % (line, run.weight)


def _is_the_targets(error: TiffinError) -> bool:
    """Whether it is the target that failed, so that another may do better."""
    return error.retryable or isinstance(error, RunFailed)


def _of_all(error: TiffinError, failures: list[str]) -> TiffinError:
    """The last target's error, telling of those before it too."""
    message = "every try failed: " + "; ".join(failures)
    return type(error)(message, retry_after=error.retry_after, param=error.param)
