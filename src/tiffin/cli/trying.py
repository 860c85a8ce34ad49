"""The command to paste into a terminal to try a model that was imported."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiffin.adapters.importers.order import Imported

MAX_VALUES = 256


def curl(name: str, found: Imported, address: str, key_file: Path) -> str:
    """A curl that a server at the address understands, with real input names and a real row."""
    path, body = _request(name, found)
    key = f"$(cat {shlex.quote(str(key_file))})" if key_file.exists() else "$TIFFIN_API_KEY"
    parts = [
        f"curl {shlex.quote(address + path)}",
        f'-H "Authorization: Bearer {key}"',
    ]
    if body is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(body))}"]
    return " \\\n  ".join(parts)


def _request(name: str, found: Imported) -> tuple[str, Mapping[str, Any] | None]:
    task = found.settings.get("task", "")
    if found.runtime == "llamacpp":
        say = [{"role": "user", "content": "Name three colours."}]
        return "/v1/chat/completions", {"model": name, "messages": say}
    if task == "embed":
        return "/v1/embeddings", {"model": name, "input": ["A first text", "and another"]}
    if task == "rerank":
        texts = ["Paris is the capital of France.", "Bread is made of flour."]
        return "/v1/rerank", {"model": name, "query": "the capital of France", "documents": texts}
    if not found.example or sum(array.size for array in found.example.values()) > MAX_VALUES:
        return f"/v2/models/{name}", None  # what it takes is too long for a line, or not known yet
    return f"/v2/models/{name}/infer", _infer(found)


def _infer(found: Imported) -> dict[str, Any]:
    datatypes = (
        {spec.name: spec.datatype for spec in found.signature.inputs} if found.signature else {}
    )
    body: dict[str, Any] = {
        "inputs": [
            {
                "name": known_as,
                "shape": list(array.shape),
                "datatype": datatypes.get(known_as, "FP32"),
                "data": [_short(value) for value in array.ravel().tolist()],
            }
            for known_as, array in found.example.items()
        ]
    }
    if found.decision is not None:
        wanted = ["decision", "score", *(["reasons"] if found.decision.reference else [])]
        body["outputs"] = [{"name": one} for one in wanted]
    return body


def _short(value: Any) -> Any:
    """A number as few digits tell it; a missing one is null in the protocol's JSON."""
    if isinstance(value, float):
        return None if value != value else float(f"{value:.6g}")
    return value
