"""The class that the page on your own code shows is served as the page says."""

import re
from pathlib import Path

import numpy as np

from tests.docs.pages import ROOT
from tiffin.adapters.runtimes.python import Code, PythonRuntime

PAGE = ROOT / "docs/howto/your-own-code.md"


def files(folder: Path) -> dict[str, Path]:
    shown = re.search(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    texts = {"model.py": shown[1], "countries.txt": "IN\nNP\n"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


async def test_the_class_on_the_page_is_a_model(tmp_path: Path) -> None:
    runtime = PythonRuntime(files(tmp_path), Code(trusted=True), tmp_path)
    signature = await runtime.load()
    assert signature.batched
    assert runtime.example is not None
    inputs = {
        "amount": np.array([[500], [10]], np.float32),
        "country": np.array([[b"IN"], [b"??"]], object),
    }
    risk = runtime.run(inputs, ["risk"])["risk"]
    assert np.allclose(risk, [0.5, 0.9])
    await runtime.close()
