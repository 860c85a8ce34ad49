"""Budgets and alerts as control has them: how budgets stand, what is told to whom."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tiffin.adapters.stores.spending import SqliteSpending
from tiffin.adapters.upstreams.webhook import HttpWebhooks
from tiffin.app.money import Money
from tiffin.control.alerts.courier import Courier, Receiver
from tiffin.control.alerts.odd import odd_in
from tiffin.control.alerts.outbox import Outbox
from tiffin.control.alerts.watch import Sights, Watch
from tiffin.control.budgets.charged import charged_in
from tiffin.control.budgets.standing import Budgets
from tiffin.control.money.usage import UsageBook
from tiffin.control.office import Office
from tiffin.ports.clock import Clock
from tiffin.telemetry.metrics import Meter
from tiffin.types.paths import DataFolder, alerts_file

if TYPE_CHECKING:
    from tiffin.api.budgets import BudgetPages


class Alerting:
    """`watch` finds what has to be told, `courier` tells it."""

    def __init__(
        self, folder: DataFolder, office: Office, money: Money, clock: Clock, meter: Meter
    ) -> None:
        self._office = office
        self._spending = SqliteSpending(folder.database)
        self._usage = UsageBook(money.ledger, lambda: office.config.prices, clock)
        self._outbox = Outbox(alerts_file(folder), meter)
        self.budgets = Budgets(
            self._spending,
            lambda: office.config,
            office.registry.made,
            lambda: charged_in(folder.run, clock.now_ns()),
            clock,
        )
        sights = Sights(
            lambda: office.config,
            money.look,
            self.budgets,
            money.statements,
            lambda: odd_in(folder.run),
        )
        self.watch = Watch(sights, self._outbox, clock)
        self.courier = Courier(self._outbox, HttpWebhooks(), self._receivers, clock, meter)

    def open(self) -> None:
        """Read what is still to be told."""
        self._outbox.open()

    def pages(self) -> "BudgetPages":
        """What the admin API shows of it."""
        # Imported only when it is served: what everybody waits for is published before.
        from tiffin.api.budgets import BudgetPages

        return BudgetPages(self.budgets, self._usage, lambda: self._office.config.prices)

    def close(self) -> None:
        """Give the database back."""
        self._spending.close()

    def _receivers(self) -> Mapping[str, Receiver] | None:
        taken = self._office.taken
        if taken is None:
            return None
        return {
            name: Receiver(alert, taken.alerts[name]) for name, alert in taken.config.alerts.items()
        }
