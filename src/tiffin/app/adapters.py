"""Which adapter a kind names: a table of import paths, and third parties' by entry point."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tiffin.errors import ConfigInvalid
from tiffin.ports.text_runtime import TextRuntime
from tiffin.types.snapshot import Deployment

GROUP = "tiffin.adapters"

RUNTIMES = {
    "llamacpp": "tiffin.adapters.runtimes.llamacpp:LlamacppRuntime",
    "echo": "tiffin.testing.echo:EchoRuntime",
}


def runtime_for(kind: str, deployment: Deployment) -> TextRuntime:
    """A runtime of this kind for a deployment, not loaded yet; raises `ConfigInvalid`."""
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
