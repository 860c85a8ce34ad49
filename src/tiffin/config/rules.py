"""What types can't say about a configuration: references lead somewhere, choices agree."""

from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec

from tiffin.config.alerting import broken_alert
from tiffin.config.budgets import broken_budgets
from tiffin.config.egress import broken_egress
from tiffin.config.graph import broken_graph, broken_nesting
from tiffin.config.keeping import (
    broken_cache,
    broken_idempotency,
    broken_semantic,
    broken_vault,
)
from tiffin.config.launching import broken_devices, broken_launch
from tiffin.config.limit_store import broken_limit_store
from tiffin.config.limits import Known, broken_limits
from tiffin.config.models import (
    LaunchedModel,
    LlamacppModel,
    LocalCommon,
    ModelCommon,
    OnnxModel,
    PipelineModel,
    RemoteModel,
    WhisperModel,
)
from tiffin.config.policy import broken_policy
from tiffin.config.pricing import broken_prices, unpriced
from tiffin.config.references import WAYS, broken_reference, broken_tls
from tiffin.config.revisions import section_of
from tiffin.config.schema import Config, Key, Route, Server, Tenant
from tiffin.config.shape import Problem, nearest
from tiffin.config.tenants import place_of_key
from tiffin.config.upstreams import broken_remote, broken_terms

SOURCE_SCHEMES = ("hf", "pypi", "https", "http", "s3", "gs", "az", "file", "package")
# Without its tokenizer a model would ask the network for one.
WHISPER_FILES = ("model.bin", "config.json", "tokenizer.json")


def broken(config: Config) -> Iterator[Problem]:
    """Every rule that the configuration breaks."""
    yield from _grpc(config.server)
    yield from broken_tls(config.server.tls)
    yield from broken_vault(config.server.vault)
    yield from broken_idempotency(config.server.idempotency)
    yield from broken_cache(config.server.cache)
    yield from broken_limit_store(config.server.limit_store, config.server.gateways)
    for name, tenant in config.tenants.items():
        yield from _tenant(config, tenant, f"tenants.{name}")
    yield from broken_policy(config)
    for name, model in config.models.items():
        yield from _model(config, model, section_of(name))
    yield from broken_nesting(config.models)
    yield from broken_egress(config)
    yield from broken_terms(config.terms)
    yield from broken_prices(config.prices, list(config.models))
    for name, alert in config.alerts.items():
        yield from broken_alert(alert, f"alerts.{name}")
    for name, route in config.routes.items():
        yield from _route(config, name, route)


def _engine(model: LlamacppModel, where: str) -> Iterator[Problem]:
    if model.engine == "openvino" and find_spec("openvino_genai") is None:
        yield Problem(f"{where}.engine", "it needs more: pip install 'tiffin[openvino]'")
    if model.task != "generate" and model.engine != "llamacpp":
        yield Problem(f"{where}.engine", f'task = "{model.task}" is for llamacpp alone')
    if model.task != "embed":
        for name in ("pooling", "dimensions"):
            if getattr(model, name):
                yield Problem(f"{where}.{name}", 'only task = "embed" makes vectors')
    if model.task != "generate" and model.tools:
        yield Problem(f"{where}.tools", f'task = "{model.task}" calls no tools')


def _grpc(server: Server) -> Iterator[Problem]:
    if server.grpc_port and find_spec("grpc") is None:
        yield Problem("server.grpc_port", "it needs more: pip install 'tiffin[grpc]'")
    if server.grpc_port and server.grpc_port == server.port:
        yield Problem("server.grpc_port", "expected another port than server.port")


def _tenant(config: Config, tenant: Tenant, where: str) -> Iterator[Problem]:
    known = known_of(config)
    currency = config.prices.currency
    yield from broken_limits(tenant.limits, "tenant", f"{where}.limits", known)
    yield from broken_budgets(tenant.budgets, tenant.limits, where, known, currency)
    for name, project in tenant.projects.items():
        place = f"{where}.projects.{name}"
        yield from broken_limits(project.limits, "project", f"{place}.limits", known)
        yield from broken_budgets(project.budgets, project.limits, place, known, currency)
    places: dict[str, str] = {}
    for project_name, name, key in tenant.every_key():
        place = place_of_key(where, project_name, name)
        if name in places:
            yield Problem(place, f"{places[name]} has this name; a tenant's keys have one each")
        places.setdefault(name, place)
        yield from _key(config, tenant, key, place)


