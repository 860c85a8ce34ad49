"""The admin API's pages of tenants, projects and keys, and of the audit log, as JSON.

Each looks at its caller itself: who may not know of a tenant gets 404 for all that is its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from tiffin.api.admin_openapi import Endpoint, Told
from tiffin.api.gate import caller_of
from tiffin.control.audit.chain import Entry, Verdict
from tiffin.control.audit.log import AuditLog
from tiffin.control.tenants.book import Book
from tiffin.control.tenants.caller import Caller
from tiffin.control.tenants.keys import Keys
from tiffin.control.tenants.views import (
    KeyChange,
    KeyView,
    MadeKey,
    NewKey,
    NewProject,
    NewTenant,
    ProjectChange,
    ProjectView,
    Rotation,
    TenantChange,
    TenantView,
)
from tiffin.dialects.faults import violation
from tiffin.dialects.reader import Reader
from tiffin.errors import (
    EndpointNotFound,
    MethodNotAllowed,
    SchemaViolation,
    UnknownParameter,
)
from tiffin.ports.exchange import Exchange, Headers
from tiffin.types import roles

MAX_BODY_BYTES: Final = 1 << 20
MAX_LIMIT: Final = 1000

_TENANTS: Final = "/admin/v1/tenants"
_TENANT: Final = _TENANTS + "/{tenant}"
_PROJECT: Final = _TENANT + "/projects/{project}"
_KEY: Final = _TENANT + "/keys/{key}"
_AUDIT: Final = "/admin/v1/audit"
_JSON: Headers = [(b"content-type", b"application/json")]
_OF_TENANTS: Final = ("tenant.", "project.", "key.")

R = TypeVar("R", bound=msgspec.Struct)


class TenantsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Tenants, by name."""

    data: list[TenantView]


class ProjectsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's projects, by name."""

    data: list[ProjectView]


