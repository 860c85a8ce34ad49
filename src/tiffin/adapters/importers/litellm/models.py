"""Deployments of `model_list` as sections of remote models, and what they cost."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tiffin.adapters.importers.litellm.clouds import PLACE, cloud_settings
from tiffin.adapters.importers.litellm.providers import FOREIGN, PROVIDERS, WITHOUT_SLASH, Provider
from tiffin.adapters.importers.litellm.reading import Section
from tiffin.adapters.importers.litellm.secret_names import Secrets
from tiffin.config.remote import RemoteModel
from tiffin.config.shape import kind_of_models, misfits
from tiffin.config.upstreams import broken_remote
from tiffin.types.profiles import PROFILES, profile_of

MILLION: Final = 1_000_000
MODES: Final = ("", "chat", "completion", "embedding", "rerank", "audio_transcription", "responses")

_OTHERS: Final = re.compile("claude|anthropic|imagen|veo|text-embedding|multimodalembedding")
"""What Vertex serves, and not at its endpoint for OpenAI's clients."""

_FIRST_OF_ALL = "clients say it themselves in each request"
LEFT: Final[Mapping[str, str]] = {
    "weight": "targets are tried in their order; there are no weights",
    "tags": "routing by tags isn't there; make a route for each",
    "drop_params": "what a model can't do is refused by name, never left out in silence",
    "additional_drop_params": "what a model can't do is refused by name",
    "max_budget": "budgets are of tenants, projects and keys, for models: [tenants.T.budgets.B]",
    "budget_duration": "budgets are of tenants, projects and keys",
    "extra_headers": "headers of your own aren't sent to upstreams",
    "headers": "headers of your own aren't sent to upstreams",
    "organization": "it is sent to no upstream: a key of that organisation's project does the same",
    "mock_response": 'runtime = "rules" says what you tell it',
    "litellm_credential_name": "credentials stand at each model: key_env, key_file or key_command",
    "temperature": _FIRST_OF_ALL,
    "top_p": _FIRST_OF_ALL,
    "seed": _FIRST_OF_ALL,
    "max_tokens": "limits.per_request.output_tokens of a tenant or key caps answers",
    "guardrails": "guards are of models and routes: [guards.G]",
    "cooldown_time": "targets that fail are left alone by measures of their own",
}


@dataclass(slots=True)
class Deployment:
    """One entry that maps: its section's `name` and `settings`, what it is asked for as, prices.

    `requests` and `tokens` are so many a minute, 0 where nothing is said.
    """

    group: str
    name: str
    settings: dict[str, Any]
    where: str
    order: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    retries: float = 0.0
    price: dict[str, str] = field(default_factory=dict)


class Spoken(NamedTuple):
    """Who answers for a model, and what it is called there."""

    provider: Provider
    model: str
    prefix: str


def deployment_of(entry: Section, secrets: Secrets, name: str) -> Deployment | None:
    """An entry of `model_list` under a name; None, and reported, where it can't be one."""
    report = entry.report
    group = entry.text("model_name")
    params, info = entry.section("litellm_params"), entry.section("model_info")
    entry.leave({})
    whole = params.text("model")
    if not group or not whole:
        report.dropped(entry.where, "expected a model_name and litellm_params.model")
        return None
    if "*" in group or "*" in whole:
        report.dropped(
            entry.where, "names with * aren't there: each model has a section of its own"
        )
        return None
    found = _spoken(params, whole)
    mode = info.text("mode")
    if mode not in MODES:
        report.dropped(info.at("mode"), f"'{group}' isn't mapped: no endpoint here does {mode}")
        return None
    if isinstance(found, str):
        report.dropped(params.at("model"), f"'{group}' isn't mapped: {found}")
        return None
    made = Deployment(group, name, {"runtime": "remote"}, entry.where)
    _place(made, params, found, secrets)
    _bounds(made, params)
    _price(made, params, info)
    _fit(made, params)
    params.leave(LEFT)
    return made


def _spoken(params: Section, whole: str) -> Spoken | str:
    """Who answers for a model, or why nobody here can ask."""
    first = whole.partition("/")[0] if "/" in whole else WITHOUT_SLASH
    prefix = params.text("custom_llm_provider") or first
    if prefix == "vertex_ai" and (maker := _OTHERS.match(whole.removeprefix("vertex_ai/"))):
        return f"models of {maker[0]} aren't asked by OpenAI's protocol there"
    provider = PROVIDERS.get(prefix)
    if provider is None:
        known = prefix in FOREIGN
        return (
            f"{prefix} isn't spoken here" if known else f"there is no provider '{prefix}' here"
        ) + "; a server that speaks OpenAI's protocol before it would do"
    if provider.profile and provider.profile not in PROFILES:
        return f"{prefix} isn't spoken here yet"
    return Spoken(provider, whole.removeprefix(f"{prefix}/"), prefix)


