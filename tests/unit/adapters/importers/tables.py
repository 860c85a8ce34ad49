"""Small real models and their rows for the importers' tests."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.registry import bring
from tiffin.adapters.importers.session import Session

NAMES = ("age", "income", "debt")


def rows(count: int = 200) -> NDArray[np.float64]:
    """Three columns of very different size."""
    random = np.random.default_rng(7)
    return random.normal(size=(count, 3)) * [10.0, 1000.0, 1.0] + [40.0, 3000.0, 2.0]


def truth(count: int = 200) -> NDArray[np.int64]:
    """Two classes that follow from the columns."""
    x = rows(count)
    return (x[:, 0] / 40 + x[:, 1] / 3000 > 2.0).astype(np.int64)


def csv_file(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    """The rows with a head, and one column more than models know."""
    path = folder / "rows.csv"
    lines = [",".join(("id", *names))]
    lines += [f"{at},{row[0]},{row[1]},{row[2]}" for at, row in enumerate(rows(50))]
    path.write_text("\n".join(lines) + "\n")
    return path


def imported(path: Path, kind: str = "", **said: Any) -> Imported:
    """What becomes of a model in a folder beside it."""
    scratch = path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return bring(Order(path=path, scratch=scratch, **said), kind)


def answers(found: Imported, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What the imported graph gives for rows."""
    return dict(Session(found.files["model.onnx"]).run({"input": x.astype(np.float32)}))
