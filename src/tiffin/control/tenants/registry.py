"""All tenants, projects and secrets that were made through the API, as the keyring's lines say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiffin.types.keyring import Line, MadeProject, MadeTenant, Secret

ProjectName = tuple[str, str]
KeyName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Made:
    """What a snapshot has of it: tenants and projects, without their keys."""

    tenants: Mapping[str, MadeTenant] = field(default_factory=dict)
    projects: Mapping[ProjectName, MadeProject] = field(default_factory=dict)


@dataclass(slots=True)
class Registry:
    """State of control: it changes by lines alone, in the order in which they were written.

    `keys` has the digests of a key's secrets, the newest first, by tenant and name.
    """

    tenants: dict[str, MadeTenant] = field(default_factory=dict)
    projects: dict[ProjectName, MadeProject] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)
    keys: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def apply(self, line: Line) -> None:
        """Make it so."""
        if line.tenant is not None:
            self.tenants[line.tenant.name] = line.tenant
        elif line.project is not None and line.do == "drop_project":
            self.projects.pop((line.project.tenant, line.project.name), None)
        elif line.project is not None:
            self.projects[line.project.tenant, line.project.name] = line.project
        elif line.secret is not None:
            self._put(line.secret)
        elif line.digest:
            self._drop(line.digest)

    def made(self) -> Made:
        """What a snapshot has of it now; later changes don't show."""
        return Made(dict(self.tenants), dict(self.projects))

    def lines(self) -> Iterator[Line]:
        """All that there is, as the lines that say it."""
        for tenant in list(self.tenants.values()):
            yield Line(do="tenant", tenant=tenant)
        for project in list(self.projects.values()):
            yield Line(do="project", project=project)
        for secret in list(self.secrets.values()):
            yield Line(do="secret", secret=secret)

    def __len__(self) -> int:
        return len(self.tenants) + len(self.projects) + len(self.secrets)

    def of_key(self, tenant: str, name: str) -> list[Secret]:
        """The secrets of a key, the newest first; none where there is no such key."""
        return [self.secrets[digest] for digest in self.keys.get(tenant, {}).get(name, ())]

    def of_tenant(self, tenant: str) -> Iterator[Secret]:
        """The secrets of all of a tenant's keys."""
        for digests in self.keys.get(tenant, {}).values():
            for digest in digests:
                yield self.secrets[digest]

    def prune(self, before_ns: int) -> None:
        """Forget secrets that expired before a moment, and those of tenants that were closed."""
        gone = [
            secret.digest
            for secret in self.secrets.values()
            if 0 < secret.principal.expires_ns < before_ns
            or self.is_closed(secret.principal.tenant)
        ]
        for digest in gone:
            self._drop(digest)

    def is_closed(self, tenant: str) -> bool:
        """Whether a tenant of this name was closed."""
        made = self.tenants.get(tenant)
        return made is not None and made.closed

    def _put(self, secret: Secret) -> None:
        known = secret.digest in self.secrets
        self.secrets[secret.digest] = secret
        if not known:
            names = self.keys.setdefault(secret.principal.tenant, {})
            name = secret.principal.key
            others = names.get(name, ())
            names[name] = _newest_first((secret.digest, *others), self.secrets)

    def _drop(self, digest: str) -> None:
        secret = self.secrets.pop(digest, None)
        if secret is None:
            return
        names = self.keys[secret.principal.tenant]
        left = tuple(one for one in names[secret.principal.key] if one != digest)
        if left:
            names[secret.principal.key] = left
            return
        del names[secret.principal.key]
        if not names:
            del self.keys[secret.principal.tenant]


def _newest_first(digests: tuple[str, ...], secrets: Mapping[str, Secret]) -> tuple[str, ...]:
    if len(digests) == 1:
        return digests
    return tuple(sorted(digests, key=lambda one: secrets[one].made_ns, reverse=True))
