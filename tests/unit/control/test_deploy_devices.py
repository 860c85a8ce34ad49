"""What of a model's section says where its replicas compute."""

from pathlib import Path
from typing import Any

import pytest

from tiffin.config.models import EchoModel, LaunchedModel, LocalModel, OnnxModel
from tiffin.control.deploy import deployments_of, device_bytes_of, devices_of
from tiffin.types.paths import DataFolder

MIB = 1 << 20


def launched(**given: Any) -> LaunchedModel:
    return LaunchedModel(engine="vllm", model="m", **given)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (EchoModel(), ("cpu",)),
        (EchoModel(devices=["cuda:1"]), ("cuda:1",)),
        (OnnxModel(files={}), ("cpu",)),
        (OnnxModel(files={}, providers=("cuda",)), ("auto",)),
        (OnnxModel(files={}, providers=("tensorrt", "cpu")), ("auto", "cpu")),
        (OnnxModel(files={}, providers=("cuda",), devices=["cpu"]), ("cpu",)),
        (OnnxModel(files={}, providers=("cuda",), devices="cpu"), ("cpu",)),
        (launched(), ("auto",)),
        (launched(tensor_parallel=2), ("auto", "auto")),
        (launched(tensor_parallel=2, devices=["cuda:0", "cuda:3"]), ("cuda:0", "cuda:3")),
    ],
)
def test_devices_of_a_model(model: LocalModel, wanted: tuple[str, ...]) -> None:
    assert devices_of(model) == wanted


def test_a_launched_engine_takes_all_unless_it_is_told() -> None:
    assert device_bytes_of(launched(), {}) == 0
    assert device_bytes_of(launched(device_memory_mb=5), {}) == 5 * MIB
    assert device_bytes_of(OnnxModel(files={}, device_memory_mb=7), {}) == 7 * MIB
    assert device_bytes_of(OnnxModel(files={}), {}) > 0


def test_other_devices_are_another_generation(tmp_path: Path) -> None:
    def generation(model: LocalModel) -> str:
        models = {"m": model}
        return deployments_of("m", models, {}, DataFolder(tmp_path), 2, "")[0].generation

    assert generation(launched()) == generation(launched(device_memory_mb=5))
    assert generation(launched()) != generation(launched(devices=["cuda:0"]))


def test_an_engine_shares_no_threads_with_models_on_the_processor(tmp_path: Path) -> None:
    models: dict[str, Any] = {"e": launched(), "o": OnnxModel(files={})}
    folder = DataFolder(tmp_path)
    assert deployments_of("o", models, {}, folder, 4, "")[0].threads == 4
    assert deployments_of("e", models, {}, folder, 4, "")[0].threads == 0
