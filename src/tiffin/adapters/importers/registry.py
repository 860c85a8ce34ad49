"""Which importer brings which kind of model: a table of import paths, loaded when one is used."""

import json
from collections.abc import Callable
from importlib import import_module

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.recognise import kind_at
from tiffin.errors import ArtifactError, ConfigInvalid

IMPORTERS = {
    "onnx": "tiffin.adapters.importers.onnx_graph:bring",
    "sklearn": "tiffin.adapters.importers.sklearn_pickle:bring",
    "xgboost": "tiffin.adapters.importers.xgboost_model:bring",
    "lightgbm": "tiffin.adapters.importers.lightgbm_model:bring",
    "safetensors": "tiffin.adapters.importers.encoder:bring",
    "gguf": "tiffin.adapters.importers.gguf_file:bring",
    "huggingface": "tiffin.adapters.importers.huggingface:bring",
    "mlflow": "tiffin.adapters.importers.mlflow_folder:bring",
    "python": "tiffin.adapters.importers.python_class:bring",
}

OF_THE_EXTRA = frozenset(
    {"joblib", "lightgbm", "onnx", "onnxmltools", "sklearn", "skl2onnx", "xgboost", "yaml"}
)


def bring(order: Order, kind: str = "") -> Imported:
    """What the order's path holds, made ready to be served; raises `ArtifactError`.

    `kind` is looked up in the table; empty, it is recognised by content.
    """
    if kind and kind not in IMPORTERS:
        raise ConfigInvalid(
            f"there is no kind {json.dumps(kind)}; there are {', '.join(IMPORTERS)}",
            where="--kind",
        )
    if not order.path.exists():
        raise ArtifactError(f"there is nothing at {order.path}")
    if not (order.path.is_file() or order.path.is_dir()):  # a pipe would be waited for
        raise ArtifactError(f"{order.path} is neither a file nor a folder")
    kind = kind or kind_at(order.path)
    module, _, name = IMPORTERS[kind].partition(":")
    importer: Callable[[Order], Imported] = getattr(import_module(module), name)
    try:
        return importer(order)
    except ImportError as cause:
        missing = (cause.name or "").partition(".")[0]
        if missing in OF_THE_EXTRA:
            mend = 'install the extra "import": pip install "tiffin[import]"'
        else:
            mend = f"install what it was made with ({missing or cause})"
        raise ArtifactError(f"{order.path} can't be imported as {kind} here: {mend}") from cause
