"""Money as control has it: the ledger, statements, and how long everything ran."""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tiffin.adapters.stores.ledger import SqliteLedger
from tiffin.control.fleet.status import Status
from tiffin.control.money.lives import Here, lives_of
from tiffin.control.money.statements import Statements
from tiffin.control.office import Office
from tiffin.control.publish import Publisher
from tiffin.ports.clock import Clock
from tiffin.types.machine import CPU, Machine

if TYPE_CHECKING:
    from tiffin.api.costs import CostPages

LEDGER_DAYS = 800
"""How long sums and lives are kept: two years may be compared."""

DAY_NS = 86_400_000_000_000


class Money:
    """`look` tells what runs, as the supervisor says it; None while it hasn't said anything."""

    def __init__(
        self,
        database: Path,
        office: Office,
        publisher: Publisher,
        clock: Clock,
        look: Callable[[], Status | None],
    ) -> None:
        self._office = office
        self._publisher = publisher
        self._clock = clock
        self.look = look
        self._cores = len(os.sched_getaffinity(0))
        self.ledger = SqliteLedger(database)
        self.statements = Statements(
            self.ledger, lambda: office.config.prices, lambda: publisher.current, clock
        )

    async def keep_lives(self, machine: Machine) -> None:
        """Keep how long everything has run until now; raises `Unavailable`."""
        status, snapshot = self.look(), self._publisher.current
        if status is None or snapshot is None:
            return
        here = Here(
            name=platform.node() or "here",
            cores=self._cores,
            accelerators=any(one.kind != CPU for one in machine.devices),
        )
        models = self._office.config.models
        now_ns = self._clock.now_ns()
        await self.ledger.ran(lives_of(status, snapshot.deployments, models, here, now_ns))

    async def trim(self) -> None:
        """Let go of what is too old for any statement."""
        await self.ledger.trim(before_ns=self._clock.now_ns() - LEDGER_DAYS * DAY_NS)

    def pages(self) -> "CostPages":
        """What the admin API shows of it."""
        # Imported only when it is served: what everybody waits for is published before.
        from tiffin.api.costs import CostPages

        return CostPages(self.statements)

    def close(self) -> None:
        """Give the database back."""
        self.ledger.close()
