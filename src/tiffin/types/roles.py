"""What a key may do on the admin side: a role, and what follows from it."""

from typing import Literal, get_args

Role = Literal["user", "viewer", "tenant-admin", "auditor", "admin"]
"""`user`: nothing there. `viewer`: reads its own tenant. `tenant-admin`: changes it too, keys and
projects. `auditor`: reads everything. `admin`: everything."""

ROLES: tuple[Role, ...] = get_args(Role)

_SEES_ALL = frozenset({"auditor", "admin"})
_CHANGES_OWN = frozenset({"tenant-admin", "admin"})
_MAY_GIVE: dict[str, tuple[str, ...]] = {
    "tenant-admin": ("user", "viewer", "tenant-admin"),
    "admin": ROLES,
}


def enters(role: str) -> bool:
    """Whether it opens `/admin` at all."""
    return role != "user"


def sees_all(role: str) -> bool:
    """Whether it reads what belongs to every tenant, and to none."""
    return role in _SEES_ALL


def changes_all(role: str) -> bool:
    """Whether it changes anything."""
    return role == "admin"


def changes_own(role: str) -> bool:
    """Whether it changes the projects and keys of its own tenant."""
    return role in _CHANGES_OWN


def may_give(role: str) -> tuple[str, ...]:
    """The roles that it may give to keys: never more than its own."""
    return _MAY_GIVE.get(role, ())
