"""What the data plane needs to know, as one immutable, numbered value.

Control publishes it; gateways and the supervisor read it and pin it. It holds no secret: keys are
hashes, upstream credentials are references.
"""

import msgspec

from tiffin.types.anomalies import Anomalies
from tiffin.types.caching import Caching as Caching
from tiffin.types.limits import Limits as Limits
from tiffin.types.price import Price
from tiffin.types.tls import Tls


class Principal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who a key belongs to, and what it is for.

    `project` is the tenant's part that it belongs to, empty where it has none. `models` and
    `endpoints` empty mean all of them; `tools` is whether requests may offer tools. Its data are of
    `data_class` and stay in `region`, where these aren't empty. `role` is what it may do on the
    admin side, `admin` whether that is everything. It ends at `expires_ns` (UTC), unless 0.
    """

    tenant: str
    key: str
    project: str = ""
    role: str = "user"
    admin: bool = False
    models: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    tools: bool = True
    data_class: str = ""
    region: str = ""
    expires_ns: int = 0
    limits: Limits = Limits()


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a tenant stands: its weight where tenants share, whether it was suspended, the limits of
    its projects, and what data of all its keys are and where they stay, where that is said."""

    weight: float = 1.0
    suspended: bool = False
    projects: dict[str, Limits] = {}
    data_class: str = ""
    region: str = ""


class PlacedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A model's file on this machine, to be verified against its digest before it is loaded."""

    path: str
    sha256: str


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One replica process that is to run on this machine.

    `name` is unique: its socket and its files in the run folder carry it. `generation` is a digest
    of everything that makes the process what it is; deployments of one generation differ in their
    ordinal alone. `spec` is the model's config section, resolved; `files` are the model's files by
    the name that the runtime knows them under; `peers` are the revisions of the models that it
    calls, by their names: where these answer is in the snapshot.

    The rest may change while it runs: one that is `on_demand` need only be loaded while it has
    requests, and is unloaded after `idle_s` without any, never before it has been there for
    `hold_s`. `memory_bytes` is what it's thought to take (`memory_fixed`: whatever is measured),
    `devices` are what it computes on, a name each; as published they may be `auto`. Of each it
    takes `device_bytes`, 0 is all. `hindrance` says why it got none although it should.
    """

    name: str = ""
    model: str
    revision: str
    generation: str = ""
    socket: str
    spec: msgspec.Raw
    files: dict[str, PlacedFile] = {}
    peers: dict[str, str] = {}
    threads: int = 1
    on_demand: bool = False
    idle_s: float = 300.0
    hold_s: float = 10.0
    memory_bytes: int = 0
    memory_fixed: bool = False
    devices: tuple[str, ...] = ()
    device_bytes: int = 0
    hindrance: str = ""


class KeyAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where an upstream's key is: a variable, or a file whose `mark` tells its contents apart."""

    env: str = ""
    file: str = ""
    mark: int = 0


class Target(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One model that a plan can try: local replicas (a socket each) or an upstream (`url`).

    `serves` names the operations that it can do (`chat`, `infer`, `embedding` …), `protocol` what
    it speaks, `profile` what kind of server an upstream is. `state` is `ready-to-run`, `fetching`,
    `failed` or `unloaded`; `reason` says why it isn't ready to run. A local one that is `on_demand`
    may have to be loaded first, which takes no longer than `cold_start_s`; `held` requests may wait
    for that. Each replica of one remembers `slots` texts. `price` is what use of it costs while it
    happens, where that is known. It computes in `region` and is cleared for data up to
    `data_class`, empty where nobody said; its terms make it `unfit` for
    classes of data, each with the reason. `links` are passed on to it, which it fetches itself.
    Where its credentials say whom to ask for tokens, that host must be one of `egress`.
    """

    model: str
    revision: str
    kind: str
    serves: tuple[str, ...] = ()
    protocol: str = "openai"
    state: str = "ready-to-run"
    reason: str = ""
    sockets: tuple[str, ...] = ()
    on_demand: bool = False
    cold_start_s: float = 0.0
    held: int = 64
    slots: int = 1
    price: Price | None = None
    profile: str = ""
    url: str = ""
    api_version: str = ""
    upstream_model: str = ""
    key_env: str = ""
    key_file: str = ""
    key_mark: int = 0
    keys: tuple[KeyAt, ...] = ()
    max_concurrency: int = 64
    queue: int = 256
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 60.0
    between_bytes_timeout_s: float = 60.0
    total_timeout_s: float = 0.0
    min_bytes_per_s: int = 0
    tools: bool = True
    links: bool = False
    region: str = ""
    data_class: str = ""
    unfit: tuple[tuple[str, str], ...] = ()
    egress: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a public name leads to: targets in order, inside one attempt budget.

    `identity` changes whenever the plan's meaning does; it is part of every cache key. `p95_ms` and
    `ttft_p95_ms` are its objectives, 0 where it has none. `embedder` tells its cache how similar
    questions are, None where they have to be the same. Where a first try is without an answer after
    `hedge_s` (0: never) a second is begun beside it, for a share of `hedge_most` of all requests.
    """

    name: str
    identity: str
    targets: tuple[Target, ...]
    attempts: int = 3
    timeout_s: float = 300.0
    p95_ms: float = 0.0
    ttft_p95_ms: float = 0.0
    cache: Caching = Caching()
    guard: str = ""
    created: int = 0
    embedder: "Plan | None" = None
    hedge_s: float = 0.0
    hedge_most: float = 0.0


class GuardPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A named guard: its kind, what it does on a finding, and what happens when it fails itself."""

    kind: str
    action: str = "block"
    on_error: str = "refuse"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything above, numbered. `keys` maps the hex sha256 of a key to its principal: those of
    the configuration, others are in the keyring. `tenants` are all that there are.

    `leaving` are deployments that nothing new should go to, and until when (UTC nanoseconds) they
    stay, so that everybody who reads snapshots has seen what answers instead. `coming` is, by
    model, what takes the place of the target that plans have as soon as it is ready. Money is in
    `currency`, and days begin `utc_offset_s` before those of UTC. Requests are watched where there
    are `anomalies`.
    """

    number: int
    config_hash: str
    published_ns: int
    keys: dict[str, Principal]
    tenant_limits: dict[str, Limits]
    plans: dict[str, Plan]
    tenants: dict[str, Terms] = {}
    guards: dict[str, GuardPolicy] = {}
    deployments: tuple[Deployment, ...] = ()
    leaving: dict[str, int] = {}
    coming: dict[str, Target] = {}
    tls: Tls | None = None
    currency: str = ""
    utc_offset_s: int = 0
    anomalies: Anomalies | None = None

    def weight_of(self, tenant: str) -> float:
        """A tenant's part of what tenants share."""
        terms = self.tenants.get(tenant)
        return terms.weight if terms is not None else 1.0