def _key(config: Config, tenant: Tenant, key: Key, where: str) -> Iterator[Problem]:
    if key.region and tenant.region and key.region != tenant.region:
        yield Problem(
            f"{where}.region", f'its tenant\'s data stay in "{tenant.region}": nothing is in both'
        )
    yield from broken_reference(key, where, needed=True, ways=(*WAYS, "key_sha256"))
    known = known_of(config)
    if key.models:
        known = known._replace(unpriced=known.unpriced & {*key.models})
    yield from broken_limits(key.limits, "key", f"{where}.limits", known)
    yield from broken_budgets(key.budgets, key.limits, where, known, config.prices.currency)
    yield from _all_known(key.models, known.models, f"{where}.models", "model or route")
    if key.admin and key.role not in ("user", "admin"):
        yield Problem(f"{where}.role", f'admin = true is role = "admin", not "{key.role}"')


def known_of(config: Config) -> Known:
    """What limits of a configuration may count; a route costs what each of its models does."""
    missing = unpriced(config.prices, config.models)
    routes = (name for name, one in config.routes.items() if not missing.isdisjoint(one.models))
    return Known(
        [*config.models, *config.routes],
        {*missing, *routes},
        shared=bool(config.server.limit_store.url),
    )


def _model(config: Config, model: ModelCommon, where: str) -> Iterator[Problem]:
    yield from _guard(config, model.guard, f"{where}.guard")
    yield from broken_semantic(model.cache.semantic, f"{where}.cache.semantic", config.models)
    if isinstance(model, LocalCommon):
        yield from broken_devices(model, where)
    if isinstance(model, LlamacppModel):
        yield from _sources(model.sources, f"{where}.sources")
        yield from _engine(model, where)
    elif isinstance(model, PipelineModel):
        yield from broken_graph(model, where, config.models)
    elif isinstance(model, LaunchedModel):
        yield from broken_launch(model, where)
    elif isinstance(model, WhisperModel):
        yield from _has_files(model.files, WHISPER_FILES, where)
    elif isinstance(model, OnnxModel):
        needed = (model.graph,) if model.task == "tensors" else (model.graph, "tokenizer.json")
        yield from _has_files(model.files, needed, where)
    elif isinstance(model, RemoteModel):
        yield from broken_remote(model, where)


def _has_files(files: Collection[str], needed: Sequence[str], where: str) -> Iterator[Problem]:
    missing = [name for name in needed if name not in files]
    if missing:
        yield Problem(f"{where}.files", f"expected also {', '.join(missing)}")


def _route(config: Config, name: str, route: Route) -> Iterator[Problem]:
    where = f"routes.{name}"
    if name in config.models:
        yield Problem(where, f"a model is called {name} already; routes need names of their own")
    if not route.models:
        yield Problem(f"{where}.models", "expected at least one model")
    if route.hedge.after_ms and min(len(route.models), route.attempts) < 2:
        yield Problem(
            f"{where}.hedge.after_ms",
            f"{route.hedge.after_ms:g} needs another model and another try: two models and"
            f" attempts of 2 or more, not {len(route.models)} and {route.attempts}",
        )
    if len(set(route.models)) < len(route.models):
        yield Problem(f"{where}.models", "a model stands here twice")
    yield from _all_known(route.models, list(config.models), f"{where}.models", "model")
    yield from _guard(config, route.guard, f"{where}.guard")
    yield from broken_semantic(route.cache.semantic, f"{where}.cache.semantic", config.models)
    guards = {config.models[m].guard for m in route.models if m in config.models}
    if not route.guard and len(guards) > 1:
        yield Problem(f"{where}.guard", "missing: its models have different guards, so say which")


def _all_known(
    names: Sequence[str], known: Sequence[str], where: str, what: str
) -> Iterator[Problem]:
    for name in names:
        if name not in known:
            yield Problem(where, f'there is no {what} "{name}"{nearest(name, known)}')


def _guard(config: Config, name: str, where: str) -> Iterator[Problem]:
    if name and name not in config.guards:
        yield Problem(where, f'there is no guard "{name}"{nearest(name, config.guards)}')


def _sources(sources: Sequence[str], where: str) -> Iterator[Problem]:
    if not sources:
        yield Problem(where, "expected at least one source")
    for number, source in enumerate(sources):
        scheme, colon, _ = source.partition(":")
        if not colon or scheme not in SOURCE_SCHEMES:
            schemes = ", ".join(f"{name}:" for name in SOURCE_SCHEMES)
            yield Problem(f"{where}[{number}]", f"expected a source that begins with {schemes}")