def _place(made: Deployment, params: Section, spoken: Spoken, secrets: Secrets) -> None:
    """Address, profile, the model's name there, and the key."""
    settings, report = made.settings, params.report
    provider, profile = spoken.provider, spoken.provider.profile
    own = params.text("api_base") or params.text("base_url")
    if own.rstrip("/") == profile_of(profile).url:
        own = ""
    if own and profile == "openai":
        profile = ""  # another server that speaks as OpenAI does, or nearly
    if profile:
        settings["profile"] = profile
    _url(made, params, provider, secrets, own)
    settings["model"] = spoken.model
    version = params.text("api_version")
    if version and profile_of(profile).version:
        settings["api_version"] = version
    elif version:
        report.dropped(params.at("api_version"), "its server has no versions here")
    if profile_of(profile).signs:
        settings |= cloud_settings(made.name, settings, params, secrets)
        return
    key = secrets.variable(params.text("api_key"), params.at("api_key"), f"{made.name}_API_KEY")
    if not key and provider.variable and not (own and spoken.prefix == "openai"):
        key = provider.variable
    if key:
        settings["key_env"] = key


def _url(made: Deployment, params: Section, provider: Provider, secrets: Secrets, own: str) -> None:
    """Its address: its `own`, or its provider's; a place for one where it has to have one."""
    profile = profile_of(made.settings.get("profile", ""))
    field = "api_base" if params.raw("api_base") else "base_url"
    address = _address(secrets.plain(own, params.at(field)), provider) if own else provider.url
    needed = not (provider.url or profile.url or profile.signs)
    if not address and (own or needed):
        address = PLACE
        params.report.to_do(params.where, f"give [models.{made.name}] its address as url")
    if address:
        made.settings["url"] = address


def _fit(made: Deployment, params: Section) -> None:
    """Leave out what couldn't stand in a section here, and say so."""
    settings, report = made.settings, params.report
    for problem in list(misfits(kind_of_models(), settings)):
        settings.pop(problem.where, None)
        report.dropped(params.where, f"what would be {problem.where}: it can't stand there")
    for problem in broken_remote(msgspec.convert(settings, RemoteModel), "m"):
        if problem.where == "m.url":
            settings["url"] = PLACE
            report.to_do(params.where, f"give [models.{made.name}] its address as url")


def _address(own: str, provider: Provider) -> str:
    """An address without what may not stand in one, as ours end; empty where it is none."""
    try:
        parts = urlsplit(own.rstrip("/"))
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    if parts.username or parts.password or parts.query or parts.fragment:
        return ""
    path = parts.path.removesuffix("/chat/completions")
    end = provider.below if provider.below and not path.endswith(provider.below) else ""
    return f"{parts.scheme}://{parts.netloc}{path}{end}"


def _bounds(made: Deployment, params: Section) -> None:
    """Times, places and rates."""
    settings = made.settings
    made.order = params.number("order")
    made.requests, made.tokens = params.number("rpm"), params.number("tpm")
    if total := params.seconds("timeout"):
        settings["total_timeout_s"] = total
    if first := params.seconds("stream_timeout"):
        settings["first_byte_timeout_s"] = first
        params.report.different(
            params.at("stream_timeout"),
            f"first_byte_timeout_s = {first:g}, for whole answers too, which come when they are"
            " made; what comes later may be between_bytes_timeout_s apart",
        )
    made.retries = params.number("max_retries") or params.number("num_retries")
    parallel = int(params.number("max_parallel_requests"))
    if parallel:
        settings["max_concurrency"] = parallel


def _price(made: Deployment, params: Section, info: Section) -> None:
    """Prices for a million tokens, where some are said."""
    for ours, theirs in (
        ("input", "input_cost_per_token"),
        ("output", "output_cost_per_token"),
        ("cached", "cache_read_input_token_cost"),
    ):
        for section in (params, info):
            told = section.raw(theirs)
            if told is not None and ours not in made.price:
                amount = _amount(told)
                if amount:
                    made.price[ours] = amount
                else:
                    section.report.dropped(section.at(theirs), "expected a price")


def _amount(told: Any) -> str:
    """A price for a million as a plain decimal number, empty where it is none."""
    try:
        amount = Decimal(str(told)) * MILLION
    except InvalidOperation:
        return ""
    if not amount.is_finite() or not 0 <= amount < 10**9:
        return ""
    return f"{amount.quantize(Decimal('1e-12')).normalize():f}"
