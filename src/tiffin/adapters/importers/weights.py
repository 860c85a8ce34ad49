"""Weights out of a safetensors file, as FP32 arrays; the format runs no code.

The format: eight bytes of length (little-endian), a JSON header, then the tensors' bytes
(huggingface/safetensors, README "Format").
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.errors import ArtifactError

MAX_HEADER_BYTES = 100_000_000
Floats = NDArray[np.float32]


class Weights:
    """The tensors of one file by name, read when asked for; raises `ArtifactError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                [length] = struct.unpack("<Q", file.read(8))
                if length > min(MAX_HEADER_BYTES, size - 8):
                    raise ArtifactError(f"{path} is cut off or no safetensors file")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            self._entries: dict[str, dict[str, Any]] = header
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError) as cause:
            raise ArtifactError(f"{path} is no safetensors file: {cause}") from cause
        self._start = 8 + length
        if self._start + end > size:
            raise ArtifactError(
                f"{path} has {size} bytes, and its header tells of {self._start + end}: cut off"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """Every tensor's name."""
        return list(self._entries)

    @property
    def count(self) -> int:
        """How many numbers they have, all together."""
        return sum(int(np.prod(entry["shape"])) for entry in self._entries.values())

    def __getitem__(self, name: str) -> Floats:
        entry = self._entries.get(name)
        if entry is None:
            raise ArtifactError(f"{self._path} lacks the tensor {name}")
        start, end = entry["data_offsets"]
        with self._path.open("rb") as file:
            file.seek(self._start + start)
            raw = file.read(end - start)
        try:
            return _floats(raw, entry["dtype"]).reshape(entry["shape"])
        except (ValueError, KeyError) as cause:
            raise ArtifactError(f"{self._path}: {name} can't be read ({cause})") from cause


def _floats(raw: bytes, dtype: str) -> Floats:
    if dtype == "BF16":  # the upper half of an FP32
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
    return np.frombuffer(raw, kinds[dtype]).astype(np.float32)
