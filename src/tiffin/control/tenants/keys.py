"""Keys: those of the configuration to read, those of the API to make, rotate, change and revoke."""

import secrets as randomness
from collections.abc import Callable
from heapq import nsmallest
from typing import Any

import msgspec
from msgspec import UNSET

from tiffin.config.schema import Config
from tiffin.config.secrets import hashed
from tiffin.config.tenants import nanoseconds, place_of_key
from tiffin.control.tenants.book import Book, in_the_file
from tiffin.control.tenants.caller import Caller
from tiffin.control.tenants.changes import Act, Changes
from tiffin.control.tenants.grants import check_grant
from tiffin.control.tenants.limits import check_limits
from tiffin.control.tenants.published import principal
from tiffin.control.tenants.views import (
    KeyChange,
    KeyView,
    MadeKey,
    NewKey,
    Rotation,
    key_view,
    view_of,
)
from tiffin.errors import Conflict, NotFound, Overloaded, PermissionDenied, SchemaViolation
from tiffin.types.keyring import Line, Secret
from tiffin.types.snapshot import Principal

PREFIX = "sk-tiffin-"
SHOWN_LETTERS = len(PREFIX) + 6
MAX_SECRETS = 250_000


class Keys:
    """What the admin API does with keys; raises as `Book` does."""

    def __init__(self, changes: Changes, book: Book, config: Callable[[], Config]) -> None:
        self._changes = changes
        self._book = book
        self._config = config
        self._registry = changes.registry

    def page(self, caller: Caller, tenant: str, after: str, limit: int) -> list[KeyView]:
        """A tenant's keys in the order of their names, from the first one after a name."""
        self._book.tenant(caller, tenant)
        names = {*self._registry.keys.get(tenant, ()), *self._configured(tenant)}
        wanted = nsmallest(limit, (name for name in names if name > after))
        return [self.show(caller, tenant, name) for name in wanted]

    def show(self, caller: Caller, tenant: str, name: str) -> KeyView:
        """One key."""
        self._book.tenant(caller, tenant)
        now_ns = self._changes.clock.now_ns()
        configured = self._configured(tenant).get(name)
        if configured is not None:
            return view_of(configured, "file", now_ns)
        found = self._registry.of_key(tenant, name)
        if not found:
            raise NotFound(f"'{tenant}' has no key '{name[:80]}'", param="key")
        return key_view(found, now_ns)

    async def create(self, caller: Caller, tenant: str, new: NewKey) -> MadeKey:
        """Make one; its secret is in the answer, and nowhere else."""
        caller.change(tenant)
        async with self._changes.turn():
            self._book.tenant(caller, tenant)
            if self._registry.of_key(tenant, new.name) or new.name in self._configured(tenant):
                raise Conflict(f"'{tenant}' has a key '{new.name}' already", param="name")
            if new.project:
                self._book.project(caller, tenant, new.project)
            if len(self._registry.secrets) >= MAX_SECRETS:
                raise Overloaded(f"there are {MAX_SECRETS} keys already, and no more may be")
            wanted = Principal(
                tenant=tenant,
                key=new.name,
                project=new.project,
                role=new.role,
                admin=new.role == "admin",
                models=tuple(new.models),
                endpoints=tuple(new.endpoints),
                tools=new.tools,
                data_class=new.data_class,
                region=new.region,
                expires_ns=nanoseconds(new.expires),
                limits=new.limits,
            )
            self._check(caller, wanted)
            text, secret = self._secret(caller, wanted)
            view = self._view([secret])
            act = Act(caller, "key.create", f"{tenant}/{new.name}", None, view)
            await self._changes.make(act, Line(do="secret", secret=secret))
            return MadeKey(secret=text, key=view)

    async def change(self, caller: Caller, tenant: str, name: str, change: KeyChange) -> KeyView:
        """Have it be for something else, or end at another time."""
        caller.change(tenant)
        async with self._changes.turn():
            before = self._owned(caller, tenant, name)
            given = _given(change)
            expires = {"expires_ns": given.pop("expires_ns")} if "expires_ns" in given else {}
            newest, *earlier = before
            check_grant(caller, newest.principal, None)
            fresh = msgspec.structs.replace(newest.principal, **given, **expires)
            self._check(caller, fresh)
            # A secret that a rotation left behind keeps its own end.
            after = [msgspec.structs.replace(newest, principal=fresh)] + [
                msgspec.structs.replace(
                    one, principal=msgspec.structs.replace(one.principal, **given)
                )
                for one in earlier
            ]
            view = self._view(after)
            act = Act(caller, "key.change", f"{tenant}/{name}", self._view(before), view)
            await self._changes.make(act, *(Line(do="secret", secret=one) for one in after))
            return view

    async def rotate(self, caller: Caller, tenant: str, name: str, rotation: Rotation) -> MadeKey:
        """Give it a new secret; the one before is good for some time yet, earlier ones aren't."""
        caller.change(tenant)
        async with self._changes.turn():
            before = self._owned(caller, tenant, name)
            newest, *earlier = before
            self._check(caller, newest.principal)
            text, fresh = self._secret(caller, newest.principal, newest.made_ns + 1)
            lines = [Line(do="secret", secret=fresh)]
            left = [fresh]
            now_ns = self._changes.clock.now_ns()
            until_ns = now_ns + int(rotation.overlap_s * 1e9)
            if rotation.overlap_s:
                ends_ns = min(newest.principal.expires_ns or until_ns, until_ns)
                old = msgspec.structs.replace(newest.principal, expires_ns=ends_ns)
                left.append(msgspec.structs.replace(newest, principal=old))
                lines.append(Line(do="secret", secret=left[-1]))
            else:
                earlier = before
            lines += [Line(do="drop_secret", digest=one.digest) for one in earlier]
            view = self._view(left)
            act = Act(caller, "key.rotate", f"{tenant}/{name}", self._view(before), view)
            await self._changes.make(act, *lines)
            return MadeKey(secret=text, key=view)

    async def revoke(self, caller: Caller, tenant: str, name: str) -> KeyView:
        """End it, with all its secrets, now."""
        caller.change(tenant)
        async with self._changes.turn():
            before = self._owned(caller, tenant, name)
            check_grant(caller, before[0].principal, None)
            view = self._view(before)
            act = Act(caller, "key.revoke", f"{tenant}/{name}", view, None)
            lines = [Line(do="drop_secret", digest=one.digest) for one in before]
            await self._changes.make(act, *lines)
            return view

    def _secret(
        self, caller: Caller, wanted: Principal, earliest_ns: int = 0
    ) -> tuple[str, Secret]:
        """A key's text and what is kept of it; it's newer than others whatever the clock says."""
        text = PREFIX + randomness.token_urlsafe(32)
        made = Secret(
            digest=hashed(text),
            principal=wanted,
            shown=text[:SHOWN_LETTERS],
            made_ns=max(earliest_ns, self._changes.clock.now_ns()),
            made_by=caller.name,
        )
        return text, made

    def _check(self, caller: Caller, wanted: Principal) -> None:
        """Raise what forbids that there be such a key."""
        config = self._config()
        known = {*config.models, *config.routes}
        for name in wanted.models:
            if name not in known:
                raise SchemaViolation(f"there is no model or route '{name[:80]}'", param="models")
        if 0 < wanted.expires_ns <= self._changes.clock.now_ns():
            raise SchemaViolation("'expires' is in the past", param="expires")
        check_limits(wanted.limits, "key", config)
        check_grant(caller, wanted, self._own(caller))

    def _own(self, caller: Caller) -> Principal | None:
        """What the caller's own key is for; none for who needs no key.

        Raises `PermissionDenied` where it has gone since it was looked at.
        """
        if not caller.tenant:
            return None
        found = self._registry.of_key(caller.tenant, caller.key)
        configured = self._configured(caller.tenant).get(caller.key)
        own = configured or (found[0].principal if found else None)
        if own is None:
            raise PermissionDenied(f"the key {caller.name} was revoked; ask with another one")
        return own

    def _owned(self, caller: Caller, tenant: str, name: str) -> list[Secret]:
        view = self.show(caller, tenant, name)
        if view.source == "file":
            raise in_the_file(place_of_key(f"tenants.{tenant}", view.project, name))
        return self._registry.of_key(tenant, name)

    def _view(self, secrets: list[Secret]) -> KeyView:
        return key_view(secrets, self._changes.clock.now_ns())

    def _configured(self, tenant: str) -> dict[str, Principal]:
        section = self._config().tenants.get(tenant)
        if section is None:
            return {}
        return {
            name: principal(tenant, project, name, key)
            for project, name, key in section.every_key()
        }


def _given(change: KeyChange) -> dict[str, Any]:
    """What a change says, as fields of a principal."""
    given = {
        field: value
        for field in change.__struct_fields__
        if (value := getattr(change, field)) is not UNSET
    }
    if "expires" in given:
        given["expires_ns"] = nanoseconds(given.pop("expires"))
    for field in ("models", "endpoints"):
        if field in given:
            given[field] = tuple(given[field])
    if "role" in given:
        given["admin"] = given["role"] == "admin"
    return given
