"""Tenants and their projects: those of the configuration to read, those of the API to change."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from tiffin.config.schema import Config
from tiffin.control.tenants.caller import Caller, no_tenant
from tiffin.control.tenants.changes import Act, Changes
from tiffin.control.tenants.limits import check_budgets, check_limits
from tiffin.control.tenants.views import (
    NewProject,
    NewTenant,
    ProjectChange,
    ProjectView,
    TenantChange,
    TenantView,
    project_view,
    tenant_view,
)
from tiffin.errors import Conflict, NotFound, Overloaded
from tiffin.types.keyring import Line, MadeProject, MadeTenant

MAX_TENANTS = 10_000
MAX_PROJECTS = 20_000


class Book:
    """What the admin API does with tenants and projects; `config` is the configuration in force.

    Each raises `NotFound` where the caller may not know of the tenant, `PermissionDenied` where it
    may not do this, `Conflict` where the configuration owns the thing, or how it stands forbids it.
    """

    def __init__(self, changes: Changes, config: Callable[[], Config]) -> None:
        self._changes = changes
        self._config = config
        self._registry = changes.registry

    def tenants(self, caller: Caller) -> list[TenantView]:
        """Those that the caller may know of, by name."""
        names = {*self._config().tenants, *self._registry.tenants}
        return [
            self.tenant(caller, name)
            for name in sorted(names)
            if caller.sees(name) and not self._closed(name)
        ]

    def tenant(self, caller: Caller, name: str) -> TenantView:
        """One tenant."""
        caller.see(name)
        configured = self._config().tenants.get(name)
        if configured is not None:
            return TenantView(
                name=name,
                source="file",
                limits=configured.limits,
                weight=configured.weight,
                budgets=configured.budgets,
            )
        made = self._registry.tenants.get(name)
        if made is None or made.closed:
            raise no_tenant(name)
        return tenant_view(made)

    async def create_tenant(self, caller: Caller, new: NewTenant) -> TenantView:
        """Make one; its name must never have been somebody's."""
        caller.change_all()
        check_limits(new.limits, "tenant", self._config())
        check_budgets(new.budgets, new.limits, self._config())
        async with self._changes.turn():
            registry = self._registry
            if new.name in self._config().tenants:
                raise Conflict(f"there is a tenant '{new.name}' in the configuration", param="name")
            known = registry.tenants.get(new.name)
            if known is not None:
                was = (
                    "was one that is closed, and its accounts have it" if known.closed else "is one"
                )
                raise Conflict(f"there {was}: '{new.name}'; choose another name", param="name")
            if registry.keys.get(new.name) or any(one == new.name for one, _ in registry.projects):
                raise Conflict(
                    f"'{new.name}' was a tenant of the configuration and has keys or projects"
                    " still; choose another name",
                    param="name",
                )
            if len(registry.tenants) >= MAX_TENANTS:
                raise Overloaded(f"there are {MAX_TENANTS} tenants already, and no more may be")
            made = MadeTenant(
                name=new.name,
                limits=new.limits,
                budgets=new.budgets,
                weight=new.weight,
                made_ns=self._changes.clock.now_ns(),
                made_by=caller.name,
            )
            view = tenant_view(made)
            act = Act(caller, "tenant.create", new.name, None, view)
            await self._changes.make(act, Line(do="tenant", tenant=made))
            return view

    async def change_tenant(self, caller: Caller, name: str, change: TenantChange) -> TenantView:
        """Give it other limits, budgets or weight, suspend it or let it go on."""
        caller.see(name)
        caller.change_all()
        async with self._changes.turn():
            made = self._owned_tenant(caller, name)
            after = msgspec.structs.replace(made, **_given(change))
            check_limits(after.limits, "tenant", self._config())
            check_budgets(after.budgets, after.limits, self._config())
            act = Act(caller, "tenant.change", name, tenant_view(made), tenant_view(after))
            await self._changes.make(act, Line(do="tenant", tenant=after))
            return tenant_view(after)

    async def close_tenant(self, caller: Caller, name: str) -> TenantView:
        """End it with all its keys and projects, for good; what it used stays in the accounts."""
        caller.see(name)
        caller.change_all()
        async with self._changes.turn():
            made = self._owned_tenant(caller, name)
            closed = msgspec.structs.replace(made, closed=True, suspended=True)
            act = Act(caller, "tenant.close", name, tenant_view(made), None)
            gone = [
                Line(do="drop_project", project=project)
                for (tenant, _), project in self._registry.projects.items()
                if tenant == name
            ]
            await self._changes.make(act, Line(do="tenant", tenant=closed), *gone)
            return tenant_view(closed)

    def projects(self, caller: Caller, tenant: str) -> list[ProjectView]:
        """Those of a tenant, by name."""
        self.tenant(caller, tenant)
        names = {name for owner, name in self._registry.projects if owner == tenant}
        configured = self._config().tenants.get(tenant)
        names |= set(configured.projects) if configured else set()
        return [self.project(caller, tenant, name) for name in sorted(names)]

    def project(self, caller: Caller, tenant: str, name: str) -> ProjectView:
        """One project."""
        self.tenant(caller, tenant)
        configured = self._config().tenants.get(tenant)
        if configured is not None and name in configured.projects:
            part = configured.projects[name]
            return ProjectView(
                tenant=tenant, name=name, source="file", limits=part.limits, budgets=part.budgets
            )
        made = self._registry.projects.get((tenant, name))
        if made is None:
            raise NotFound(f"'{tenant}' has no project '{name[:80]}'", param="project")
        return project_view(made)

    async def create_project(self, caller: Caller, tenant: str, new: NewProject) -> ProjectView:
        """Make one in a tenant of whoever's."""
        caller.change(tenant)
        check_limits(new.limits, "project", self._config())
        check_budgets(new.budgets, new.limits, self._config())
        async with self._changes.turn():
            if any(one.name == new.name for one in self.projects(caller, tenant)):
                raise Conflict(f"'{tenant}' has a project '{new.name}' already", param="name")
            if len(self._registry.projects) >= MAX_PROJECTS:
                raise Overloaded(f"there are {MAX_PROJECTS} projects already, and no more may be")
            made = MadeProject(
                tenant=tenant,
                name=new.name,
                limits=new.limits,
                budgets=new.budgets,
                made_ns=self._changes.clock.now_ns(),
                made_by=caller.name,
            )
            view = project_view(made)
            act = Act(caller, "project.create", f"{tenant}/{new.name}", None, view)
            await self._changes.make(act, Line(do="project", project=made))
            return view

    async def change_project(
        self, caller: Caller, tenant: str, name: str, change: ProjectChange
    ) -> ProjectView:
        """Give it other limits or budgets."""
        caller.change(tenant)
        async with self._changes.turn():
            made = self._owned_project(caller, tenant, name)
            after = msgspec.structs.replace(made, **_given(change))
            check_limits(after.limits, "project", self._config())
            check_budgets(after.budgets, after.limits, self._config())
            views = project_view(made), project_view(after)
            act = Act(caller, "project.change", f"{tenant}/{name}", *views)
            await self._changes.make(act, Line(do="project", project=after))
            return views[1]

    async def delete_project(self, caller: Caller, tenant: str, name: str) -> ProjectView:
        """End one that has no key any more."""
        caller.change(tenant)
        async with self._changes.turn():
            made = self._owned_project(caller, tenant, name)
            keys = {
                secret.principal.key
                for secret in self._registry.of_tenant(tenant)
                if secret.principal.project == name
            }
            if keys:
                first = ", ".join(sorted(keys)[:3])
                raise Conflict(
                    f"the project '{name}' has {len(keys)} keys ({first} …); revoke them first"
                )
            act = Act(caller, "project.delete", f"{tenant}/{name}", project_view(made), None)
            await self._changes.make(act, Line(do="drop_project", project=made))
            return project_view(made)

    def _closed(self, name: str) -> bool:
        return name not in self._config().tenants and self._registry.is_closed(name)

    def _owned_tenant(self, caller: Caller, name: str) -> MadeTenant:
        if self.tenant(caller, name).source == "file":
            raise in_the_file(f"tenants.{name}")
        return self._registry.tenants[name]

    def _owned_project(self, caller: Caller, tenant: str, name: str) -> MadeProject:
        if self.project(caller, tenant, name).source == "file":
            raise in_the_file(f"tenants.{tenant}.projects.{name}")
        return self._registry.projects[tenant, name]


def _given(change: TenantChange | ProjectChange) -> dict[str, Any]:
    """What is to be otherwise."""
    fields = {name: getattr(change, name) for name in change.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


def in_the_file(where: str) -> Conflict:
    """The refusal of a change of what the configuration owns."""
    return Conflict(
        f"{where} is in the configuration, which alone changes it: edit the file and apply it"
    )
