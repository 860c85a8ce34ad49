"""Nobody gives a key more than their own has: roles, models, endpoints, tools, time, and data."""

from tiffin.control.tenants.caller import Caller
from tiffin.errors import PermissionDenied
from tiffin.types import roles
from tiffin.types.snapshot import Principal


def check_grant(caller: Caller, wanted: Principal, own: Principal | None) -> None:
    """Raise `PermissionDenied` where a key would be for more than its maker's own.

    Who has everything gives anything; `own` is what the caller's key is for, where it has one.
    """
    if wanted.role not in roles.may_give(caller.role):
        raise PermissionDenied(
            f"{caller.name} has the role '{caller.role}'"
            f" and may not make or change keys with the role '{wanted.role}'",
            param="role",
        )
    if own is None or roles.changes_all(caller.role):
        return
    for field, within in (
        ("models", _part(wanted.models, own.models)),
        ("endpoints", _part(wanted.endpoints, own.endpoints)),
        ("tools", own.tools or not wanted.tools),
        ("data_class", wanted.data_class == own.data_class or not own.data_class),
        ("region", wanted.region == own.region or not own.region),
        ("expires", _sooner(wanted.expires_ns, own.expires_ns)),
    ):
        if not within:
            raise PermissionDenied(
                f"'{field}' would be more than {caller.name} has itself", param=field
            )


def _part(wanted: tuple[str, ...], own: tuple[str, ...]) -> bool:
    return not own or (bool(wanted) and set(wanted) <= set(own))


def _sooner(wanted_ns: int, own_ns: int) -> bool:
    return not own_ns or 0 < wanted_ns <= own_ns
