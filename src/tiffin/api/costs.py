"""The admin API's pages of money: statements, what use costs now, invoices that come in."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from tiffin.api.admin_openapi import Endpoint, Told
from tiffin.control.money.statements import Ask, Statements, Taken
from tiffin.control.money.told import Rate, StatementPage
from tiffin.dialects.faults import violation
from tiffin.errors import MalformedBody, UnknownParameter
from tiffin.ports.exchange import Exchange, Headers

MAX_INVOICE_BYTES: Final = 16 << 20
STATEMENT: Final = "/admin/v1/costs/statement"
RATES: Final = "/admin/v1/costs/rates"
INVOICES: Final = "/admin/v1/costs/invoices"

_JSON: Headers = [(b"content-type", b"application/json")]

Page = Callable[[Exchange], Awaitable[None]]


class RatesPage(msgspec.Struct, frozen=True, kw_only=True):
    """What use of every model costs now."""

    data: list[Rate]


class InvoiceQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the invoice is called: by this it is known when it comes again."""

    name: str = ""


TOLD: Final[Mapping[Endpoint, Told]] = MappingProxyType(
    {
        ("GET", STATEMENT): Told("What was spent, for whom and for what", StatementPage, query=Ask),
        ("GET", RATES): Told("What use of every model costs now", RatesPage),
        ("POST", INVOICES): Told(
            "Take an invoice, as FOCUS has it", Taken, query=InvoiceQuery, takes={"text/csv": str}
        ),
    }
)
"""What the document says of them."""


class CostPages:
    """Answers exchanges below `/admin/v1/costs`; only who sees all tenants may ask."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def pages(self) -> dict[bytes, dict[bytes, Page]]:
        """By path and method."""
        return {
            STATEMENT.encode(): {b"GET": self._statement},
            RATES.encode(): {b"GET": self._rates},
            INVOICES.encode(): {b"POST": self._invoice},
        }

    async def _statement(self, exchange: Exchange) -> None:
        answer(exchange, await self._statements.page(query_as(exchange, Ask)))

    async def _rates(self, exchange: Exchange) -> None:
        answer(exchange, RatesPage(data=self._statements.rates()))

    async def _invoice(self, exchange: Exchange) -> None:
        name = query_as(exchange, InvoiceQuery).name
        body = await exchange.body(MAX_INVOICE_BYTES)
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise MalformedBody("an invoice is CSV in UTF-8") from cause
        answer(exchange, await self._statements.take(name, text))


def query_as(exchange: Exchange, kind: type[Any]) -> Any:
    """A query string as a value; raises `UnknownParameter` and `SchemaViolation` by name."""
    given = dict(parse_qsl(exchange.query.decode("utf-8", "replace"), keep_blank_values=True))
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            message = f"there is no parameter '{name[:40]}'; there are {', '.join(known)}"
            raise UnknownParameter(message, param=name)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as cause:
        raise violation(cause, kind) from cause


def answer(exchange: Exchange, value: Any) -> None:
    """Answer with a value as JSON."""
    exchange.respond(200, _JSON, msgspec.json.encode(value))
