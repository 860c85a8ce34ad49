"""The walk: the one path that every inference request takes, streamed or whole."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import structlog

from tiffin.dialects.openai.parameters import unsupported_by
from tiffin.dialects.openai.requests import read
from tiffin.dialects.openai.validate import validate
from tiffin.errors import Draining, InvalidRequest, TiffinError
from tiffin.gateway.account import Account, Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.attempts import Attempts, Run
from tiffin.gateway.authenticate import authenticate
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.pool import Pool
from tiffin.gateway.respond import Delivery, send_answer, send_error
from tiffin.gateway.route import route
from tiffin.ports.exchange import Exchange
from tiffin.types.snapshot import Plan, Principal, Snapshot
from tiffin.types.text import ChatRequest, CompletionRequest, TextRequest

MAX_TIMEOUT_MS = 86_400_000

log = structlog.get_logger("tiffin.gateway")


@dataclass(slots=True, frozen=True)
class Operation:
    """What a public path asks for: its name in accounts, its kind, the next hop's path."""

    name: str
    kind: str
    path: bytes


OPERATIONS = {
    b"/v1/chat/completions": Operation("chat", "chat", b"/v1/chat/completions"),
    b"/v1/completions": Operation("completions", "completion", b"/v1/completions"),
    b"/tokenize": Operation("tokenize", "tokenize", b"/tokenize"),
    b"/detokenize": Operation("detokenize", "detokenize", b"/detokenize"),
}


@dataclass(slots=True)
class Stages:
    """The parts that requests share; each stage of the walk is one of them."""

    snapshot: Callable[[], Snapshot]
    admission: Admission
    accounts: Accounts
    guards: Guards
    cache: ReplayCache
    pool: Pool
    max_body_bytes: int


class Walk:
    """Everything that a request passes, in order."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._clock = stages.accounts.clock

    async def __call__(self, exchange: Exchange, operation: Operation) -> None:
        """Answer one request: held stages are contexts, so they end in reverse however it ends.

        Raises only what comes before the account: no key, no room, no journal.
        """
        stages = self._stages
        snapshot = stages.snapshot()
        principal = authenticate(exchange, snapshot)
        with (
            stages.admission.admit(principal, snapshot) as permit,
            stages.accounts.open(principal, operation.name, exchange, snapshot.number) as account,
        ):
            named = (b"x-request-id", account.id.encode())
            delivery = Delivery(exchange, account, [named, *permit.headers()])
            with answering_errors(delivery):
                body = await exchange.body(stages.max_body_bytes)
                request, canonical = read(operation.kind, body)
                plan = route(request.model, principal, snapshot)
                account.model = plan.name
                validate(request, unsupported=unsupported_by(plan.targets))
                stages.guards.check_input(plan.guard, request)
                run = self._run(exchange, operation, request, plan, principal, account)
                run.canonical = canonical
                with stages.cache.look_up(run, delivery) as found:
                    if not found:
                        async with self._attempts(run, account) as answer:
                            await send_answer(delivery, answer)

    def _attempts(self, run: Run, account: Account) -> Attempts:
        return Attempts(self._stages.pool, self._stages.guards, run, account, self._clock)

    def _run(
        self,
        exchange: Exchange,
        operation: Operation,
        request: TextRequest,
        plan: Plan,
        principal: Principal,
        account: Account,
    ) -> Run:
        seconds = plan.timeout_s
        asked = exchange.header(b"x-request-timeout-ms")
        if asked is not None:
            seconds = min(seconds, _timeout_s(asked))
        return Run(
            kind=operation.kind,
            path=operation.path,
            request=request,
            plan=plan,
            tenant=principal.tenant,
            trace_id=account.trace_id,
            streaming=bool(getattr(request, "stream", False)),
            keep_usage=wants_usage(request),
            deadline=account.opened + seconds,
        )


class answering_errors:  # noqa: N801 - reads as the statement that it is
    """Whatever breaks inside, the client is told of it once, and the account knows it."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            return False
        delivery = self._delivery
        if isinstance(error, asyncio.CancelledError):
            if not delivery.exchange.gone:  # the server stops: the client is still there
                self._answer(Draining("the server is stopping; try again in a moment"))
            return False
        if isinstance(error, TiffinError):
            self._answer(error)
            _forget_frames(error)
            return True
        if isinstance(error, Exception):
            log.error("request_broke", request=delivery.account.id, exc_info=error)
            self._answer(TiffinError("something broke on our side; the log has the details"))
            return True
        return False

    def _answer(self, error: TiffinError) -> None:
        delivery = self._delivery
        delivery.account.error = error
        delivery.account.status = send_error(delivery.exchange, error, delivery.head())


def _forget_frames(error: BaseException | None) -> None:
    """Let go of the frames that an error came through: they hold the request, and it them.

    Such a ring would keep a body until the collector comes, which is seldom in this process.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def wants_usage(request: TextRequest) -> bool:
    """Whether the client asked for the usage event of its stream."""
    if isinstance(request, ChatRequest | CompletionRequest):
        options = request.stream_options
        return options is not None and bool(options.include_usage)
    return False


def _timeout_s(header: bytes) -> float:
    digits = header.strip()
    if not (digits.isdigit() and len(digits) <= 8 and 0 < int(digits) <= MAX_TIMEOUT_MS):
        shown = digits[:40].decode("latin-1")
        raise InvalidRequest(
            f"x-request-timeout-ms is '{shown}'; give whole milliseconds from 1 to {MAX_TIMEOUT_MS}"
        )
    return int(digits) / 1000
