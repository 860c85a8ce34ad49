"""The starter's `credit-default` is what its script makes of its data."""

import hashlib
import re
from importlib import resources

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
import pytest
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from tests.real_models import store
from tiffin.config.models import files_of
from tiffin.control.catalogue.starter import CREDIT_DEFAULT
from tools.train_credit_default import FEATURES, table, train

PACKAGED = resources.files("tiffin").joinpath("starter")


def test_the_packaged_file_is_the_configured_one_and_small() -> None:
    content = PACKAGED.joinpath("credit-default.onnx").read_bytes()
    file = files_of(CREDIT_DEFAULT)["model.onnx"]
    assert hashlib.sha256(content).hexdigest() == file.sha256
    assert len(content) == file.size_bytes < 100_000


@pytest.mark.models
def test_training_again_gives_the_same_model_and_the_card_says_how_good_it_is() -> None:
    trained = train(*table(store()))
    content = PACKAGED.joinpath("credit-default.onnx").read_bytes()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    _, probabilities = session.run(None, {"input": trained.held_out})
    packaged = roc_auc_score(trained.truth, probabilities[:, 1])
    assert abs(packaged - roc_auc_score(trained.truth, trained.scores)) < 0.01
    assert np.abs(probabilities[:, 1] - trained.scores).mean() < 0.01
    card = PACKAGED.joinpath("credit-default.md").read_text()
    told = re.search(r"AUC held out \| ([\d.]+)", card)
    assert told
    assert abs(float(told[1]) - packaged) < 0.001
    decision = CREDIT_DEFAULT.decision
    assert decision is not None
    assert decision.features == list(FEATURES)
    assert decision.reference == trained.medians
    assert decision.threshold == round(trained.rate, 2)
