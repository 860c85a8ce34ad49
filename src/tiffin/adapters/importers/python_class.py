"""Your own class: found in a file by its syntax, without running it."""

import ast
from pathlib import Path

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.session import example_of
from tiffin.config.shape import NAME
from tiffin.errors import ArtifactError, ConfigInvalid
from tiffin.types.tensors import DATATYPE_BYTES, Signature, TensorSpec

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
    node = _class_in(code)
    files = _beside(order.path) if order.path.is_dir() else {CODE: code}
    signature = _signature(node)
    return Imported(
        runtime="python",
        what=f"the class {node.name} of {code.name}",
        files=files,
        settings={"class_name": node.name, "trusted": True},
        notes=("its code was read and not run; it runs in a process of its own",),
        signature=signature,
        example=example_of(signature) if signature else {},
    )


def _class_in(path: Path) -> ast.ClassDef:
    try:
        syntax = ast.parse(path.read_bytes(), filename=str(path))
    except (OSError, SyntaxError, ValueError) as cause:
        raise ArtifactError(f"{path} is no Python that can be read: {cause}") from cause
    found = {
        node.name: node
        for node in syntax.body
        if isinstance(node, ast.ClassDef) and "predict" in _methods(node)
    }
    if "Model" in found:
        return found["Model"]
    if len(found) != 1:
        names = ", ".join(found)
        known = f"it has several: {names}; call one of them Model" if found else "it has none"
        raise ArtifactError(f"{path} should have one class with a method predict; {known}")
    return next(iter(found.values()))


def _signature(node: ast.ClassDef) -> Signature | None:
    """What the class says of its inputs in plain values; None where that is computed."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="inputs")], value=value):
                try:
                    specs = [
                        TensorSpec(name=name, datatype=datatype, shape=tuple(shape))
                        for name, datatype, shape in ast.literal_eval(value)
                    ]
                except (ValueError, TypeError):
                    return None
                known = all(spec.datatype in DATATYPE_BYTES for spec in specs)
                return Signature(inputs=tuple(specs), outputs=()) if known else None
    return None


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
