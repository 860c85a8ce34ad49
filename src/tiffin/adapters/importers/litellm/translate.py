"""A LiteLLM proxy's configuration as one of ours, and a report of what became of each setting."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, Final

from tiffin.adapters.importers.litellm.keys import TENANT, VirtualKeys, budget_of, master_key
from tiffin.adapters.importers.litellm.models import Deployment, deployment_of
from tiffin.adapters.importers.litellm.names import Names
from tiffin.adapters.importers.litellm.reading import Section
from tiffin.adapters.importers.litellm.report import Report
from tiffin.adapters.importers.litellm.routes import (
    MOST_TRIES,
    Reliability,
    Routes,
    groups_of,
    reliability_of,
    wants_route,
)
from tiffin.adapters.importers.litellm.secret_names import Secrets
from tiffin.errors import ConfigInvalid

MOST_MODELS: Final = 1_000
USUAL_CACHE_S: Final = 600.0
CURRENCY: Final = "USD"

_ELSEWHERE = "what happens to requests is in the accounts, in /metrics and in statements of costs"
_DATABASE = "no database is needed: keys and accounts are in the data folder"
_VIRTUAL = "virtual keys are in LiteLLM's database: list them, and give the listing as --keys"
LEFT_OF_ALL: Final[Mapping[str, str]] = {
    "include": "other files: import each, or join them first",
    "guardrails": "guards are of another kind here: [guards.G]",
    "callback_settings": _ELSEWHERE,
    "mcp_servers": "there are no MCP servers here",
}
LEFT_OF_SETTINGS: Final[Mapping[str, str]] = {
    "success_callback": _ELSEWHERE,
    "failure_callback": _ELSEWHERE,
    "callbacks": _ELSEWHERE,
    "service_callbacks": _ELSEWHERE,
    "drop_params": "what a model can't do is refused by name, never left out in silence",
    "set_verbose": "[telemetry] log_level says how much is logged",
    "json_logs": "logs are JSON",
    "turn_off_message_logging": "no message is logged here",
    "redact_user_api_key_info": "no key is logged here",
    "default_key_generate_params": "keys are made with what is said of each: tiffin keys create",
    "upperbound_key_generate_params": "limits of the tenant hold for all its keys",
    "default_internal_user_params": "there are no users with keys of their own: make projects",
    "default_team_settings": "teams are projects here, with limits and budgets of their own",
    "modify_params": "requests aren't changed",
    "ssl_verify": "certificates of upstreams are verified, always",
}
LEFT_OF_ROUTER: Final[Mapping[str, str]] = {
    "routing_strategy": "targets are tried in their order; one that fails is passed over",
    "routing_strategy_args": "targets are tried in their order",
    "allowed_fails": "what fails again and again is left alone by measures of its own",
    "allowed_fails_policy": "what fails again and again is left alone by measures of its own",
    "cooldown_time": "what fails again and again is left alone by measures of its own",
    "retry_policy": "one table says what may be tried again: what can't get better isn't",
    "retry_after": "the upstream's own Retry-After is kept to, where the request's time allows it",
    "enable_pre_call_checks": "what can't fit is refused before it queues",
    **dict.fromkeys(
        ("redis_host", "redis_port", "redis_password", "redis_url"),
        "limits and caches are the gateway's own here",
    ),
}
LEFT_OF_GENERAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("database_url", "store_model_in_db", "database_connection_pool_limit"), _DATABASE
    ),
    "alerting": "[alerts.A] tells a webhook of budgets, failures and anomalies",
    "alerting_threshold": "[models.NAME.slo] says how long an answer may take",
    "max_parallel_requests": "limits.concurrency of a tenant, project or key says that",
    "enforce_user_param": "limits with each = end_user hold where a request names one",
    "custom_auth": "keys are the only credential here",
    "enable_jwt_auth": "keys are the only credential here",
    "background_health_checks": "a paid endpoint isn't asked only to see whether it answers",
    "store_prompts_in_spend_logs": "no prompt is kept here",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A tree of `tiffin.toml`, and what became of everything."""

    tree: dict[str, Any]
    report: Report


def translate(tree: Any, keys: Any, environ: Mapping[str, str], now: datetime) -> Translated:
    """Our configuration for a LiteLLM one; raises `ConfigInvalid` where it has no models.

    `keys` is a listing of virtual keys or None. No secret of either is in the tree or the report.
    """
    report = Report()
    top = Section(tree, "", report)
    secrets = Secrets(report, environ)
    settings, router = top.section("litellm_settings"), top.section("router_settings")
    general = top.section("general_settings")
    says = reliability_of(settings, router)
    deployments, names = _deployments(top, says, secrets)
    routes = Routes(groups_of(deployments), says, names, report)
    tenant = {"keys": {"master": master_key(general, secrets)}}
    tenant |= _bounds(settings, deployments, routes)
    _virtual(tenant, keys, routes, now, priced=_is_priced(deployments))
    server = _server(settings, general)
    _cache(settings, deployments, routes)
    for name in top.section("environment_variables").names():
        secrets.was_set(name, f"environment_variables.{name}")
    settings.leave(LEFT_OF_SETTINGS)
    router.leave(LEFT_OF_ROUTER)
    general.leave(LEFT_OF_GENERAL)
    top.leave(LEFT_OF_ALL)
    if not deployments:
        reasons = "; ".join(f"{note.where}: {note.text}" for note in report.notes[:5])
        raise ConfigInvalid(f"none of its models can be mapped: {reasons or 'there is none'}")
    found = {
        "version": 1,
        "server": server,
        "tenants": {TENANT: tenant},
        "models": {one.name: one.settings for one in deployments},
        "routes": routes.made,
        "prices": _prices(deployments, now),
    }
    return Translated({name: part for name, part in found.items() if part}, report)


