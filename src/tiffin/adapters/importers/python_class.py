"""Your own class: found in a file by its syntax, without running it."""

import ast
from pathlib import Path

from tiffin.adapters.importers.order import Imported, Order
from tiffin.config.shape import NAME
from tiffin.errors import ArtifactError, ConfigInvalid

CODE = "model.py"
MAX_FILES = 64


def bring(order: Order) -> Imported:
    """The file, or a folder with model.py and what it needs; raises `ConfigInvalid` untrusted."""
    if not order.trusted:
        raise ConfigInvalid(
            f"{order.path} is code, which will run with the rights of the server's user; if you"
            " wrote it or trust who did, say --trusted",
            where="--trusted",
        )
    code = order.path / CODE if order.path.is_dir() else order.path
    name = _class_in(code)
    files = _beside(order.path) if order.path.is_dir() else {CODE: code}
    return Imported(
        runtime="python",
        what=f"the class {name} of {code.name}",
        files=files,
        settings={"class_name": name, "trusted": True},
        notes=("its code was read and not run; it runs in a process of its own",),
    )


def _class_in(path: Path) -> str:
    try:
        syntax = ast.parse(path.read_bytes(), filename=str(path))
    except (OSError, SyntaxError, ValueError) as cause:
        raise ArtifactError(f"{path} is no Python that can be read: {cause}") from cause
    found = [
        node.name
        for node in syntax.body
        if isinstance(node, ast.ClassDef) and {"load", "predict"} <= _methods(node)
    ]
    if "Model" in found:
        return "Model"
    if len(found) != 1:
        known = f"it has several: {', '.join(found)}; call one of them Model" if found else "none"
        raise ArtifactError(f"{path} should have one class with load and predict; found: {known}")
    return found[0]


def _methods(node: ast.ClassDef) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {inner.name for inner in node.body if isinstance(inner, kinds)}


def _beside(folder: Path) -> dict[str, Path]:
    files = {
        path.name: path
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }
    strange = [name for name in files if not NAME.fullmatch(name)]
    if strange or len(files) > MAX_FILES:
        reason = f"names such as {strange[0]!r}" if strange else f"{len(files)} files"
        raise ArtifactError(f"{folder} has {reason}: keep only what the model needs")
    return files
