"""Which adapter a kind names: a table of import paths, and third parties' by entry point.

What a path leads to is called with the deployment and returns the runtime, not loaded yet.
"""

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from tiffin.errors import ConfigInvalid
from tiffin.ports.text_runtime import TextRuntime
from tiffin.types.snapshot import Deployment

GROUP = "tiffin.adapters"

RUNTIMES = {
    "llamacpp": "tiffin.app.adapters:llamacpp",
    "echo": "tiffin.testing.echo:EchoRuntime",
}


def runtime_for(kind: str, deployment: Deployment) -> TextRuntime:
    """A runtime of this kind for a deployment; raises `ConfigInvalid` where there is none."""
    runtime: TextRuntime = find(RUNTIMES, kind)(deployment)
    return runtime


def find(table: dict[str, str], kind: str) -> Any:
    """What `kind` names in the table, or among installed entry points called `runtime.<kind>`."""
    if kind in table:
        module, _, name = table[kind].partition(":")
        return getattr(import_module(module), name)
    for point in entry_points(group=GROUP, name=f"runtime.{kind}"):
        return point.load()
    raise ConfigInvalid(f"there is no runtime '{kind}'; there are: {', '.join(sorted(table))}")


def llamacpp(deployment: Deployment) -> TextRuntime:
    """llama.cpp with its own socket beside the replica's; call it where a loop runs."""
    from tiffin.adapters.runtimes.engine import IDLE_CONNECTIONS
    from tiffin.adapters.runtimes.llamacpp import LlamacppRuntime
    from tiffin.adapters.upstreams.endpoint import Endpoint
    from tiffin.adapters.upstreams.http1 import Http1Backend
    from tiffin.config.models import GGUF, LlamacppModel

    engine_socket = str(Path(deployment.socket).with_suffix(".engine.sock"))
    endpoint = Endpoint(authority=b"engine", path=engine_socket)
    return LlamacppRuntime(
        deployment.files[GGUF].path,
        msgspec.json.decode(deployment.spec, type=LlamacppModel),
        deployment.threads,
        engine_socket,
        Http1Backend(endpoint, max_idle=IDLE_CONNECTIONS),
    )
