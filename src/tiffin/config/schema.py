"""The one configuration file as typed, closed values with defaults that work on a laptop.

Sections are the tree of `tiffin.toml`. Secrets are never values: `key_env` names a variable,
`key_file` a file. Times end in `_s` (seconds), sizes in `_bytes`.
"""

from typing import Any, Literal

import msgspec

from tiffin.config.alerts import Alert
from tiffin.config.fields import (
    Count,
    Gateways,
    Milliseconds,
    Port,
    Positive,
    RegionOrNone,
    Seconds,
    SecondsOrNone,
    Text,
    WarmReplicas,
)
from tiffin.config.models import Model
from tiffin.config.objectives import Share, Slo
from tiffin.config.prices import Prices
from tiffin.config.store_address import StoreAddress
from tiffin.config.tenants import Key as Key
from tiffin.config.tenants import Project as Project
from tiffin.config.tenants import Tenant as Tenant
from tiffin.config.terms import DataTerms
from tiffin.config.vault import AnswerCache, Idempotency, Vault
from tiffin.types.anomalies import Anomalies
from tiffin.types.caching import Caching
from tiffin.types.tls import Tls

CONFIG_VERSION = 1


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the public port, what it accepts, and what it may take of the machine.

    `gateways` processes share the public port; more than one need a store in which they count their
    limits, and `max_connections` and `max_in_flight` are those of each. `memory_mb` is what all
    replicas together may take (0: what the machine or its control group has, less a reserve).
    `warm_replicas` processes wait, with the models' libraries imported, for a model to load (-1:
    one where a model is loaded on demand, else none). `region` is where this machine computes, for
    keys whose data must stay somewhere.
    """

    host: Text = "127.0.0.1"
    port: Port = 8080
    grpc_port: Port = 0
    gateways: Gateways = 1
    data: Text = "~/.tiffin"
    max_body_bytes: Positive = 10_000_000
    max_header_bytes: Positive = 32_768
    max_headers: Positive = 100
    header_timeout_s: Seconds = 10.0
    body_timeout_s: Seconds = 30.0
    keep_alive_s: Seconds = 75.0
    max_connections: Positive = 4096
    max_in_flight: Positive = 2048
    request_timeout_s: Seconds = 300.0
    drain_s: SecondsOrNone = 30.0
    memory_mb: Count = 0
    warm_replicas: WarmReplicas = -1
    region: RegionOrNone = ""
    tls: Tls = Tls()
    vault: Vault = Vault()
    idempotency: Idempotency = Idempotency()
    cache: AnswerCache = AnswerCache()
    limit_store: StoreAddress = StoreAddress()


class Hedge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.R.hedge]`: a request without an answer after `after_ms` (0: never) is tried at the
    route's next model too, and the first answer is taken.

    No more than a share of `most` of all requests is; what the other try cost is our loss.
    """

    after_ms: Milliseconds = 0.0
    most: Share = 0.05


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.R]`: a public name that tries `models` in order, `attempts` tries in all."""

    models: list[str]
    attempts: Positive = 3
    timeout_s: SecondsOrNone = 0.0
    cache: Caching = Caching()
    guard: str = ""
    slo: Slo = Slo()
    hedge: Hedge = Hedge()


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[guards.G]`: `kind = "personal_data"`; `on_error` is `refuse` or `allow`."""

    kind: Literal["personal_data"]
    action: Literal["block"] = "block"
    on_error: Literal["refuse", "allow"] = "refuse"


class Egress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[egress]`: the hosts that remote models and alerts may be at; `*` is any."""

    allow: tuple[Text, ...] = ("*",)


class Telemetry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[telemetry]`: bounds of what is written.

    Accounts are kept `account_days`, and no more of them than `max_accounts`: the oldest go first.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    max_log_bytes: Positive = 67_108_864
    max_journal_bytes: Positive = 1_073_741_824
    account_days: Positive = 90
    max_accounts: Positive = 5_000_000


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    version: Positive = CONFIG_VERSION
    server: Server = Server()
    tenants: dict[str, Tenant] = {}
    models: dict[str, Model] = {}
    routes: dict[str, Route] = {}
    guards: dict[str, Guard] = {}
    egress: Egress = Egress()
    terms: dict[str, DataTerms] = {}
    prices: Prices = Prices()
    alerts: dict[str, Alert] = {}
    anomalies: Anomalies = Anomalies()
    telemetry: Telemetry = Telemetry()


Tree = dict[str, Any]


def config_schema() -> Tree:
    """The file's format as a JSON Schema (2020-12)."""
    schema = msgspec.json.schema(Config)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
