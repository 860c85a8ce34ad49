"""The one configuration file as typed, closed values with defaults that work on a laptop.

Sections are the tree of `tiffin.toml`. Secrets are never values: `key_env` names a variable,
`key_file` a file. Times end in `_s` (seconds), sizes in `_bytes`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tiffin.types.snapshot import Limits

CONFIG_VERSION = 1

_YEAR_S = 31_536_000

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=_YEAR_S)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=_YEAR_S)]
Milliseconds = Annotated[float, Meta(ge=0, le=1000 * _YEAR_S)]
Text = Annotated[str, Meta(min_length=1)]
Digest = Annotated[
    str, Meta(pattern="^[0-9a-f]{64}$", description="64 lower-case hexadecimal digits")
]
DigestOrNone = Annotated[
    str, Meta(pattern="^([0-9a-f]{64})?$", description="64 lower-case hexadecimal digits")
]


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the public port and what it accepts."""

    host: Text = "127.0.0.1"
    port: Port = 8080
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


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T.keys.K]`: exactly one of `key_env`, `key_file`, `key_sha256` (64 hex digits)."""

    key_env: str = ""
    key_file: str = ""
    key_sha256: DigestOrNone = ""
    admin: bool = False
    models: list[str] = []
    limits: Limits = Limits()


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T]`: who uses this installation, and how much at most, all keys together."""

    keys: dict[str, Key] = {}
    limits: Limits = Limits()


class ModelCommon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model has, whatever runs it."""

    timeout_s: SecondsOrNone = 0.0
    cache_ttl_s: SecondsOrNone = 0.0
    guard: str = ""


class LlamacppModel(
    ModelCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="llamacpp",
):
    """A GGUF file run by llama.cpp in a replica of ours.

    `sources` are tried in order, all against `sha256`. `context` is tokens per slot; `slots` are
    answers at once; `queue` is how many may wait; `threads` 0 shares the cores among replicas.
    `tools` says that the model's template offers tools.
    """

    sources: list[str]
    sha256: Digest
    size_bytes: Count = 0
    context: Positive = 4096
    slots: Positive = 4
    queue: Count = 64
    threads: Count = 0
    tools: bool = False
    load_timeout_s: Seconds = 300.0


class RemoteModel(
    ModelCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="remote",
):
    """An OpenAI-compatible endpoint as a model. `url` ends before `/chat/completions`."""

    url: Text
    model: str = ""
    key_env: str = ""
    key_file: str = ""
    max_concurrency: Positive = 64
    queue: Count = 256
    connect_timeout_s: Seconds = 5.0
    first_byte_timeout_s: Seconds = 60.0
    between_bytes_timeout_s: Seconds = 60.0
    tools: bool = True


class EchoModel(
    ModelCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="echo",
):
    """A deterministic model for tests: it says the last message back, word by word.

    Delays are milliseconds; `fail_after` breaks off after that many words (0: never);
    `fail_load` makes loading fail with this reason; `spin_ms` holds the GIL that long before
    the first word.
    """

    context: Positive = 4096
    slots: Positive = 4
    queue: Count = 64
    tools: bool = False
    load_ms: Milliseconds = 0.0
    prefill_ms: Milliseconds = 0.0
    token_ms: Milliseconds = 0.0
    fail_after: Count = 0
    fail_load: str = ""
    spin_ms: Milliseconds = 0.0
    load_timeout_s: Seconds = 60.0


Model = LlamacppModel | RemoteModel | EchoModel


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.R]`: a public name that tries `models` in order, `attempts` tries in all."""

    models: list[str]
    attempts: Positive = 3
    timeout_s: SecondsOrNone = 0.0
    cache_ttl_s: SecondsOrNone = 0.0
    guard: str = ""


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[guards.G]`: `kind = "personal_data"`; `on_error` is `refuse` or `allow`."""

    kind: Literal["personal_data"]
    action: Literal["block"] = "block"
    on_error: Literal["refuse", "allow"] = "refuse"


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
    telemetry: Telemetry = Telemetry()


Tree = dict[str, Any]


def config_schema() -> Tree:
    """The file's format as a JSON Schema (2020-12)."""
    schema = msgspec.json.schema(Config)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
