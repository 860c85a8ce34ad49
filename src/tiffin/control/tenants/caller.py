"""Who asks control for something, and what follows from that."""

from dataclasses import dataclass

from tiffin.errors import NotFound, PermissionDenied
from tiffin.types import roles


@dataclass(frozen=True, slots=True)
class Caller:
    """A key with a role; without a tenant it is whoever may use control's own socket."""

    tenant: str = ""
    key: str = ""
    role: str = "admin"

    @property
    def name(self) -> str:
        """As the audit log has it."""
        return f"{self.tenant}/{self.key}" if self.tenant else "this machine"

    @property
    def signature(self) -> tuple[str, str]:
        """Name and role."""
        return self.name, self.role

    def sees(self, tenant: str) -> bool:
        """Whether it may know that there is such a tenant."""
        return roles.sees_all(self.role) or (roles.enters(self.role) and tenant == self.tenant)

    def see(self, tenant: str) -> None:
        """Raise `NotFound` where it mayn't know whether there is such a tenant."""
        if not self.sees(tenant):
            raise no_tenant(tenant)

    def see_all(self) -> None:
        """Raise `PermissionDenied` where it doesn't read what is everybody's."""
        if not roles.sees_all(self.role):
            self._refuse("see all of this server", "'auditor' or 'admin'")

    def change(self, tenant: str) -> None:
        """Raise where it mayn't change a tenant's keys and projects; another's aren't there."""
        self.see(tenant)
        own = tenant == self.tenant and roles.changes_own(self.role)
        if not (own or roles.changes_all(self.role)):
            self._refuse(f"change anything of '{tenant}'", "'tenant-admin' or 'admin'")

    def change_all(self) -> None:
        """Raise `PermissionDenied` where it mayn't change everything."""
        if not roles.changes_all(self.role):
            self._refuse("do that", "'admin'")

    def _refuse(self, what: str, wanted: str) -> None:
        raise PermissionDenied(
            f"{self.name} has the role '{self.role}' and may not {what}; that takes {wanted}"
        )


def no_tenant(name: str) -> NotFound:
    """What is said of a tenant that isn't there, or not for the caller."""
    return NotFound(f"there is no tenant '{name[:80]}'", param="tenant")
