"""Which adapter a kind names: tables of import paths, and third parties' by entry point.

What a path of `RUNTIMES` leads to is called with the deployment and returns the runtime, not loaded
yet. What a path of `HOSTS` leads to is called with a replica's surroundings and returns what the
process hosts; its rows are `runtime` or, for runtimes that do several things, `runtime/task`.
"""

import functools
import math
import os
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tiffin.app.hosted import Hosted, Surroundings
from tiffin.errors import ConfigInvalid
from tiffin.ports.sound_runtime import SoundRuntime
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.ports.text_runtime import TextRuntime
from tiffin.types.paths import OWN_FILES
from tiffin.types.snapshot import Deployment

if TYPE_CHECKING:
    from tiffin.adapters.runtimes.gguf_encoder import GgufEncoder
    from tiffin.adapters.runtimes.launched import LaunchedRuntime

GROUP = "tiffin.adapters"

RUNTIMES = {
    "llamacpp": "tiffin.app.adapters:llamacpp",
    "rules": "tiffin.adapters.runtimes.rules:RulesRuntime",
    "echo": "tiffin.testing.echo:EchoRuntime",
    "whisper": "tiffin.app.adapters:whisper",
    "onnx": "tiffin.app.adapters:onnx",
    "python": "tiffin.app.adapters:python",
    "launched": "tiffin.app.adapters:launched",
}


TEXT_HOST = "tiffin.app.hosted_text:TextHosted"
TENSORS_HOST = "tiffin.app.hosted_tensors:TensorsHosted"
GGUF_ENCODER_HOST = "tiffin.app.hosted_text_encoder:gguf_encoder_hosted"
TEXT_ENCODER_HOST = "tiffin.app.hosted_text_encoder:onnx_encoder_hosted"

HOSTS = {
    "llamacpp": TEXT_HOST,
    "llamacpp/embed": GGUF_ENCODER_HOST,
    "llamacpp/rerank": GGUF_ENCODER_HOST,
    "rules": TEXT_HOST,
    "echo": TEXT_HOST,
    "whisper": "tiffin.app.hosted_sound:SoundHosted",
    "onnx/tensors": TENSORS_HOST,
    "onnx/embed": TEXT_ENCODER_HOST,
    "onnx/rerank": TEXT_ENCODER_HOST,
    "python": TENSORS_HOST,
    "pipeline": "tiffin.app.hosted_pipeline:PipelineHosted",
    "launched": "tiffin.app.hosted_launched:LaunchedHosted",
}

LIBRARIES = {
    "llamacpp": ("tiffin.adapters.runtimes.llamacpp", "xllamacpp"),
    "rules": ("tiffin.adapters.runtimes.rules",),
    "echo": ("tiffin.testing.echo",),
    "whisper": ("tiffin.adapters.runtimes.whisper", "faster_whisper"),
    "onnx": ("tiffin.adapters.runtimes.onnx", "onnxruntime"),
    "llamacpp/embed": ("tiffin.adapters.runtimes.gguf_encoder", "xllamacpp"),
    "llamacpp/rerank": ("tiffin.adapters.runtimes.gguf_encoder", "xllamacpp"),
    "onnx/embed": ("tokenizers",),
    "onnx/rerank": ("tokenizers",),
    "python": ("tiffin.adapters.runtimes.python", "numpy"),
}
"""What takes time to import, for a process that waits for its model."""


class Kind(msgspec.Struct):
    """What of a model's config section says which adapter it needs."""

    runtime: str
    task: str = "tensors"


def host(around: Surroundings) -> Hosted:
    """What a deployment's replica hosts; raises `ConfigInvalid` where there is no such runtime.

    A third party's runtime is one of texts.
    """
    kind = msgspec.json.decode(around.deployment.spec, type=Kind)
    path = HOSTS.get(f"{kind.runtime}/{kind.task}") or HOSTS.get(kind.runtime) or TEXT_HOST
    hosted: Hosted = imported(path)(around)
    return hosted


def imports_of(deployments: Iterable[Deployment]) -> tuple[str, ...]:
    """The modules that replicas of these import before they load anything."""
    found: dict[str, None] = {}
    for one in deployments:
        kind = msgspec.json.decode(one.spec, type=Kind)
        names = (kind.runtime, f"{kind.runtime}/{kind.task}")
        hosts = [HOSTS[name].partition(":")[0] for name in names if name in HOSTS]
        libraries = [module for name in names for module in LIBRARIES.get(name, ())]
        found |= dict.fromkeys([*hosts, *libraries])
    return tuple(found)


def runtime_for(kind: str, deployment: Deployment) -> Any:
    """A runtime of this kind for a deployment; raises `ConfigInvalid` where there is none."""
    return find(RUNTIMES, kind)(deployment)


def find(table: dict[str, str], kind: str) -> Any:
    """What `kind` names in the table, or among installed entry points called `runtime.<kind>`."""
    if kind in table:
        return imported(table[kind])
    for point in entry_points(group=GROUP, name=f"runtime.{kind}"):
        return point.load()
    raise ConfigInvalid(f"there is no runtime '{kind}'; there are: {', '.join(sorted(table))}")


