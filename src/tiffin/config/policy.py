"""The limits that a configuration comes to, in words: for whom, how much of what, in which time."""

from collections.abc import Iterator

from tiffin.config.models import Model, OnnxModel, PythonModel, RemoteModel
from tiffin.config.schema import Config, Route
from tiffin.config.shape import Problem
from tiffin.config.tenants import place_of_key
from tiffin.types.budgets import with_budgets
from tiffin.types.caps import said
from tiffin.types.limits import Limits, Rule, rules_of

TOKENS = ("input_tokens", "output_tokens", "tokens")


def effective(config: Config) -> Iterator[str]:
    """Every limit that is enforced, a line each, by the section that it is for."""
    server = config.server
    yield f"server: {server.max_in_flight} requests in work at once"
    yield f"server: {server.max_connections} connections"
    yield f"server: {server.max_body_bytes} bytes in a request's body"
    currency = config.prices.currency
    for where, limits in _sections(config):
        yield from (f"{where}: {in_words(rule, currency)}" for rule in rules_of(limits))
        for of, most in said(limits.per_request).items():
            yield f"{where}: at most {most} {of.replace('_', ' ')} in each request"
    for name, route in config.routes.items():
        yield f"routes.{name}: {tries_in_words(route)}"


def tries_in_words(route: Route) -> str:
    """How many calls a request by a route's name may cost, and which come when."""
    told = f"at most {route.attempts} calls for each request, to {', then '.join(route.models)}"
    if route.hedge.after_ms:
        told += (
            f"; a second beside the first after {route.hedge.after_ms:g} ms, for no more than"
            f" {route.hedge.most * 100:g} % of requests"
        )
    return told


def in_words(rule: Rule, currency: str = "") -> str:
    """`600 requests per minute, 10 at once`, and whom and what it counts."""
    if rule.of == "concurrency":
        what = f"{rule.amount:g} requests at the same time"
    elif rule.of == "money":
        what = f"{rule.amount:.12g} {currency} per {rule.per}"
    else:
        what = f"{rule.amount:.15g} {rule.of.replace('_', ' ')} per {rule.per}"
    if rule.burst:
        what += f", {rule.burst} at once"
    if rule.each:
        what += f", for each {rule.each.replace('_', ' ')}"
    if rule.models:
        what += f", to {', '.join(rule.models)}"
    return f"{what} (shadow: it refuses nothing)" if rule.shadow else what


def broken_policy(config: Config) -> Iterator[Problem]:
    """Limits that could never bite: of tokens, where nothing that they count has any."""
    for where, limits in _sections(config):
        for number, rule in enumerate(limits.rules):
            named = [one for name in rule.models for one in _models(config, name)]
            if rule.of in TOKENS and named and not any(_has_tokens(one) for one in named):
                yield Problem(
                    f"{where}.limits.rules[{number}].of",
                    f'"{rule.of}" can\'t be counted: {", ".join(rule.models)} has no tokens',
                )


def _sections(config: Config) -> Iterator[tuple[str, Limits]]:
    for name, tenant in config.tenants.items():
        where = f"tenants.{name}"
        yield where, with_budgets(tenant.limits, tenant.budgets)
        for project_name, project in tenant.projects.items():
            limits = with_budgets(project.limits, project.budgets)
            yield f"{where}.projects.{project_name}", limits
        for project_name, key_name, key in tenant.every_key():
            place = place_of_key(where, project_name, key_name)
            yield place, with_budgets(key.limits, key.budgets)


def _models(config: Config, name: str) -> Iterator[Model]:
    route = config.routes.get(name)
    for one in route.models if route else (name,):
        if one in config.models:
            yield config.models[one]


def _has_tokens(model: Model) -> bool:
    match model:
        case OnnxModel():
            return model.task != "tensors"
        case RemoteModel():
            return model.protocol != "oip"
        case PythonModel():
            return False
    return True