class KeysPage(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's keys, by name; ask for further ones with `after` = the last one's name."""

    data: list[KeyView]
    has_more: bool


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, the oldest first; ask for further ones with `after` = the last one's `n`."""

    data: list[Entry]
    has_more: bool


class KeysQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of a tenant's keys: from the first one after a name."""

    after: str = ""
    limit: int = 100


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries: with higher numbers than `after`."""

    after: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a page: who asks, the names in its path, and the exchange itself."""

    exchange: Exchange
    caller: Caller
    names: tuple[str, ...]

    async def body(self, reader: Reader[R]) -> R:
        """The body as a value; raises `InvalidRequest` by name."""
        return reader.read(await self.exchange.body(MAX_BODY_BYTES) or b"{}")[0]


Page = Callable[[Asked], Awaitable[Any]]
_NEW_TENANT, _TENANT_CHANGE = Reader(NewTenant), Reader(TenantChange)
_NEW_PROJECT, _PROJECT_CHANGE = Reader(NewProject), Reader(ProjectChange)
_NEW_KEY, _KEY_CHANGE, _ROTATION = Reader(NewKey), Reader(KeyChange), Reader(Rotation)


class TenancyPages:
    """Answers exchanges below `/admin/v1/tenants` and `/admin/v1/audit`."""

    def __init__(self, book: Book, keys: Keys, audit: AuditLog) -> None:
        self._book = book
        self._keys = keys
        self._audit = audit
        self._running: set[asyncio.Task[Any]] = set()
        self._pages: dict[str, dict[str, Page]] = {
            _TENANTS: {"GET": self._tenants, "POST": self._create_tenant},
            _TENANT: {
                "GET": self._tenant,
                "PATCH": self._change_tenant,
                "DELETE": self._close_tenant,
            },
            _TENANT + "/projects": {"GET": self._projects, "POST": self._create_project},
            _PROJECT: {
                "GET": self._project,
                "PATCH": self._change_project,
                "DELETE": self._delete_project,
            },
            _TENANT + "/keys": {"GET": self._list_keys, "POST": self._create_key},
            _KEY: {"GET": self._key, "PATCH": self._change_key, "DELETE": self._revoke_key},
            _KEY + "/rotate": {"POST": self._rotate_key},
            _AUDIT: {"GET": self._entries},
            _AUDIT + "/verify": {"GET": self._verify},
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; raises what keeps it from that."""
        page, names = self._find(exchange)
        answer = await page(Asked(exchange, caller_of(exchange), names))
        exchange.respond(200, _JSON, msgspec.json.encode(answer))

    def endpoints(self) -> Iterator[Endpoint]:
        """All that is answered, by method and path."""
        for path, pages in self._pages.items():
            yield from ((method, path) for method in pages)

    def _find(self, exchange: Exchange) -> tuple[Page, tuple[str, ...]]:
        shown = exchange.path[:80].decode("utf-8", "replace")
        parts = exchange.path.decode("latin-1").split("/")
        for path, pages in self._pages.items():
            names = _names(path.split("/"), parts)
            if names is None:
                continue
            page = pages.get(exchange.method.decode("latin-1"))
            if page is None:
                allowed = ", ".join(sorted(pages))
                raise MethodNotAllowed(f"'{shown}' answers {allowed} only", allowed=allowed)
            return page, names
        raise EndpointNotFound(f"there is no endpoint '{shown}'")

    async def _whole(self, work: Coroutine[Any, Any, R]) -> R:
        """See a change through even if the client leaves: half of one isn't made."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._settled)
        return await asyncio.shield(task)

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked has had it, or has left

    async def _tenants(self, asked: Asked) -> TenantsPage:
        return TenantsPage(data=self._book.tenants(asked.caller))

    async def _create_tenant(self, asked: Asked) -> TenantView:
        new = await asked.body(_NEW_TENANT)
        return await self._whole(self._book.create_tenant(asked.caller, new))

    async def _tenant(self, asked: Asked) -> TenantView:
        return self._book.tenant(asked.caller, *asked.names)

    async def _change_tenant(self, asked: Asked) -> TenantView:
        [tenant] = asked.names
        asked.caller.see(tenant)
        change = await asked.body(_TENANT_CHANGE)
        return await self._whole(self._book.change_tenant(asked.caller, tenant, change))

    async def _close_tenant(self, asked: Asked) -> TenantView:
        [tenant] = asked.names
        return await self._whole(self._book.close_tenant(asked.caller, tenant))

    async def _projects(self, asked: Asked) -> ProjectsPage:
        return ProjectsPage(data=self._book.projects(asked.caller, *asked.names))

    async def _create_project(self, asked: Asked) -> ProjectView:
        [tenant] = asked.names
        asked.caller.see(tenant)
        new = await asked.body(_NEW_PROJECT)
        return await self._whole(self._book.create_project(asked.caller, tenant, new))

    async def _project(self, asked: Asked) -> ProjectView:
        return self._book.project(asked.caller, *asked.names)

    async def _change_project(self, asked: Asked) -> ProjectView:
        tenant, project = asked.names
        asked.caller.see(tenant)
        change = await asked.body(_PROJECT_CHANGE)
        return await self._whole(self._book.change_project(asked.caller, tenant, project, change))

    async def _delete_project(self, asked: Asked) -> ProjectView:
        tenant, project = asked.names
        return await self._whole(self._book.delete_project(asked.caller, tenant, project))

    async def _list_keys(self, asked: Asked) -> KeysPage:
        [tenant] = asked.names
        asked.caller.see(tenant)
        query = _query(asked.exchange, KeysQuery)
        found = self._keys.page(asked.caller, tenant, query.after, query.limit + 1)
        return KeysPage(data=found[: query.limit], has_more=len(found) > query.limit)

    async def _create_key(self, asked: Asked) -> MadeKey:
        [tenant] = asked.names
        asked.caller.see(tenant)
        new = await asked.body(_NEW_KEY)
        return await self._whole(self._keys.create(asked.caller, tenant, new))

    async def _key(self, asked: Asked) -> KeyView:
        return self._keys.show(asked.caller, *asked.names)

    async def _change_key(self, asked: Asked) -> KeyView:
        tenant, key = asked.names
        asked.caller.see(tenant)
        change = await asked.body(_KEY_CHANGE)
        return await self._whole(self._keys.change(asked.caller, tenant, key, change))

    async def _revoke_key(self, asked: Asked) -> KeyView:
        tenant, key = asked.names
        return await self._whole(self._keys.revoke(asked.caller, tenant, key))

    async def _rotate_key(self, asked: Asked) -> MadeKey:
        tenant, key = asked.names
        asked.caller.see(tenant)
        rotation = await asked.body(_ROTATION)
        return await self._whole(self._keys.rotate(asked.caller, tenant, key, rotation))

    async def _entries(self, asked: Asked) -> AuditPage:
        query = _query(asked.exchange, AuditQuery)
        found = await asyncio.to_thread(
            self._audit.entries,
            after=query.after,
            limit=query.limit + 1,
            wanted=_wanted_by(asked.caller),
        )
        return AuditPage(data=found[: query.limit], has_more=len(found) > query.limit)

    async def _verify(self, asked: Asked) -> Verdict:
        asked.caller.see_all()
        return await asyncio.to_thread(self._audit.verify)


TOLD: Final[Mapping[Endpoint, Told]] = MappingProxyType(
    {
        ("GET", _TENANTS): Told("The tenants that the caller may know of", TenantsPage),
        ("POST", _TENANTS): Told(
            "Make a tenant", TenantView, takes={"application/json": NewTenant}
        ),
        ("GET", _TENANT): Told("One tenant", TenantView),
        ("PATCH", _TENANT): Told(
            "Change a tenant's limits or weight, suspend it or let it go on",
            TenantView,
            takes={"application/json": TenantChange},
        ),
        ("DELETE", _TENANT): Told("Close a tenant for good, with all its keys", TenantView),
        ("GET", _TENANT + "/projects"): Told("A tenant's projects", ProjectsPage),
        ("POST", _TENANT + "/projects"): Told(
            "Make a project", ProjectView, takes={"application/json": NewProject}
        ),
        ("GET", _PROJECT): Told("One project", ProjectView),
        ("PATCH", _PROJECT): Told(
            "Change a project's limits", ProjectView, takes={"application/json": ProjectChange}
        ),
        ("DELETE", _PROJECT): Told("Delete a project without keys", ProjectView),
        ("GET", _TENANT + "/keys"): Told("A tenant's keys", KeysPage, query=KeysQuery),
        ("POST", _TENANT + "/keys"): Told(
            "Make a key; its secret is shown this once",
            MadeKey,
            takes={"application/json": NewKey},
        ),
        ("GET", _KEY): Told("One key", KeyView),
        ("PATCH", _KEY): Told(
            "Change what a key is for", KeyView, takes={"application/json": KeyChange}
        ),
        ("DELETE", _KEY): Told("Revoke a key now", KeyView),
        ("POST", _KEY + "/rotate"): Told(
            "Give a key a new secret; the one before is good for some time yet",
            MadeKey,
            takes={"application/json": Rotation},
        ),
        ("GET", _AUDIT): Told("What admins changed", AuditPage, query=AuditQuery),
        ("GET", _AUDIT + "/verify"): Told("Whether the audit log is as it was written", Verdict),
    }
)
"""What the document says of these pages."""


def _names(pattern: list[str], parts: list[str]) -> tuple[str, ...] | None:
    """What stands in a path where a pattern has braces; none where they differ."""
    if len(pattern) != len(parts):
        return None
    names = []
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            names.append(unquote(part, errors="replace"))
        elif wanted != part:
            return None
    return tuple(names)


def _query(exchange: Exchange, kind: type[R]) -> R:
    """A query string as a value; raises `UnknownParameter` and `SchemaViolation` by name."""
    given = dict(parse_qsl(exchange.query.decode("utf-8", "replace"), keep_blank_values=True))
    for name in given:
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__)
            raise UnknownParameter(f"there is no parameter '{name}'; there are {known}", param=name)
    limit = given.get("limit", "1")
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise SchemaViolation(f"'limit' is a number from 1 to {MAX_LIMIT}", param="limit")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise violation(error, kind) from error


def _wanted_by(caller: Caller) -> Callable[[Entry], bool]:
    """Which entries a caller may see: those of its own tenant, or all of them."""
    if roles.sees_all(caller.role):
        return lambda entry: True
    if not roles.enters(caller.role):
        return lambda entry: False
    own = caller.tenant
    return lambda entry: (
        entry.action.startswith(_OF_TENANTS)
        and (entry.what == own or entry.what.startswith(f"{own}/"))
    )
