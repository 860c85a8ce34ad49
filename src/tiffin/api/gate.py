"""Who may ask control for which page: roles are held to here, and changes come to the audit log."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from tiffin.control.audit.log import AuditLog
from tiffin.control.tenants.caller import Caller, no_tenant
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Exchange
from tiffin.telemetry import log
from tiffin.types import roles

ADMIN: Final = b"/admin/v1/"
OF_TENANTS: Final = (b"/admin/v1/tenants", b"/admin/v1/audit")
"""Paths whose pages look at the caller themselves, tenant by tenant."""

OPEN: Final = frozenset({b"/admin/openapi.json"})
"""Pages for everybody who may come this far."""

OWN: Final = frozenset({b"/admin/v1/accounts", b"/admin/v1/budgets", b"/admin/v1/usage"})
"""Pages with a parameter `tenant`, of which everybody may have their own tenant's part."""

LOOKS: Final = frozenset({b"/admin/v1/config/preview"})
"""What is sent to, and changes nothing."""

MAX_BODY_BYTES: Final = 16 << 20

_NAMES: Final = {b"config": "config.apply", b"reload": "config.reload"}

Page = Callable[[Exchange], Awaitable[None]]


class Gate:
    """Lets exchanges through to their pages; `config_hash` tells which configuration is in force.

    Raises `PermissionDenied` where the caller's role isn't enough, `NotFound` for other tenants.
    """

    def __init__(self, audit: AuditLog, config_hash: Callable[[], str]) -> None:
        self._audit = audit
        self._config_hash = config_hash

    async def __call__(self, exchange: Exchange, page: Page) -> None:
        """Have a page answer, if the caller may have it."""
        caller = caller_of(exchange)
        if exchange.path.startswith(OF_TENANTS) or exchange.path in OPEN:
            await page(exchange)
        elif exchange.method == b"GET":
            if exchange.path in OWN and roles.enters(caller.role):
                narrow(exchange, caller)
            else:
                caller.see_all()
            await page(exchange)
        else:
            caller.change_all()
            if exchange.path in LOOKS:
                await page(exchange)
            else:
                await self._recorded(exchange, page, caller)

    async def _recorded(self, exchange: Exchange, page: Page, caller: Caller) -> None:
        """It is in the log before it is done: with what is in force, and what was sent."""
        body = await exchange.body(MAX_BODY_BYTES)
        action, what = action_of(exchange.path)
        after = sha256(body).hexdigest() if body else ""
        by, before = caller.signature, self._config_hash()
        await asyncio.to_thread(self._audit.record, by, action, what, before=before, after=after)
        try:
            await page(exchange)
        except BaseException as failure:
            reason = failure.message if isinstance(failure, TiffinError) else "it broke"
            try:
                self._audit.record(by, action, what, outcome=f"not made: {reason}")
            except TiffinError as lost:
                log.error("the audit log misses that a change failed", error=str(lost))
            raise


def caller_of(exchange: Exchange) -> Caller:
    """Who asks, as the gateway says; whoever came by control's own socket is this machine's owner.

    A gateway that doesn't tell roles is of a version that only let admins in.
    """
    tenant = exchange.header(b"x-tiffin-tenant")
    if tenant is None:
        return Caller()
    return Caller(
        tenant=tenant.decode("latin-1"),
        key=(exchange.header(b"x-tiffin-key") or b"").decode("latin-1"),
        role=(exchange.header(b"x-tiffin-role") or b"admin").decode("latin-1"),
    )


def narrow(exchange: Exchange, caller: Caller) -> None:
    """Have a page give the caller's own tenant alone; raises `NotFound` for another."""
    if roles.sees_all(caller.role):
        return
    given = parse_qsl(exchange.query.decode("utf-8", "replace"), keep_blank_values=True)
    for name, value in given:
        if name == "tenant" and value != caller.tenant:
            raise no_tenant(value)
    others = [(name, value) for name, value in given if name != "tenant"]
    exchange.query = urlencode([*others, ("tenant", caller.tenant)], quote_via=quote).encode()


def action_of(path: bytes) -> tuple[str, str]:
    """What a change is called in the log, and what it is of."""
    below = path.removeprefix(ADMIN)
    if below in _NAMES:
        return _NAMES[below], ""
    first, _, rest = below.partition(b"/")
    what, _, verb = rest.rpartition(b"/")
    if first == b"models":
        return f"model.{verb.decode('latin-1')}", unquote(what.decode("latin-1"), errors="replace")
    return below.replace(b"/", b".").decode("latin-1")[:80], ""
