"""Control's inbound edge: metrics, status, configuration and accounts, as JSON.

It listens on a socket that only its owner may use; who comes through the public port has been
authenticated there and is named in `x-tiffin-tenant` and `x-tiffin-key`, with the key's role.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from tiffin.api import budgets, caches, costs
from tiffin.api.admin_openapi import Endpoint, Told, document
from tiffin.api.budgets import BudgetPages
from tiffin.api.caches import CachePages
from tiffin.api.costs import CostPages
from tiffin.api.gate import OF_TENANTS, caller_of
from tiffin.api.tenancy import TOLD, TenancyPages
from tiffin.config.load import Loaded
from tiffin.config.schema import Tree
from tiffin.control.changing import Applied, Changing, Wanted
from tiffin.control.history import Earlier
from tiffin.control.office import Switched
from tiffin.control.preview import Preview
from tiffin.control.report import Report
from tiffin.control.standing import LimitsPage
from tiffin.dialects.faults import violation
from tiffin.dialects.openai.errors import error_response
from tiffin.dialects.reader import Reader
from tiffin.errors import (
    EndpointNotFound,
    MalformedBody,
    MethodNotAllowed,
    SchemaViolation,
    TiffinError,
    Unavailable,
    UnknownParameter,
)
from tiffin.ports.accounts import Accounts, Entry, Query, Total
from tiffin.ports.exchange import Exchange, Headers
from tiffin.telemetry import log

MAX_CONFIG_BYTES = 4 << 20
MAX_ENTRIES = 1000

MODELS = b"/admin/v1/models/"

_JSON: Headers = [(b"content-type", b"application/json")]

Page = Callable[[Exchange], Awaitable[None]]


class ConfigPage(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force, complete and without secrets."""

    source: str
    sha256: str
    config: Tree


class EntriesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts, newest first; ask for older ones with `before` = the last one's `seq`."""

    data: list[Entry]
    has_more: bool


class TotalsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all accounts since the beginning."""

    data: list[Total]


class _ConfigBody(msgspec.Struct, forbid_unknown_fields=True):
    """A configuration: its text, or the number of one that was in force (0: the one before)."""

    toml: str | None = None
    number: int | None = None


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Configurations that were in force, the newest first."""

    data: list[Earlier]


_CONFIG: Final = MappingProxyType({"application/toml": str, "application/json": _ConfigBody})
_MODEL: Final = "/admin/v1/models/{model}/"
_TOLD: Final[Mapping[Endpoint, Told]] = MappingProxyType(
    {
        ("GET", "/metrics"): Told("Everybody's counters for Prometheus"),
        ("GET", "/admin/v1/status"): Told("What runs, what is fetched, how models stand", Report),
        ("GET", "/admin/v1/config"): Told("The configuration in force", ConfigPage),
        ("POST", "/admin/v1/config"): Told(
            "Take a configuration, whole or not at all",
            Applied,
            takes=_CONFIG,
        ),
        ("POST", "/admin/v1/config/preview"): Told(
            "What taking a configuration would do", Preview, takes=_CONFIG
        ),
        ("GET", "/admin/v1/config/history"): Told(
            "The configurations that were in force", HistoryPage
        ),
        ("GET", "/admin/v1/limits"): Told("How limits stand", LimitsPage),
        ("POST", "/admin/v1/reload"): Told("Read the configuration's file again", Applied),
        ("GET", "/admin/v1/accounts"): Told("Accounts, newest first", EntriesPage, query=Query),
        ("GET", "/admin/v1/accounts/totals"): Told("What all accounts come to", TotalsPage),
        ("POST", _MODEL + "load"): Told("Load a model that was unloaded", Switched),
        ("POST", _MODEL + "unload"): Told("Unload a model, over restarts too", Switched),
        ("POST", _MODEL + "restart"): Told("Replace a model's replicas, new before old", Switched),
    }
)
"""What the document says of pages."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the pages show and do."""

    report: Callable[[], Report]
    config: Callable[[], Loaded | None]
    changing: Changing
    load: Callable[[str], Switched]
    unload: Callable[[str, str], Switched]
    restart: Callable[[str], Switched]
    limits: Callable[[], LimitsPage]
    metrics: Callable[[], Awaitable[tuple[str, str]]]
    accounts: Accounts
    gate: Callable[[Exchange, Page], Awaitable[None]]
    tenancy: TenancyPages
    costs: CostPages
    budgets: BudgetPages
    caches: CachePages


