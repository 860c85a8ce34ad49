"""One try at one target, to the commit point: the whole answer, or a stream's first content."""

import math

import msgspec

from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import TiffinError, UpstreamFailed, UpstreamRefused
from tiffin.gateway.account import NO_USAGE, Account
from tiffin.gateway.due import Due
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.placement.choice import Wish
from tiffin.gateway.placement.full import Ask, Kind
from tiffin.gateway.placement.place import Place
from tiffin.gateway.placement.prefixes import Chain, chain_of
from tiffin.gateway.pool import Pool
from tiffin.gateway.retries import Phase, fault_of
from tiffin.gateway.run import Answer, Begun, Run
from tiffin.gateway.station import Station, Visit
from tiffin.ports.backend import Call, Reply
from tiffin.ports.clock import Clock
from tiffin.types.snapshot import Target
from tiffin.types.usage import Usage

_USAGE = msgspec.json.Decoder(Usage)

MAX_ANSWER_BYTES = 67_108_864
MAX_ERROR_BYTES = 65_536
# What a stream may hold back before its first content; a role chunk and a comment are far less.
MAX_BEFORE_COMMIT_BYTES = 262_144
# What an answer may have where a guard must see all of it before any goes out.
MAX_GUARDED_BYTES = 8_388_608


class Attempt:
    """`phase` and `status` are how far it has come, `usage` what it is known to have taken.

    Whoever has an attempt leaves its `visit`, if it has one: only then its work is over.
    """

    __slots__ = (
        "_account",
        "_clock",
        "_guards",
        "_pool",
        "_run",
        "_size",
        "_station",
        "committed",
        "phase",
        "revision",
        "started",
        "status",
        "target",
        "usage",
        "visit",
    )

    def __init__(
        self, pool: Pool, guards: Guards, run: Run, account: Account, clock: Clock, target: Target
    ) -> None:
        self._pool = pool
        self._guards = guards
        self._run = run
        self._account = account
        self._clock = clock
        self._size = 0
        self._station: Station | None = None
        self.target = target
        self.revision = target.revision
        self.started = clock.monotonic()
        self.visit: Visit | None = None
        self.phase = Phase.REACH
        self.status = 0
        self.usage = NO_USAGE
        self.committed = False

    @property
    def place(self) -> Place | None:
        """Where it was called; None while it wasn't."""
        return self.visit.place if self.visit is not None else None

    def ask(self) -> Ask:
        """How much is asked for, and in which time."""
        run = self._run
        left_s = min(run.due.deadline, run.due.aim, run.due.first) - self.started
        return Ask(Kind(run.tenant, run.batch), left_s, self._size)

    def judge(self, error: BaseException | None) -> None:
        """Let what it came to count for or against the upstream that it was made to, if it was."""
        station, place = self._station, self.place
        if station is not None and place is not None:
            fault = None if error is None else fault_of(error, self.phase, self.status)
            now = self._clock.monotonic()
            station.judge(place, fault, self._run.tenant, self.started, now)

    async def answer(self, tried: tuple[Place, ...]) -> Answer:
        """Call the target, at none of the places that were tried where there are others; raises
        what it fails with."""
        run, target = self._run, self.target
        asked = run.asked
        station = self._pool.station(target)
        if target.on_demand and not station.ready():
            run.due = await self._pool.awake(target, run.due)
            station = self._pool.station(target)
        if station.target is not target:
            self.revision = station.target.revision
        path, content, body = asked.forward(target)
        self._size = len(body)
        if station.full():
            refusal = station.refusal(self.ask(), self.started)
            if refusal is not None:
                raise refusal
        self._station = station
        if station.upstream is not None:
            places = station.others(tried) or station.places
            keys = [place.key for place in places if place.key is not None]
            station.upstream.enter(run.tenant, keys, self.started)
        run.trying(target)
        call = Call(path, body, self._headers(), run.due.deadline, b"POST", content)
        if station.only is None:
            visit = station.visit(call, self._wish(), tried)
        else:
            visit = station.visit(call)
        self.visit = visit
        try:
            reply = await visit.__aenter__()
        except TiffinError as error:
            self._heed(error)
            raise
        return await self._until_commit(reply)

    def _heed(self, error: TiffinError) -> None:
        """How far a call came whose refusal was read on the way."""
        self.status = error.status
        if error.status and isinstance(error, UpstreamRefused):
            self.phase = Phase.STATUS

    async def _until_commit(self, reply: Reply) -> Answer:
        asked, target = self._run.asked, self.target
        self.status = reply.status
        if reply.status >= 300:
            self.phase = Phase.STATUS
            raise await self._told(reply)
        self.phase = Phase.ANSWER
        if reply.streaming != asked.streaming:
            wanted = "a stream" if asked.streaming else "a whole answer"
            raise UpstreamFailed(f"'{target.model}' didn't answer with {wanted}")
        if asked.streaming:
            return await self._until_content(reply)
        told = Told(
            await reply.read_all(MAX_ANSWER_BYTES), reply.content_type, reply.inference_header
        )
        if reply.usage and target.kind != "remote":
            told.usage = _USAGE.decode(reply.usage)
        whole = asked.whole(told, target)
        self.usage = whole.usage
        self._guard_out(whole.body)
        return whole

    async def _told(self, reply: Reply) -> TiffinError:
        """The error that a reply tells; what had run when it failed was used."""
        trusted = self.target.kind != "remote"
        body = await reply.read_all(MAX_ERROR_BYTES)
        if reply.usage and trusted:
            self.usage = _USAGE.decode(reply.usage)
        return error_from_reply(reply.status, body, trusted=trusted, retry_after=reply.retry_after)

    async def _until_content(self, reply: Reply) -> Begun:
        target = self.target
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
            self.usage = reading.usage
            if not reading.done:
                raise UpstreamFailed(f"the answer is over the {limit} bytes that can be guarded")
            self._guard_out(first)
        return Begun(first, reply, reading)

    def _guard_out(self, body: bytes) -> None:
        """The guard of answers, before anything of one goes out; raises `Blocked`."""
        run = self._run
        if self._guards.checks_output(run.plan.guard):
            self._guards.check_output(run.plan.guard, run.asked.answer_text(body))

    def _wish(self) -> Wish:
        """What makes one place better than another; its last attempt isn't for trying one out."""
        run = self._run
        may_try = len(self._account.attempts) + 1 < run.plan.attempts
        chain: Chain = ()
        if run.asked.leaves_prefix:
            chain = chain_of(run.asked.canonical())
        return Wish(run.tenant, chain, may_try)

    def _headers(self) -> bytes:
        account, run = self._account, self._run
        trace = b"traceparent: 00-%b-%b-01\r\n" % (
            run.trace_id.encode(),
            account.id[-16:].encode(),
        )
        if self.target.kind == "remote":
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
            + times(run.due, now, run.read_at or account.opened)
            + share(run)
        )


def times(due: Due, now: float, read_at: float) -> bytes:
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


def share(run: Run) -> bytes:
    """How urgent a request is, its tenant's weight where that isn't 1, its cap where it has one."""
    line = b"x-tiffin-priority: batch\r\n" if run.batch else b"x-tiffin-priority: interactive\r\n"
    if run.weight != 1:
        line += b"x-tiffin-weight: %g\r\n" % run.weight
    if run.most_tokens:
        line += b"x-tiffin-most-tokens: %d\r\n" % run.most_tokens
    return line
