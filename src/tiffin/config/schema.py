"""The one configuration file as typed, closed values with defaults that work on a laptop.

Sections are the tree of `tiffin.toml`. Secrets are never values: `key_env` names a variable,
`key_file` a file. Times end in `_s` (seconds), sizes in `_bytes`.
"""

from typing import Any

import msgspec

from tiffin.types.snapshot import Limits

CONFIG_VERSION = 1


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the public port and what it accepts."""

    host: str = "127.0.0.1"
    port: int = 8080
    data: str = "~/.tiffin"
    max_body_bytes: int = 10_000_000
    max_header_bytes: int = 32_768
    max_headers: int = 100
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
    max_connections: int = 4096
    max_in_flight: int = 2048
    request_timeout_s: float = 300.0
    drain_s: float = 30.0


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T.keys.K]`: exactly one of `key_env`, `key_file`, `key_sha256` (64 hex digits)."""

    key_env: str = ""
    key_file: str = ""
    key_sha256: str = ""
    admin: bool = False
    models: list[str] = []
    limits: Limits = Limits()


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tenants.T]`: who uses this installation, and how much at most, all keys together."""

    keys: dict[str, Key] = {}
    limits: Limits = Limits()


class ModelCommon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model has, whatever runs it."""

    timeout_s: float = 0.0
    cache_ttl_s: float = 0.0
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
    sha256: str
    size_bytes: int = 0
    context: int = 4096
    slots: int = 4
    queue: int = 64
    threads: int = 0
    tools: bool = False
    load_timeout_s: float = 300.0


class RemoteModel(
    ModelCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="remote",
):
    """An OpenAI-compatible endpoint as a model. `url` ends before `/chat/completions`."""

    url: str
    model: str = ""
    key_env: str = ""
    key_file: str = ""
    max_concurrency: int = 64
    queue: int = 256
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 60.0
    between_bytes_timeout_s: float = 60.0
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

    context: int = 4096
    slots: int = 4
    queue: int = 64
    tools: bool = False
    load_ms: float = 0.0
    prefill_ms: float = 0.0
    token_ms: float = 0.0
    fail_after: int = 0
    fail_load: str = ""
    spin_ms: float = 0.0
    load_timeout_s: float = 60.0


Model = LlamacppModel | RemoteModel | EchoModel


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.R]`: a public name that tries `models` in order, `attempts` tries in all."""

    models: list[str]
    attempts: int = 3
    timeout_s: float = 0.0
    cache_ttl_s: float = 0.0
    guard: str = ""


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[guards.G]`: `kind = "personal_data"`; `on_error` is `refuse` or `allow`."""

    kind: str
    action: str = "block"
    on_error: str = "refuse"


class Telemetry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[telemetry]`: bounds of what is written."""

    log_level: str = "info"
    max_log_bytes: int = 67_108_864
    max_journal_bytes: int = 1_073_741_824


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    version: int = CONFIG_VERSION
    server: Server = Server()
    tenants: dict[str, Tenant] = {}
    models: dict[str, Model] = {}
    routes: dict[str, Route] = {}
    guards: dict[str, Guard] = {}
    telemetry: Telemetry = Telemetry()


Tree = dict[str, Any]
