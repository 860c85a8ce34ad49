"""`[tenants.T]`: who uses this installation, in projects and with keys, and what each may do."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tiffin.config.fields import DigestOrNone, RegionOrNone, Weight
from tiffin.types.budgets import Budget
from tiffin.types.residency import DataClass
from tiffin.types.roles import Role
from tiffin.types.snapshot import Limits

EndpointName = Literal[
    "chat",
    "completions",
    "responses",
    "messages",
    "embeddings",
    "rerank",
    "transcriptions",
    "documents",
    "infer",
    "tokenize",
    "detokenize",
    "count_tokens",
]
"""What a key can be for, by the names that accounts have of it."""

Moment = Annotated[datetime, Meta(tz=True)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_NS = 253_402_300_799 * 10**9


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T.keys.K]`: exactly one of `key_env`, `key_file`, `key_command`, `key_sha256`.

    `admin = true` is `role = "admin"`.
    """

    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []
    key_sha256: DigestOrNone = ""
    admin: bool = False
    role: Role = "user"
    models: list[str] = []
    endpoints: list[EndpointName] = []
    tools: bool = True
    data_class: DataClass = ""
    region: RegionOrNone = ""
    expires: Moment | None = None
    limits: Limits = Limits()
    budgets: dict[str, Budget] = {}


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T.projects.P]`: a part of a tenant, with keys, limits and budgets of its own."""

    keys: dict[str, Key] = {}
    limits: Limits = Limits()
    budgets: dict[str, Budget] = {}


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T]`: who uses this installation, and how much at most, all keys together.

    Where a model has more to do than it can, tenants share it by their weights. A key's name is
    its own in the whole tenant, whatever its project. Data of any of its keys are of `data_class`
    at least, and stay in `region`.
    """

    keys: dict[str, Key] = {}
    projects: dict[str, Project] = {}
    limits: Limits = Limits()
    budgets: dict[str, Budget] = {}
    weight: Weight = 1.0
    data_class: DataClass = ""
    region: RegionOrNone = ""

    def every_key(self) -> Iterator[tuple[str, str, Key]]:
        """Project, name and settings of every key; the project is empty where it has none."""
        for name, key in self.keys.items():
            yield "", name, key
        for project, own in self.projects.items():
            for name, key in own.keys.items():
                yield project, name, key


def place_of_key(tenant: str, project: str, name: str) -> str:
    """Where a key stands in the file, below its tenant's own place."""
    return f"{tenant}.projects.{project}.keys.{name}" if project else f"{tenant}.keys.{name}"


def nanoseconds(moment: datetime | None) -> int:
    """A moment as UTC nanoseconds, 0 where there is none: no moment is that.

    One that isn't in the years from 1970 to 9999 of UTC is the first or the last of these.
    """
    if moment is None:
        return 0
    passed = moment - _EPOCH
    found = ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000
    return min(max(1, found), _LATEST_NS)


def moment_of(nanoseconds: int) -> datetime | None:
    """The moment of UTC nanoseconds, none for 0."""
    if not nanoseconds:
        return None
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