class AdminApi:
    """Answers exchanges; errors have OpenAI's shape."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pages: dict[bytes, dict[bytes, Page]] = {
            b"/metrics": {b"GET": self._metrics},
            b"/admin/openapi.json": {b"GET": self._openapi},
            b"/admin/v1/status": {b"GET": self._status},
            b"/admin/v1/config": {b"GET": self._config, b"POST": self._apply},
            b"/admin/v1/config/preview": {b"POST": self._preview},
            b"/admin/v1/config/history": {b"GET": self._history},
            b"/admin/v1/limits": {b"GET": self._limits},
            b"/admin/v1/reload": {b"POST": self._reload},
            b"/admin/v1/accounts": {b"GET": self._entries},
            b"/admin/v1/accounts/totals": {b"GET": self._totals},
            **desk.costs.pages(),
            **desk.budgets.pages(),
            **desk.caches.pages(),
        }

        self._switches: dict[bytes, dict[bytes, Page]] = {
            b"load": {b"POST": self._load},
            b"unload": {b"POST": self._unload},
            b"restart": {b"POST": self._restart},
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        try:
            await self._desk.gate(exchange, self._page(exchange))
        except TiffinError as error:
            _fail(exchange, error)
        except Exception as error:  # noqa: BLE001 - the outermost edge: one request fails, no more
            log.error("admin request broke", path=exchange.path[:80], exc_info=error)
            _fail(exchange, TiffinError("something broke on our side; the log says what"))

    def endpoints(self) -> Iterator[Endpoint]:
        """All that is answered, by method and path."""
        for path, page in self._pages.items():
            yield from ((method.decode(), path.decode()) for method in page)
        for verb, page in self._switches.items():
            yield from ((method.decode(), _MODEL + verb.decode()) for method in page)
        yield from self._desk.tenancy.endpoints()

    def _page(self, exchange: Exchange) -> Page:
        if exchange.path.startswith(OF_TENANTS):
            return self._desk.tenancy
        pages = self._pages.get(exchange.path)
        if pages is None and exchange.path.startswith(MODELS):
            pages = self._switches.get(exchange.path.rpartition(b"/")[2])
        path = exchange.path[:80].decode("utf-8", "replace")
        if pages is None:
            raise EndpointNotFound(f"there is no endpoint '{path}'")
        page = pages.get(exchange.method)
        if page is None:
            methods = " and ".join(sorted(method.decode() for method in pages))
            raise MethodNotAllowed(f"'{path}' answers {methods} only")
        return page

    async def _metrics(self, exchange: Exchange) -> None:
        try:
            content_type, text = await self._desk.metrics()
        except OSError as cause:
            raise Unavailable(f"metrics can't be read: {cause}", retry_after=1.0) from cause
        exchange.respond(200, [(b"content-type", content_type.encode())], text.encode())

    async def _openapi(self, exchange: Exchange) -> None:
        told = {**_TOLD, **TOLD, **costs.TOLD, **budgets.TOLD, **caches.TOLD}
        exchange.respond(200, _JSON, document(self.endpoints(), told))

    async def _status(self, exchange: Exchange) -> None:
        _answer(exchange, self._desk.report())

    async def _limits(self, exchange: Exchange) -> None:
        _answer(exchange, self._desk.limits())

    async def _config(self, exchange: Exchange) -> None:
        loaded = self._desk.config()
        if loaded is None:
            raise Unavailable("no configuration could be loaded; the status says why")
        page = ConfigPage(source=loaded.source, sha256=loaded.sha256, config=loaded.tree)
        _answer(exchange, page)

    async def _apply(self, exchange: Exchange) -> None:
        wanted = _wanted(await exchange.body(MAX_CONFIG_BYTES))
        applied = await self._desk.changing.apply(wanted, _who(exchange))
        log.info("configuration applied", by=_who(exchange), number=applied.number)
        _answer(exchange, applied)

    async def _preview(self, exchange: Exchange) -> None:
        wanted = _wanted(await exchange.body(MAX_CONFIG_BYTES))
        _answer(exchange, await self._desk.changing.preview(wanted))

    async def _history(self, exchange: Exchange) -> None:
        _answer(exchange, HistoryPage(data=self._desk.changing.history()))

    async def _reload(self, exchange: Exchange) -> None:
        applied = await self._desk.changing.load_again(_who(exchange))
        log.info("configuration loaded again", by=_who(exchange), number=applied.number)
        _answer(exchange, applied)

    async def _load(self, exchange: Exchange) -> None:
        _answer(exchange, self._desk.load(_model_in(exchange.path)))

    async def _unload(self, exchange: Exchange) -> None:
        when = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        reason = f"by {_who(exchange)} at {when}"
        _answer(exchange, self._desk.unload(_model_in(exchange.path), reason))

    async def _restart(self, exchange: Exchange) -> None:
        _answer(exchange, self._desk.restart(_model_in(exchange.path)))

    async def _entries(self, exchange: Exchange) -> None:
        query = query_of(exchange.query)
        found = await self._desk.accounts.entries(
            msgspec.structs.replace(query, limit=query.limit + 1)
        )
        page = EntriesPage(data=found[: query.limit], has_more=len(found) > query.limit)
        _answer(exchange, page)

    async def _totals(self, exchange: Exchange) -> None:
        _answer(exchange, TotalsPage(data=await self._desk.accounts.totals()))


_NUMBERS: Final = (
    ("limit", 1, MAX_ENTRIES),
    ("slower_ms", 0, 10**9),
    ("before", 0, 2**62),
    ("after", 0, 2**62),
)


def query_of(text: bytes) -> Query:
    """A query string as a query; raises `UnknownParameter` and `SchemaViolation` by name."""
    given = dict(parse_qsl(text.decode("utf-8", "replace"), keep_blank_values=True))
    for name in given:
        if name not in Query.__struct_fields__:
            known = ", ".join(Query.__struct_fields__)
            raise UnknownParameter(f"there is no parameter '{name}'; there are {known}", param=name)
    for name, least, most in _NUMBERS:
        value = given.get(name, "1")
        if not (value.isascii() and value.isdecimal() and least <= int(value[:20]) <= most):
            raise SchemaViolation(f"'{name}' is a number from {least} to {most}", param=name)
    try:
        return msgspec.convert(given, Query, strict=False)
    except msgspec.ValidationError as cause:
        raise violation(cause, Query) from cause


def _wanted(body: bytes) -> Wanted:
    if body.lstrip()[:1] != b"{":  # as JSON begins and TOML can't
        return body
    try:
        given = Reader(_ConfigBody).read(body)[0]
        text = None if given.toml is None else given.toml.encode()
    except (TiffinError, UnicodeError) as cause:
        raise MalformedBody(f"{_EXPECTED}: {cause}") from cause
    wanted = given.number if text is None else text
    if wanted is None or (text is not None and given.number is not None):
        raise MalformedBody(f"{_EXPECTED}, one of both")
    return wanted


_EXPECTED: Final = 'expected TOML, or JSON such as {"toml": "…"} or {"number": 1}'


def _model_in(path: bytes) -> str:
    name = path.removeprefix(MODELS).rpartition(b"/")[0]
    return unquote(name.decode("latin-1"), errors="replace")


def _who(exchange: Exchange) -> str:
    return caller_of(exchange).name


def _answer(exchange: Exchange, value: Any) -> None:
    exchange.respond(200, _JSON, msgspec.json.encode(value))


def _fail(exchange: Exchange, error: TiffinError) -> None:
    if not exchange.begun:
        exchange.respond(*error_response(error))
