"""From a configuration and the files that are here to the one value that the data plane reads."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.models import (
    Model,
    ModelCommon,
    OnnxModel,
    PipelineModel,
    PythonModel,
    RemoteModel,
    files_of,
)
from tiffin.config.objectives import Slo
from tiffin.config.prices import seconds_east
from tiffin.config.schema import Config, Route
from tiffin.config.terms import unfit
from tiffin.control.catalogue.abilities import kind_of, serves
from tiffin.control.catalogue.revision import peers_of, revision_of
from tiffin.control.deploy import deployments_of
from tiffin.control.money.pricing import priced
from tiffin.control.observed import Observed
from tiffin.control.rollout import FAILED, FETCHING, READY, UNLOADED, Wish, course
from tiffin.control.tenants.published import Keys as Keys
from tiffin.control.tenants.published import principals, residency, tenant_limits, terms
from tiffin.control.tenants.registry import Made
from tiffin.types.json_file import read_json
from tiffin.types.paths import DataFolder
from tiffin.types.profiles import profile_of
from tiffin.types.snapshot import (
    Deployment,
    GuardPolicy,
    KeyAt,
    Plan,
    Snapshot,
    Target,
)
from tiffin.types.whole_file import replace_file


@dataclass(frozen=True, slots=True)
class Shelf:
    """The models' files: paths by digest of those that are here, reasons by model of those that
    can't be had; all others are on their way."""

    present: Mapping[str, Path] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """The machine: its data folder, how many cores may compute, what its supervisor says.

    `epoch` is what makes all its processes others: Tiffin's version. `unloaded` are the models that
    aren't to run here, with the reasons; `restarts` says how often a model was told to start anew;
    `made` is who was let in through its API; `key_files` are the files of upstreams' keys by model,
    each with a number that is another one once it has changed.
    """

    folder: DataFolder
    cores: int
    epoch: str = ""
    observed: Observed = field(default_factory=Observed)
    unloaded: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    made: Made = field(default_factory=Made)
    key_files: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def compose(
    loaded: Loaded,
    keys: Keys,
    shelf: Shelf,
    site: Site,
    previous: Snapshot | None,
    now_ns: int,
) -> Snapshot:
    """The snapshot that follows `previous`, or `previous` itself where nothing would change.

    What served in `previous` serves until what is wanted instead is ready.
    """
    config = loaded.config
    wishes = {name: _wish(name, config, shelf, site) for name in config.models}
    wishes = priced(wishes, config.models, config.prices, site.cores, now_ns)
    drain_ns = int(config.server.drain_s * 1e9)
    way = course(wishes, previous, site.observed, now_ns, drain_ns)
    draft = Snapshot(
        number=0,
        config_hash=loaded.sha256,
        published_ns=now_ns,
        keys=principals(config, keys),
        tenant_limits=tenant_limits(config, site.made),
        tenants=terms(config, site.made),
        plans=_plans(config, way.targets, previous, now_ns // 1_000_000_000),
        guards={
            name: GuardPolicy(kind=guard.kind, action=guard.action, on_error=guard.on_error)
            for name, guard in config.guards.items()
        },
        deployments=tuple(way.deployments.values()),
        leaving=way.leaving,
        coming=way.coming,
        tls=config.server.tls if config.server.tls.on else None,
        currency=config.prices.currency,
        utc_offset_s=seconds_east(config.prices),
        anomalies=config.anomalies if config.anomalies.action != "off" else None,
    )
    if previous is None:
        return msgspec.structs.replace(draft, number=1)
    same = msgspec.structs.replace(
        draft, number=previous.number, published_ns=previous.published_ns
    )
    if same == previous:
        return previous
    return msgspec.structs.replace(draft, number=previous.number + 1)


class Publisher:
    """The snapshot's file: replaced whole, numbered upwards, read back after a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.current: Snapshot | None = None
        self._least = 1
        try:
            self.current = read_json(path, Snapshot)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError):
            # Readers keep the highest number that they saw, which can't be known any more; seconds
            # since 1970 are more than anybody has published.
            self._least = int(path.stat().st_mtime) + 1

    def publish(self, snapshot: Snapshot) -> Snapshot:
        """Make it the current one, on disk too, where it isn't already; raises `OSError`."""
        if snapshot is self.current:
            return snapshot
        if snapshot.number < self._least:
            snapshot = msgspec.structs.replace(snapshot, number=self._least)
        replace_file(self._path, msgspec.json.encode(snapshot))
        self.current = snapshot
        return snapshot


def _plans(
    config: Config, targets: Mapping[str, Target], previous: Snapshot | None, now_s: int
) -> dict[str, Plan]:
    known = previous.plans if previous else {}
    plans: dict[str, Plan] = {}

    def add(
        name: str, settings: ModelCommon | Route, models: list[str], guard: str, attempts: int
    ) -> None:
        tried = tuple(targets[model] for model in models)
        slo = settings.slo if settings.slo != Slo() else config.models[models[0]].slo
        identity = _identity(tried, config.guards.get(guard))
        before = known.get(name)
        plans[name] = Plan(
            name=name,
            identity=identity,
            targets=tried,
            attempts=attempts,
            timeout_s=settings.timeout_s or config.server.request_timeout_s,
            p95_ms=slo.p95_ms,
            ttft_p95_ms=slo.ttft_p95_ms,
            cache=settings.cache,
            guard=guard,
            created=before.created if before and before.identity == identity else now_s,
        )

    for name, model in config.models.items():
        # Where one replica goes, another takes over, or the same one when it is loaded again.
        attempts = model.attempts if isinstance(model, RemoteModel) else 2
        add(name, model, [name], model.guard, attempts)
    for name, route in config.routes.items():
        # A route without a guard of its own has models that agree on one.
        guard = route.guard or config.models[route.models[0]].guard
        add(name, route, route.models, guard, route.attempts)
        if route.hedge.after_ms:
            plans[name] = msgspec.structs.replace(
                plans[name],
                hedge_s=route.hedge.after_ms / 1000,
                hedge_most=route.hedge.most,
            )
    return {
        name: msgspec.structs.replace(plan, embedder=plans[plan.cache.semantic.embedder])
        if plan.cache.on and plan.cache.semantic.embedder
        else plan
        for name, plan in plans.items()
    }


def _identity(targets: tuple[Target, ...], guard: Any) -> str:
    """What an answer depends on: which revisions in which order, and what is checked."""
    meaning = [[(t.kind, t.model, t.revision) for t in targets], guard]
    return hashlib.sha256(msgspec.json.encode(meaning)).hexdigest()


def _wish(name: str, config: Config, shelf: Shelf, site: Site) -> Wish:
    models = config.models
    model = models[name]
    revision = revision_of(model, models)
    state, reason = _standing(name, models, shelf)
    if name in site.unloaded:
        state, reason = UNLOADED, site.unloaded[name]
    if isinstance(model, RemoteModel):
        target = _remote_target(name, revision, model, state, reason)
        target = msgspec.structs.replace(
            target, unfit=unfit(model, config.terms), egress=_egress(model, config)
        )
        path, mark = site.key_files.get(name, ("", 0))
        keys = _keys_at(name, model, site) if model.keys else ()
        return Wish(msgspec.structs.replace(target, key_file=path, key_mark=mark, keys=keys))
    own: tuple[Deployment, ...] = ()
    if state == READY:
        epoch = f"{site.epoch} {site.restarts.get(name, 0)}"
        own = deployments_of(name, models, shelf.present, site.folder, site.cores, epoch)
    slots = getattr(model, "slots", 1)
    region, data_class = residency(name, config)
    target = Target(
        model=name,
        revision=revision,
        kind=kind_of(model),
        serves=serves(model),
        protocol="oip" if isinstance(model, OnnxModel | PythonModel | PipelineModel) else "openai",
        state=state,
        reason=reason,
        sockets=tuple(one.socket for one in own),
        on_demand=model.keep == "on-demand",
        cold_start_s=model.cold_start_s or model.load_timeout_s,
        held=slots + model.queue,
        slots=slots,
        # The queue that counts is the replica's, which knows its slots; this only bounds sockets.
        max_concurrency=2 * (slots + model.queue),
        queue=0,
        tools=getattr(model, "tools", False),
        region=region,
        data_class=data_class,
    )
    return Wish(target, own)


def _egress(model: RemoteModel, config: Config) -> tuple[str, ...]:
    """Where tokens for it may be had from, if its credentials say where that is."""
    asks = profile_of(model.profile).signs == "google"
    return tuple(config.egress.allow) if asks else ()


def _keys_at(name: str, model: RemoteModel, site: Site) -> tuple[KeyAt, ...]:
    found = []
    for each, _, key in model.every_key(name):
        path, mark = site.key_files.get(each, ("", 0))
        found.append(KeyAt(env=key.key_env, file=path, mark=mark))
    return tuple(found)


def _remote_target(name: str, revision: str, model: RemoteModel, state: str, reason: str) -> Target:
    profile = profile_of(model.profile)
    return Target(
        model=name,
        revision=revision,
        kind="remote",
        serves=serves(model),
        protocol=profile.protocol if model.profile else model.protocol,
        state=state,
        reason=reason,
        profile=model.profile,
        url=model.address,
        api_version=model.api_version,
        upstream_model=model.model or name,
        key_env=model.key_env,
        max_concurrency=model.max_concurrency,
        queue=model.queue,
        connect_timeout_s=model.connect_timeout_s,
        first_byte_timeout_s=model.first_byte_timeout_s,
        between_bytes_timeout_s=model.between_bytes_timeout_s,
        min_bytes_per_s=model.min_bytes_per_s,
        total_timeout_s=model.total_timeout_s,
        tools=model.tools,
        links=model.links == "pass" or (not model.links and profile.hosted),
        region=model.located,
        data_class=model.data_class,
    )


def _standing(name: str, models: Mapping[str, Model], shelf: Shelf) -> tuple[str, str]:
    """Whether a model's files and those of the models that it calls are here, or why not."""
    if any(file.sha256 not in shelf.present for file in files_of(models[name]).values()):
        reason = shelf.failed.get(name, "")
        return (FAILED if reason else FETCHING), reason
    for peer in peers_of(models[name]):
        state, reason = _standing(peer, models, shelf)
        if state != READY:
            return state, f"it calls {peer}: {reason}" if reason else ""
    return READY, ""
