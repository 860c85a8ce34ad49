"""Looks for what has to be told, and puts it into the outbox; nothing waits for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tiffin.config.alerts import Alert
from tiffin.config.prices import Prices, offset_of
from tiffin.config.schema import Config
from tiffin.control.alerts.occasions import (
    Occasion,
    messages_of,
    of_budgets,
    of_keys,
    of_models,
    of_statement,
)
from tiffin.control.alerts.outbox import Outbox
from tiffin.control.budgets.standing import Budgets
from tiffin.control.fleet.status import Status
from tiffin.control.money.statements import Ask, Statements
from tiffin.errors import TiffinError
from tiffin.ports.clock import Clock
from tiffin.telemetry import log
from tiffin.types.anomalies import Oddity

REST: Final = 20.0
"""It rests so many times as long as it took to look, so that a large ledger isn't read all day."""

INVOICES_EVERY_S: Final = 600.0
LONGEST_REST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Sights:
    """Where it looks."""

    config: Callable[[], Config]
    status: Callable[[], Status | None]
    budgets: Budgets
    statements: Statements
    odd: Callable[[], Iterable[Oddity]] = tuple


class Watch:
    """`look` is called again and again; what it finds is told once."""

    def __init__(self, sights: Sights, outbox: Outbox, clock: Clock) -> None:
        self._sights = sights
        self._outbox = outbox
        self._clock = clock
        self._again_s = 0.0
        self._invoices_s = 0.0

    async def look(self) -> None:
        """Look once; raises `Unavailable` where something can't be seen, or kept.

        What can be seen is told all the same.
        """
        alerts = self._sights.config().alerts
        began_s = self._clock.monotonic()
        if not alerts or began_s < self._again_s:
            return
        found, failure = await self._found(alerts)
        now_ns = self._clock.now_ns()
        outbox = self._outbox
        messages, marks = messages_of(found, alerts, outbox.told, outbox.origin, now_ns)
        outbox.put(messages, marks)
        ended_s = self._clock.monotonic()
        self._again_s = ended_s + min(REST * (ended_s - began_s), LONGEST_REST_S)
        if failure is not None:
            raise failure

    async def _found(
        self, alerts: Mapping[str, Alert]
    ) -> tuple[list[Occasion], TiffinError | None]:
        """What there is to tell, and why that isn't everything."""
        wanted = {event for alert in alerts.values() for event in alert.events}
        prices, now_ns = self._sights.config().prices, self._clock.now_ns()
        found: list[Occasion] = []
        failure: TiffinError | None = None
        if wanted & {"budget.threshold", "budget.runout"}:
            try:
                stands = await self._sights.budgets.stand()
                found += of_budgets(stands, now_ns, offset_of(prices))
            except TiffinError as cause:
                failure = cause
        if "ledger.variance" in wanted and self._clock.monotonic() >= self._invoices_s:
            found += await self._variances(prices, now_ns)
            self._invoices_s = self._clock.monotonic() + INVOICES_EVERY_S
        if "key.anomaly" in wanted:
            found += of_keys(self._sights.odd(), self._sights.config().anomalies)
        status = self._sights.status()
        if "model.failed" in wanted and status is not None:
            found += of_models(status, now_ns)
        return found, failure

    async def _variances(self, prices: Prices, now_ns: int) -> list[Occasion]:
        """Those of the last whole month: what is invoiced later than that is seen in statements."""
        zone = offset_of(prices)
        today = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).astimezone(zone).date()
        this = today.replace(day=1)
        last = (this - timedelta(days=1)).replace(day=1)
        ask = Ask(since=last.isoformat(), until=this.isoformat(), by="line")
        try:
            return list(of_statement(await self._sights.statements.statement(ask), zone))
        except TiffinError as failure:
            log.warning("invoices can't be compared", error=failure.message)
            return []