def imported(path: str) -> Any:
    """What `module:name` leads to."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def whisper(deployment: Deployment) -> SoundRuntime:
    """Whisper through faster-whisper."""
    from tiffin.adapters.runtimes.whisper import WhisperRuntime
    from tiffin.config.models import WhisperModel

    files = {name: file.path for name, file in deployment.files.items()}
    settings = msgspec.json.decode(deployment.spec, type=WhisperModel)
    return WhisperRuntime(files, settings, deployment.threads)


def llamacpp(deployment: Deployment) -> TextRuntime:
    """llama.cpp with its own socket beside the replica's, or OpenVINO with llama.cpp as its reader.

    Call it where a loop runs.
    """
    from tiffin.adapters.runtimes.engine import IDLE_CONNECTIONS
    from tiffin.adapters.runtimes.llamacpp import LlamacppRuntime
    from tiffin.adapters.runtimes.openvino import OpenvinoRuntime
    from tiffin.adapters.upstreams.endpoint import Endpoint
    from tiffin.adapters.upstreams.http1 import Http1Backend
    from tiffin.config.models import GGUF, LlamacppModel

    engine_socket = str(Path(deployment.socket).with_suffix(".engine.sock"))
    endpoint = Endpoint(authority=b"engine", path=engine_socket)
    spec = msgspec.json.decode(deployment.spec, type=LlamacppModel)
    runtime = OpenvinoRuntime if spec.engine == "openvino" else LlamacppRuntime
    return runtime(
        deployment.files[GGUF].path,
        spec,
        deployment.threads,
        engine_socket,
        Http1Backend(endpoint, max_idle=IDLE_CONNECTIONS),
    )


def gguf_encoder(deployment: Deployment) -> "GgufEncoder":
    """llama.cpp as what embeds or ranks texts, with its own socket beside the replica's."""
    from tiffin.adapters.runtimes.engine import Extent
    from tiffin.adapters.runtimes.gguf_encoder import GgufEncoder
    from tiffin.config.models import GGUF, LlamacppModel

    spec = msgspec.json.decode(deployment.spec, type=LlamacppModel)
    return GgufEncoder(
        deployment.files[GGUF].path,
        spec.task,
        spec.pooling,
        str(Path(deployment.socket).with_suffix(".engine.sock")),
        Extent(spec.context, spec.slots, deployment.threads, spec.cache_type),
    )


def launched(deployment: Deployment) -> "LaunchedRuntime":
    """An engine as a child of this process; call it where the main thread's loop runs."""
    from tiffin.adapters.launchers import tether
    from tiffin.adapters.launchers.process import ProcessLauncher
    from tiffin.adapters.runtimes.launched import LaunchedRuntime
    from tiffin.adapters.runtimes.launched_child import Address, Place
    from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
    from tiffin.adapters.upstreams.http1 import Http1Backend
    from tiffin.config.models import LaunchedModel

    def connect(address: Address) -> Http1Backend:
        bearer = b"authorization: Bearer %b\r\n" % address.key.encode() if address.key else b""
        endpoint = Endpoint(
            authority=b"engine",
            path=address.path,
            host="" if address.path else "127.0.0.1",
            port=address.port,
            headers=bearer,
        )
        # How long an answer may take is for its deadline and the lanes to say.
        return Http1Backend(endpoint, Timeouts(first_byte_s=math.inf, between_bytes_s=math.inf))

    spec = msgspec.json.decode(deployment.spec, type=LaunchedModel)
    place = Place(
        model=spec.model,
        files=paths(deployment),
        beside=own_folder(deployment),
        name=deployment.model,
        socket=Path(deployment.socket).with_suffix(".engine.sock"),
        tether=functools.partial(tether.command, os.getpid()),
        threads=deployment.threads,
    )
    return LaunchedRuntime(spec, place, ProcessLauncher(), connect)


def onnx(deployment: Deployment) -> TensorRuntime:
    """onnxruntime over the deployment's files."""
    from tiffin.adapters.runtimes.onnx import OnnxRuntime, Placement
    from tiffin.config.models import OnnxModel

    model = msgspec.json.decode(deployment.spec, type=OnnxModel)
    placement = Placement(deployment.threads, model.providers, parts=model.parallel_runs)
    return OnnxRuntime(
        paths(deployment), model.graph, placement, own_folder(deployment), model.best_of
    )


def python(deployment: Deployment) -> TensorRuntime:
    """A user's class among the deployment's files."""
    from tiffin.adapters.runtimes.python import Code, PythonRuntime
    from tiffin.config.models import PythonModel

    model = msgspec.json.decode(deployment.spec, type=PythonModel)
    code = Code(model.code, model.class_name, model.trusted)
    return PythonRuntime(paths(deployment), code, own_folder(deployment))


def own_folder(deployment: Deployment) -> Path:
    """Where a replica may lay out files while it runs; its keeper removes what it leaves."""
    return Path(deployment.socket).with_suffix(OWN_FILES)


def paths(deployment: Deployment) -> dict[str, Path]:
    """Where the deployment's files are, by the name that the runtime knows them under."""
    return {name: Path(file.path) for name, file in deployment.files.items()}
