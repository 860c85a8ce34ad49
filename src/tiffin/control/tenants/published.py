"""What a snapshot says of tenants and keys: those of the configuration, and tenants of the API."""

from collections.abc import Mapping

from tiffin.config.models import RemoteModel
from tiffin.config.schema import Config
from tiffin.config.tenants import Key, nanoseconds
from tiffin.control.catalogue.revision import peers_of
from tiffin.control.tenants.registry import Made
from tiffin.types.budgets import with_budgets
from tiffin.types.residency import SOMEWHERE, lowest
from tiffin.types.snapshot import Limits, Principal, Terms

Keys = Mapping[str, tuple[str, str]]
"""Tenant and name of the configuration's keys, by their hashes."""


def principals(config: Config, keys: Keys) -> dict[str, Principal]:
    """Who the configuration's keys belong to, by their hashes."""
    found = {
        (tenant, name): principal(tenant, project, name, key)
        for tenant, section in config.tenants.items()
        for project, name, key in section.every_key()
    }
    return {digest: found[owner] for digest, owner in keys.items()}


def principal(tenant: str, project: str, name: str, key: Key) -> Principal:
    """What a key of the configuration is for."""
    role = "admin" if key.admin else key.role
    return Principal(
        tenant=tenant,
        key=name,
        project=project,
        role=role,
        admin=role == "admin",
        models=tuple(key.models),
        endpoints=tuple(key.endpoints),
        tools=key.tools,
        data_class=key.data_class,
        region=key.region,
        expires_ns=nanoseconds(key.expires),
        limits=with_budgets(key.limits, key.budgets),
    )


def tenant_limits(config: Config, made: Made) -> dict[str, Limits]:
    """The limits of every tenant."""
    found = {
        name: with_budgets(one.limits, one.budgets)
        for name, one in made.tenants.items()
        if not one.closed
    }
    return found | {
        name: with_budgets(tenant.limits, tenant.budgets) for name, tenant in config.tenants.items()
    }


def terms(config: Config, made: Made) -> dict[str, Terms]:
    """Every tenant that there is, with its projects."""
    weights = {
        name: (one.weight, one.suspended) for name, one in made.tenants.items() if not one.closed
    }
    weights |= {name: (tenant.weight, False) for name, tenant in config.tenants.items()}
    projects: dict[str, dict[str, Limits]] = {}
    for (tenant, name), project in made.projects.items():
        limits = with_budgets(project.limits, project.budgets)
        projects.setdefault(tenant, {})[name] = limits
    for tenant, section in config.tenants.items():
        for name, configured in section.projects.items():
            limits = with_budgets(configured.limits, configured.budgets)
            projects.setdefault(tenant, {})[name] = limits
    return {
        name: Terms(
            weight=weight,
            suspended=suspended,
            projects=projects.get(name, {}),
            data_class=config.tenants[name].data_class if name in config.tenants else "",
            region=config.tenants[name].region if name in config.tenants else "",
        )
        for name, (weight, suspended) in weights.items()
    }


def residency(name: str, config: Config) -> tuple[str, str]:
    """Where a model computes, and data of which class it may get.

    What runs here may get any. A pipeline is where all its models are, and may get what all may.
    """
    model = config.models[name]
    if isinstance(model, RemoteModel):
        return model.located, model.data_class
    here = (config.server.region, "restricted")
    places = [here, *(residency(peer, config) for peer in peers_of(model))]
    regions = {region for region, _ in places}
    return (
        regions.pop() if len(regions) == 1 else SOMEWHERE,
        lowest([cleared for _, cleared in places]),
    )