def _deployments(
    top: Section, says: Reliability, secrets: Secrets
) -> tuple[list[Deployment], dict[str, str]]:
    """All that map, and the name here of everything that clients ask for there."""
    entries = top.entries("model_list")
    if len(entries) > MOST_MODELS:
        raise ConfigInvalid(f"it has {len(entries)} models, more than {MOST_MODELS}")
    count = Counter(entry.text("model_name") for entry in entries)
    names = Names()
    public = {name: names.give(name) for name in (*count, *says.aliases)}
    found, seen = [], Counter[str]()
    for entry in entries:
        group = entry.text("model_name")
        seen[group] += 1
        name = public[group]
        if wants_route(group, count[group], says, count):
            name = names.give(f"{name}-{seen[group]}")
        one = deployment_of(entry, secrets, name)
        if one is not None:
            found.append(one)
            tries = min(MOST_TRIES, int(one.retries or says.retries) + 1)
            if tries > 1:
                one.settings["attempts"] = tries
            again = f", tried {tries} times" if tries > 1 else ""
            top.report.mapped(one.where, f"'{group}' at [models.{one.name}]{again}")
    return found, public


def _bounds(
    settings: Section, deployments: list[Deployment], routes: Routes
) -> dict[str, dict[str, Any]]:
    """The tenant's limits and budgets."""
    rules = list(_rules(groups_of(deployments), routes, settings.report))
    budget = budget_of(settings, priced=_is_priced(deployments))
    bounds: dict[str, dict[str, Any]] = {"limits": {"rules": rules}} if rules else {}
    return bounds | ({"budgets": {"imported": budget}} if budget else {})


def _rules(
    groups: Mapping[str, list[Deployment]], routes: Routes, report: Report
) -> Iterator[dict[str, Any]]:
    """Rates of groups all of whose deployments have one: as much as all of them together."""
    for group, some in groups.items():
        models = list(dict.fromkeys([*routes.called[group], *(one.name for one in some)]))
        for of, each in (
            ("requests", [one.requests for one in some]),
            ("tokens", [one.tokens for one in some]),
        ):
            amount = ceil(sum(each))
            if all(each):
                yield {"of": of, "per": "minute", "amount": amount, "models": models}
                report.different(
                    group, f"{amount} {of} a minute of all its deployments; over it is 429"
                )
            elif amount:
                report.dropped(group, f"its {of} a minute: one of its deployments has no bound")


def _virtual(
    tenant: dict[str, dict[str, Any]], keys: Any, routes: Routes, now: datetime, *, priced: bool
) -> None:
    """Add the virtual keys of a listing to the tenant."""
    report = routes.report
    if keys is None:
        report.to_do("keys", _VIRTUAL)
        return
    virtual = VirtualKeys(routes.public, report, priced=priced)
    virtual.add(keys, now)
    tenant["keys"] |= virtual.keys
    if virtual.projects:
        tenant["projects"] = virtual.projects
    count = len(virtual.keys) + sum(len(one["keys"]) for one in virtual.projects.values())
    report.mapped("keys", f"{count} by their sha256, so they stay good; teams are projects")


def _is_priced(deployments: list[Deployment]) -> bool:
    """Whether money can be counted, whatever is asked."""
    return bool(deployments) and all(one.price for one in deployments)


def _server(settings: Section, general: Section) -> dict[str, Any]:
    server: dict[str, Any] = {}
    if timeout := settings.seconds("request_timeout"):
        server["request_timeout_s"] = timeout
        settings.report.different(
            settings.at("request_timeout"), "it is the whole request's time, all tries together"
        )
    if places := int(general.number("global_max_parallel_requests")):
        server["max_in_flight"] = places
    if size := general.number("max_request_size_mb"):
        server["max_body_bytes"] = int(size * 1_000_000)
    return server


def _cache(settings: Section, deployments: list[Deployment], routes: Routes) -> None:
    """Caching of all models, where that is switched on for all requests."""
    params, report = settings.section("cache_params"), settings.report
    if not settings.flag("cache"):
        return
    kind, where = params.text("type") or "local", settings.at("cache")
    if params.text("mode") == "default_off":
        report.dropped(
            where, "requests can't ask to be cached: the section cache of a model says it"
        )
        return
    lasts = params.number("ttl") or USUAL_CACHE_S
    for one in deployments:
        one.settings["cache"] = {"ttl_s": lasts}
    for route in routes.made.values():
        route["cache"] = {"ttl_s": lasts}
    exact = "; by meaning it isn't" if "semantic" in kind else ""
    report.different(
        where,
        f"cache.ttl_s = {lasts:g} of every model: the same request of the same tenant, in the"
        f" data folder{exact}",
    )
    if list(params.items("supported_call_types")):
        report.different(params.at("supported_call_types"), "every kind of request is cached")
    for name in params.names():
        params.raw(name)


def _prices(deployments: list[Deployment], now: datetime) -> dict[str, Any]:
    models = [
        {"model": one.name, **one.price, "since": f"{now:%Y-%m-%d}"}
        for one in deployments
        if one.price
    ]
    return {"currency": CURRENCY, "models": models} if models else {}
