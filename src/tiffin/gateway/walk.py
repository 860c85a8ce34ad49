"""The walk: the one path that every inference request takes, streamed or whole."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType

from tiffin.dialects.dialect import Asked
from tiffin.errors import Draining, TiffinError, UnsupportedOperation
from tiffin.gateway.account import Account, Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.attempts import Attempts
from tiffin.gateway.authenticate import Authentication, check_endpoint, check_tools
from tiffin.gateway.cache.replay import ReplayCache
from tiffin.gateway.due import Due, due
from tiffin.gateway.guard.policy import Guards
from tiffin.gateway.hedged import Hedged, HedgeShares
from tiffin.gateway.idempotency.stage import Once
from tiffin.gateway.limits.needs import Claim
from tiffin.gateway.operations import Operation
from tiffin.gateway.pool import Pool
from tiffin.gateway.respond import Delivery, send_answer, send_error
from tiffin.gateway.route import route
from tiffin.gateway.run import Answer, Run
from tiffin.gateway.urgency import is_batch
from tiffin.ports.exchange import Exchange
from tiffin.telemetry import log
from tiffin.types.snapshot import Plan, Snapshot


@dataclass(slots=True)
class Stages:
    """The parts that requests share; each stage of the walk is one of them."""

    snapshot: Callable[[], Snapshot]
    authenticate: Authentication
    admission: Admission
    accounts: Accounts
    guards: Guards
    cache: ReplayCache
    pool: Pool
    max_body_bytes: int
    once: Once = field(default_factory=Once)


class Walk:
    """Everything that a request passes, in order."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._clock = stages.accounts.clock
        self._hedges = HedgeShares(stages.accounts.hedges)

    async def __call__(self, exchange: Exchange, operation: Operation) -> None:
        """Answer one request: held stages are contexts, so they end in reverse however it ends.

        Raises only what comes before the account: no key, no room, no journal.
        """
        stages = self._stages
        snapshot = stages.snapshot()
        principal = stages.authenticate(exchange, snapshot)
        with (
            await stages.admission.admit(principal, snapshot) as permit,
            stages.accounts.open(principal, operation.name, exchange, snapshot.number) as account,
        ):
            named = [(header, account.id.encode()) for header in operation.id_headers]
            dialect = operation.dialect
            delivery = Delivery(exchange, account, dialect, [*named, *permit.headers()])
            with answering_errors(delivery):
                check_endpoint(principal, operation.name)
                body = await exchange.body(permit.caps.body_bytes(stages.max_body_bytes))
                read_at = self._clock.monotonic()
                if operation.fetch is not None:
                    await operation.fetch(principal.tenant, body)
                asked = delivery.asked = dialect.read(exchange, body)
                account.meant_for(asked.end_user, exchange)
                check_tools(principal, offered=asked.offers_tools)
                plan = route(asked.model, principal, snapshot)
                account.model = plan.name
                check_serves(asked, plan)
                asked.check(plan)
                permit.caps.hold(asked, plan)
                permit.look_at(asked, account)
                stages.guards.check_input(plan.guard, asked.pieces)
                batch = is_batch(exchange, asked)
                run = Run(
                    asked,
                    plan,
                    principal.tenant,
                    account.trace_id,
                    deadline(exchange, asked, plan, account, batch=batch),
                    snapshot.weight_of(principal.tenant),
                    batch,
                    read_at,
                    permit.caps.input_tokens,
                    principal.data_class,
                )
                async with stages.once.hold(principal, run, delivery, body) as replayed:
                    if not replayed:
                        needs = Claim(exchange, asked, plan, account, len(body))
                        delivery.headers += await permit.reserve(needs)
                        await self._answer(run, delivery)

    async def _answer(self, run: Run, delivery: Delivery) -> None:
        async with self._stages.cache.answer(run, delivery, self._attempts) as answer:
            if answer is not None:
                await send_answer(delivery, answer)

    def _attempts(self, run: Run, account: Account) -> AbstractAsyncContextManager[Answer]:
        if run.plan.hedge_s and len(run.plan.targets) > 1:
            return Hedged(self._plain, run, account, self._hedges)
        return self._plain(run, account)

    def _plain(self, run: Run, account: Account) -> Attempts:
        return Attempts(self._stages.pool, self._stages.guards, run, account, self._clock)


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
        delivery.account.status = send_error(
            delivery.exchange, error, delivery.dialect, delivery.head()
        )


def _forget_frames(error: BaseException | None) -> None:
    """Let go of the frames that an error came through: they hold the request, and it them.

    Such a ring would keep a body until the collector comes, which is seldom in this process.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def check_serves(asked: Asked, plan: Plan) -> None:
    """Refuse what one of the plan's targets can't do at all."""
    for target in plan.targets:
        if target.serves and asked.operation not in target.serves:
            raise UnsupportedOperation(
                f"the model '{target.model}' doesn't do {asked.operation};"
                f" it does: {', '.join(target.serves)}",
                param="model",
            )


def deadline(exchange: Exchange, asked: Asked, plan: Plan, account: Account, *, batch: bool) -> Due:
    """By when the answer must be whole, and by when it should be."""
    said = exchange.header(b"x-request-timeout-ms")
    return due(said, asked.timeout_s, plan, account.opened, batch=batch)
