"""From a model's section to the replica processes that it asks for, named by what they are."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tiffin.config.models import (
    EchoModel,
    LaunchedModel,
    LlamacppModel,
    LocalCommon,
    LocalModel,
    Model,
    ModelCommon,
    OnnxModel,
    PipelineModel,
    PythonModel,
    RemoteModel,
    RulesModel,
    WhisperModel,
    files_of,
)
from tiffin.control.catalogue.memory import MIB, estimate
from tiffin.control.catalogue.revision import peers_of, revision_of
from tiffin.control.fleet.devices import AUTO
from tiffin.types.machine import CPU
from tiffin.types.paths import DataFolder, replica_name
from tiffin.types.snapshot import Deployment, PlacedFile

_PLAIN: Final = LocalCommon()
_KEEPING: Final = "replicas keep idle_s hold_s cold_start_s memory_mb devices device_memory_mb"
_AROUND: Final = (*ModelCommon.__struct_fields__, *_KEEPING.split())
_ON_DEVICES: Final = ("cuda", "tensorrt", "CUDAExecutionProvider", "TensorrtExecutionProvider")


def deployments_of(
    name: str,
    models: Mapping[str, Model],
    present: Mapping[str, Path],
    folder: DataFolder,
    cores: int,
    epoch: str,
) -> tuple[Deployment, ...]:
    """The replicas of a local model whose files are all in `present`, by digest.

    `epoch` is whatever else makes the processes what they are: another one, and they are others.
    """
    model = models[name]
    if isinstance(model, RemoteModel):
        return ()
    paths = {known_as: present[file.sha256] for known_as, file in files_of(model).items()}
    one = Deployment(
        model=name,
        revision=revision_of(model, models),
        socket="",
        spec=msgspec.Raw(msgspec.json.encode(_spec(model))),
        files={
            known_as: PlacedFile(path=str(paths[known_as]), sha256=file.sha256)
            for known_as, file in files_of(model).items()
        },
        peers={peer: revision_of(models[peer], models) for peer in peers_of(model)},
        threads=threads_of(model, models, cores),
        devices=devices_of(model),
    )
    generation = hashlib.sha256(epoch.encode() + msgspec.json.encode(one)).hexdigest()
    one = msgspec.structs.replace(
        one,
        generation=generation,
        on_demand=model.keep == "on-demand",
        idle_s=model.idle_s,
        hold_s=model.hold_s,
        memory_bytes=estimate(model, paths),
        memory_fixed=model.memory_mb > 0,
        device_bytes=device_bytes_of(model, paths),
    )
    names = [replica_name(name, generation, ordinal) for ordinal in range(model.replicas)]
    return tuple(
        msgspec.structs.replace(one, name=own, socket=str(folder.replica_socket(own)))
        for own in names
    )


def threads_of(model: Model, models: Mapping[str, Model], cores: int) -> int:
    """A share of the cores for each replica that computes here, present or not yet.

    Language models share among themselves alone: others compute in bursts beside them. Replicas
    that are kept loaded count all, those on demand as many as the largest such model has: they take
    turns.
    """
    if isinstance(model, RulesModel | EchoModel | RemoteModel):
        return 1
    if isinstance(model, LaunchedModel):
        return model.threads
    rivals = LlamacppModel if isinstance(model, LlamacppModel) else LocalModel
    here = [
        other
        for other in models.values()
        if isinstance(other, rivals)
        and not isinstance(other, RulesModel | EchoModel | LaunchedModel)
    ]
    loaded = sum(other.replicas for other in here if other.keep == "loaded")
    by_turns = max((other.replicas for other in here if other.keep != "loaded"), default=0)
    return model.threads or max(1, cores // (loaded + by_turns))


def devices_of(model: LocalModel) -> tuple[str, ...]:
    """What each of its replicas is to compute on, as `fleet.devices.seat` reads it."""
    if isinstance(model.devices, list):
        return tuple(model.devices)
    if model.devices != AUTO:
        return (model.devices,)
    match model:
        case LaunchedModel():
            return (AUTO,) * model.tensor_parallel
        case OnnxModel() if any(provider in _ON_DEVICES for provider in model.providers):
            return (AUTO, CPU) if CPU in model.providers else (AUTO,)
    return (CPU,)


def device_bytes_of(model: LocalModel, files: Mapping[str, Path]) -> int:
    """How much it takes of each device; 0 is all of it, as an engine takes what it finds."""
    if model.device_memory_mb or isinstance(model, LaunchedModel):
        return model.device_memory_mb * MIB
    return estimate(model, files)


def _spec(model: LocalModel) -> LocalModel:
    """Without what only others than the process read, so that changing it restarts nothing."""
    around = {field: getattr(_PLAIN, field) for field in _AROUND}
    spec: LocalModel = msgspec.structs.replace(model, **around)
    match spec:
        case LlamacppModel():
            return msgspec.structs.replace(spec, sources=[])
        case OnnxModel() | PythonModel() | PipelineModel() | WhisperModel() | LaunchedModel():
            return msgspec.structs.replace(spec, files={})
    return spec
