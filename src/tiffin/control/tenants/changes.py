"""How a change is made: one after the other, into the audit log, into the keyring, in force."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tiffin.control.audit.chain import digest
from tiffin.control.audit.log import AuditLog
from tiffin.control.tenants.caller import Caller
from tiffin.control.tenants.registry import Registry
from tiffin.control.tenants.ring_file import RingFile
from tiffin.errors import TiffinError, Unavailable
from tiffin.ports.clock import Clock
from tiffin.types.keyring import Line

KEEP_EXPIRED_NS = 30 * 86_400_000_000_000
"""How long a secret that has expired is still shown."""


@dataclass(frozen=True, slots=True)
class Act:
    """Who does what to which thing, and its states before and after, as anybody may see them."""

    by: Caller
    action: str
    what: str
    before: Any = None
    after: Any = None


class Changes:
    """Makes changes of the registry last. `publish` puts tenants and projects into the snapshot."""

    def __init__(
        self,
        registry: Registry,
        ring: RingFile,
        audit: AuditLog,
        clock: Clock,
        publish: Callable[[], None],
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.audit = audit
        self._ring = ring
        self._publish = publish
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold it from looking at how things are to the change: nobody else changes them then."""
        async with self._lock:
            yield

    async def make(self, act: Act, *lines: Line) -> None:
        """Make lines true, and be sure of it; raises `Unavailable`, and nothing has changed.

        The caller has its turn, and sees it through even if its own caller leaves. What the audit
        log doesn't take isn't done.
        """
        before = "" if act.before is None else digest(act.before)
        after = "" if act.after is None else digest(act.after)
        by = act.by.signature
        await asyncio.to_thread(
            self.audit.record, by, act.action, act.what, before=before, after=after
        )
        try:
            await self._rewrite_if_due()
            await asyncio.to_thread(self._ring.append, lines)
        except TiffinError as failure:
            with suppress(TiffinError):
                outcome = f"not made: {failure.message}"
                await asyncio.to_thread(
                    self.audit.record, by, act.action, act.what, outcome=outcome
                )
            with suppress(TiffinError):
                await self._rewrite_if_due()
            raise
        for line in lines:
            self.registry.apply(line)
        if any(line.tenant or line.project for line in lines):
            with suppress(Unavailable):  # the chore that publishes says why it can't, and goes on
                self._publish()

    async def tend(self) -> int:
        """Write the keyring anew where that is due; raises `Unavailable` where something is wrong.

        Returns 0: there is nothing to do at once.
        """
        async with self._lock:
            await self._rewrite_if_due()
        await asyncio.to_thread(self.audit.check)
        fault = self._ring.fault or self.audit.fault
        if fault:
            raise Unavailable(fault)
        return 0

    async def _rewrite_if_due(self) -> None:
        registry = self.registry
        if not self._ring.needs_rewriting(len(registry)):
            return
        registry.prune(self.clock.now_ns() - KEEP_EXPIRED_NS)
        things = list(registry.lines())
        await asyncio.to_thread(self._ring.rewrite, things)
