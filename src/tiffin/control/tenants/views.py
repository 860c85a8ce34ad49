"""Tenants, projects and keys as the admin API shows them, and what it takes to make them.

What is in the configuration has `source` `file` and is changed there alone.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tiffin.config.fields import RegionOrNone, Weight
from tiffin.config.tenants import EndpointName, Moment, moment_of
from tiffin.types.budgets import Budget
from tiffin.types.keyring import MadeProject, MadeTenant, Secret
from tiffin.types.residency import DataClass
from tiffin.types.roles import Role
from tiffin.types.snapshot import Limits, Principal

MAX_OVERLAP_S = 30 * 86_400.0
MAX_NAMES = 256

Source = Literal["file", "api"]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)",
        description="letters, digits, '.', '_', '-', no more than 64",
    ),
]
ModelNames = Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=MAX_NAMES)]
EndpointNames = Annotated[list[EndpointName], Meta(max_length=MAX_NAMES)]
BudgetsByName = dict[Name, Budget]
Overlap = Annotated[float, Meta(ge=0, le=MAX_OVERLAP_S)]


class NewTenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant is made of."""

    name: Name
    limits: Limits = Limits()
    budgets: BudgetsByName = {}
    weight: Weight = 1.0


class TenantChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a tenant is to be otherwise; the rest stays. A suspended one is refused with 403."""

    limits: Limits | UnsetType = UNSET
    budgets: BudgetsByName | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET
    suspended: bool | UnsetType = UNSET


class NewProject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a project is made of."""

    name: Name
    limits: Limits = Limits()
    budgets: BudgetsByName = {}


class ProjectChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a project is to be otherwise."""

    limits: Limits | UnsetType = UNSET
    budgets: BudgetsByName | UnsetType = UNSET


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key is for; the key itself is made here."""

    name: Name
    project: str = ""
    role: Role = "user"
    models: ModelNames = []
    endpoints: EndpointNames = []
    tools: bool = True
    data_class: DataClass = ""
    region: RegionOrNone = ""
    expires: Moment | None = None
    limits: Limits = Limits()


class KeyChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a key is to be otherwise; its project stays."""

    role: Role | UnsetType = UNSET
    models: ModelNames | UnsetType = UNSET
    endpoints: EndpointNames | UnsetType = UNSET
    tools: bool | UnsetType = UNSET
    data_class: DataClass | UnsetType = UNSET
    region: RegionOrNone | UnsetType = UNSET
    expires: Moment | UnsetType | None = UNSET
    limits: Limits | UnsetType = UNSET


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how many seconds the secret before goes on being good beside the new one."""

    overlap_s: Overlap = 86_400.0


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    source: Source
    limits: Limits
    weight: float
    budgets: dict[str, Budget] = {}
    suspended: bool = False
    made: datetime | None = None
    made_by: str = ""


class ProjectView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a tenant."""

    tenant: str
    name: str
    source: Source
    limits: Limits
    budgets: dict[str, Budget] = {}
    made: datetime | None = None
    made_by: str = ""


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret: `begins` is how that begins, where it was made here.

    After a rotation the one that began with `earlier_begins` is good until `earlier_until`.
    """

    tenant: str
    name: str
    source: Source
    project: str
    role: str
    models: tuple[str, ...]
    endpoints: tuple[str, ...]
    tools: bool
    data_class: str
    region: str
    expires: datetime | None
    expired: bool
    limits: Limits
    begins: str = ""
    earlier_begins: str = ""
    earlier_until: datetime | None = None
    made: datetime | None = None
    made_by: str = ""


class MadeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was just made: `secret` is shown this once, nobody can read it again."""

    secret: str
    key: KeyView


def tenant_view(made: MadeTenant) -> TenantView:
    """A tenant of the API's."""
    return TenantView(
        name=made.name,
        source="api",
        limits=made.limits,
        budgets=made.budgets,
        weight=made.weight,
        suspended=made.suspended,
        made=moment_of(made.made_ns),
        made_by=made.made_by,
    )


def project_view(made: MadeProject) -> ProjectView:
    """A project of the API's."""
    return ProjectView(
        tenant=made.tenant,
        name=made.name,
        source="api",
        limits=made.limits,
        budgets=made.budgets,
        made=moment_of(made.made_ns),
        made_by=made.made_by,
    )


def key_view(secrets: list[Secret], now_ns: int) -> KeyView:
    """A key of the API's, by its secrets, the newest first."""
    newest, *earlier = secrets
    view = view_of(newest.principal, "api", now_ns)
    former = [one for one in earlier if one.principal.expires_ns > now_ns][:1]
    return msgspec.structs.replace(
        view,
        begins=newest.shown,
        earlier_begins=former[0].shown if former else "",
        earlier_until=moment_of(former[0].principal.expires_ns) if former else None,
        made=moment_of(newest.made_ns),
        made_by=newest.made_by,
    )


def view_of(principal: Principal, source: Source, now_ns: int) -> KeyView:
    """What a key is for."""
    return KeyView(
        tenant=principal.tenant,
        name=principal.key,
        source=source,
        project=principal.project,
        role="admin" if principal.admin else principal.role,
        models=principal.models,
        endpoints=principal.endpoints,
        tools=principal.tools,
        data_class=principal.data_class,
        region=principal.region,
        expires=moment_of(principal.expires_ns),
        expired=0 < principal.expires_ns <= now_ns,
        limits=principal.limits,
    )
