"""The functions that steps may name: Tiffin's own, and those of a pipeline's files."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiffin.app.hosted import Surroundings
from tiffin.app.hosted_pipeline import FUNCTIONS, PipelineHosted, built_in
from tiffin.errors import LoadFailed
from tiffin.serving.pipeline.functions import Function
from tiffin.serving.progress import ProgressFile
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.types.snapshot import Deployment, PlacedFile


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_ours_can_be_a_step(name: str) -> None:
    assert Function(name, built_in(name), {}, {}).ends.gives


def test_a_function_that_nobody_has_is_named() -> None:
    with pytest.raises(LoadFailed, match=r"no function 'ocr.reed'; there are: .*ocr.read"):
        built_in("ocr.reed")


@pytest.mark.parametrize(
    ("code", "settings", "told"),
    [
        ("1 / 0", {}, "'f.py' can't be run: ZeroDivisionError"),
        ("x = 1", {}, "'f.py:g' isn't a function that is marked with @step"),
        ("def g(): pass", {}, "'f.py:g' isn't a function that is marked with @step"),
        ("", {"trusted": False}, "isn't trusted"),
    ],
)
async def test_code_that_cannot_be_a_step_fails_the_load(
    tmp_path: Path, code: str, settings: dict[str, Any], told: str
) -> None:
    file = tmp_path / "code"
    file.write_text(code)
    spec = {
        "runtime": "pipeline",
        "trusted": True,
        "steps": [{"name": "a", "function": "f.py:g", "inputs": {"x": "request.x"}}],
        "outputs": {"y": "a.y"},
        **settings,
    }
    deployment = Deployment(
        model="p",
        revision="sha256:" + 64 * "0",
        socket=str(tmp_path / "p.sock"),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        files={"f.py": PlacedFile(path=str(file), sha256="")},
    )
    progress = ProgressFile(tmp_path / "p.progress")
    hosted = PipelineHosted(
        Surroundings(deployment, FakeClock(), progress, Meter("replica", "e"), 1000)
    )
    with pytest.raises(LoadFailed, match=told):
        await hosted.load()
    await hosted.close()
    progress.close()
