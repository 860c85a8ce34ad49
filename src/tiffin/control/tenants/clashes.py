"""What a configuration may not say, since the API has made it already: one thing, one owner."""

from tiffin.config.schema import Config
from tiffin.config.tenants import place_of_key
from tiffin.control.tenants.published import Keys
from tiffin.control.tenants.registry import Registry
from tiffin.errors import ConfigInvalid


def check_clashes(config: Config, keys: Keys, registry: Registry) -> None:
    """Raise `ConfigInvalid` at the first tenant, project or key that has two owners."""
    for name, tenant in config.tenants.items():
        where = f"tenants.{name}"
        made = registry.tenants.get(name)
        if made is not None:
            how = "was closed, and its accounts have the name" if made.closed else "exists"
            raise ConfigInvalid(
                f"a tenant of this name that was made through the admin API {how};"
                " use another name",
                where=where,
            )
        for project in tenant.projects:
            if (name, project) in registry.projects:
                raise ConfigInvalid(
                    "a project of this name was made through the admin API: delete that one"
                    f" (tiffin projects delete {name} {project}), or use another name",
                    where=f"{where}.projects.{project}",
                )
        for project, key, _ in tenant.every_key():
            if registry.keys.get(name, {}).get(key):
                raise ConfigInvalid(
                    "a key of this name was made through the admin API: revoke that one"
                    f" (tiffin keys revoke {name} {key}), or use another name",
                    where=place_of_key(where, project, key),
                )
    for digest, (tenant_name, key) in keys.items():
        secret = registry.secrets.get(digest)
        if secret is not None:
            other = secret.principal
            raise ConfigInvalid(
                f"this is the same key as {other.tenant}/{other.key},"
                " which was made through the admin API",
                where=f"tenants.{tenant_name}.keys.{key}",
            )
