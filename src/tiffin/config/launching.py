"""What types can't say about devices, and about engines that are launched."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tiffin.config.models import LaunchedModel, LocalCommon
from tiffin.config.shape import Problem

_NAME: Final = re.compile(r"cuda:[0-9]{1,3}|GPU-[0-9a-fA-F-]{8,64}|MIG-[0-9a-zA-Z/-]{8,100}")
_EXPECTED: Final = 'expected "auto", ["cpu"], or names such as "cuda:0", "GPU-…" or "MIG-…"'


def broken_devices(model: LocalCommon, where: str) -> Iterator[Problem]:
    """Names that no device has, and as many of them as don't fit."""
    if model.devices in ("auto", "cpu", ["cpu"]):
        return
    names = model.devices if isinstance(model.devices, list) else [model.devices]
    if not names or not all(_NAME.fullmatch(name) for name in names):
        yield Problem(f"{where}.devices", _EXPECTED)
    elif len(set(names)) < len(names):
        yield Problem(f"{where}.devices", "a device stands here twice")
    elif isinstance(model, LaunchedModel) and len(names) != model.tensor_parallel:
        yield Problem(
            f"{where}.devices", f"expected as many as tensor_parallel is: {model.tensor_parallel}"
        )
    elif model.replicas > 1 and not model.device_memory_mb and isinstance(model, LaunchedModel):
        yield Problem(
            f"{where}.device_memory_mb",
            "expected how much a replica takes, since several are to share devices by name",
        )


def broken_launch(model: LaunchedModel, where: str) -> Iterator[Problem]:
    """An engine without a model or a command, and one that nobody vouches for."""
    if bool(model.model) == bool(model.files) and model.engine != "command":
        yield Problem(where, "expected exactly one of model, files")
    if model.engine == "command":
        if not model.executable:
            yield Problem(f"{where}.executable", "missing: what is to be run")
        if not model.trusted:
            yield Problem(
                f"{where}.trusted", "expected true: a command does what it likes, as your user"
            )
        if not any("{port}" in word for word in model.args):
            yield Problem(f"{where}.args", "expected {port} in one of them: where it is to listen")
    if "/" in model.executable and not PurePath(model.executable).is_absolute():
        yield Problem(f"{where}.executable", "expected an absolute path, or a name to be found")
