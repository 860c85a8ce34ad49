"""A user's class as a model: trusted or refused, its mistakes named, its tracebacks kept inside."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tiffin.adapters.runtimes.python import MODULE, Code, PythonRuntime
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed
from tiffin.types.tensors import Signature

HEAD = """
import numpy as np
class Model:
    inputs = [("x", "FP32", [-1, 2])]
    outputs = [("y", "FP32", [-1])]
"""
SUM = "    def predict(self, inputs):\n        return {'y': inputs['x'].sum(axis=1)}\n"
X = np.array([[1, 2], [3, 4]], np.float32)


def runtime(
    folder: Path, code: str, files: dict[str, str] | None = None, *, trusted: bool = True
) -> PythonRuntime:
    paths = {}
    for number, (name, text) in enumerate({"model.py": code, **(files or {})}.items()):
        paths[name] = folder / f"{number:064}"
        paths[name].write_text(text)
    return PythonRuntime(paths, Code(trusted=trusted), folder)


async def loaded(
    folder: Path, code: str, files: dict[str, str] | None = None
) -> tuple[PythonRuntime, Signature]:
    made = runtime(folder, code, files)
    return made, await made.load()


def predicting(expression: str) -> str:
    return f"{HEAD}    def predict(self, inputs):\n        return {expression}\n"


async def test_code_that_nobody_declared_trusted_never_runs(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    with pytest.raises(LoadFailed, match="trusted = true"):
        await runtime(tmp_path, code, trusted=False).load()
    assert "ran" not in names_in(tmp_path)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_its_files_are_given_by_name_and_its_modules_can_be_imported(tmp_path: Path) -> None:
    code = HEAD.replace("import numpy", "import beside_it\nimport numpy") + (
        "    def load(self, files):\n"
        "        self.add = float(files['add.txt'].read_text()) + beside_it.ONE\n"
        "    def predict(self, inputs):\n"
        "        return {'y': inputs['x'].sum(axis=1) + self.add}\n"
    )
    files = {"add.txt": "10", "beside_it.py": "ONE = 1"}
    made, _ = await loaded(tmp_path, code, files)
    assert made.run({"x": X}, ["y"])["y"].tolist() == [14, 18]
    await made.close()
    assert MODULE not in sys.modules
    assert not [path for path in sys.path if str(tmp_path) in path]
    sys.modules.pop("beside_it")


@pytest.mark.parametrize(
    "raised",
    [
        "ValueError('secret')",
        "SystemExit(1)",
        "KeyError('x')",
        "KeyboardInterrupt('secret')",
        "GeneratorExit()",
        "BaseException('secret')",
    ],
)
async def test_what_its_code_raises_stays_inside(raised: str, tmp_path: Path) -> None:
    code = f"{HEAD}    def predict(self, inputs):\n        raise {raised}\n"
    made, _ = await loaded(tmp_path, code)
    with pytest.raises(RunFailed) as failure:
        made.run({"x": X}, ["y"])
    assert "secret" not in failure.value.message
    assert raised.partition("(")[0] in failure.value.message
    await made.close()


async def test_what_it_returns_may_raise_anything_too(tmp_path: Path) -> None:
    code = predicting("{'y': Odd()}") + (
        "class Odd:\n"
        "    def __array__(self, *given, **more):\n"
        "        raise KeyboardInterrupt('secret')\n"
    )
    made, _ = await loaded(tmp_path, code)
    with pytest.raises(RunFailed, match="raised KeyboardInterrupt;"):
        made.run({"x": X}, ["y"])
    await made.close()


@pytest.mark.parametrize("words", ["'half \\ud800'", "7", "['a list']"])
async def test_its_refusal_can_be_told_whatever_it_holds(words: str, tmp_path: Path) -> None:
    code = (
        f"from tiffin.errors import InvalidRequest\n{HEAD}"
        f"    def predict(self, inputs):\n        raise InvalidRequest({words})\n"
    )
    made, _ = await loaded(tmp_path, code)
    with pytest.raises(InvalidRequest) as refusal:
        made.run({"x": X}, ["y"])
    assert refusal.value.message.encode()
    await made.close()


async def test_why_it_didnt_load_is_told_without_its_words(tmp_path: Path) -> None:
    code = f"{HEAD}    def load(self, files):\n        raise KeyboardInterrupt('secret')\n{SUM}"
    with pytest.raises(LoadFailed, match="loaded: KeyboardInterrupt") as failure:
        await loaded(tmp_path, code)
    assert "secret" not in failure.value.message


async def test_its_code_may_refuse_a_request(tmp_path: Path) -> None:
    code = (
        "from tiffin.errors import InvalidRequest\n"
        f"{HEAD}    def predict(self, inputs):\n        raise InvalidRequest('too young')\n"
    )
    made, _ = await loaded(tmp_path, code)
    with pytest.raises(InvalidRequest, match="too young"):
        made.run({"x": X}, ["y"])
    await made.close()


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("[1]", "returned list, not a dict"),
        ("{}", "returned no 'y'"),
        ("{'y': inputs['x']}", r"'y' has the shape \[2, 2\]; declared is \[-1\]"),
        ("{'y': np.array(['a', 'b'])}", "'y' is <U1; declared is FP32"),
        ("{'y': [[1], [2, 3]]}", "isn't an array"),
    ],
)
async def test_a_wrong_return_is_named(expression: str, told: str, tmp_path: Path) -> None:
    made, _ = await loaded(tmp_path, predicting(expression))
    with pytest.raises(RunFailed, match=told):
        made.run({"x": X}, ["y"])
    await made.close()


@pytest.mark.parametrize("expression", ["[3, 7]", "np.array([3, 7])", "inputs['x'].sum(axis=1)"])
async def test_what_means_the_declared_type_is_taken(expression: str, tmp_path: Path) -> None:
    made, _ = await loaded(tmp_path, predicting(f"{{'y': np.asarray({expression}, 'f8')}}"))
    y = made.run({"x": X}, ["y"])["y"]
    assert y.tolist() == [3, 7]
    assert y.dtype == np.float32
    await made.close()


async def test_whole_numbers_that_might_not_fit_are_refused(tmp_path: Path) -> None:
    code = predicting("{'y': np.array([1, 2], 'i8')}").replace('("y", "FP32"', '("y", "INT32"')
    made, _ = await loaded(tmp_path, code)
    with pytest.raises(RunFailed, match="'y' is int64; declared is INT32"):
        made.run({"x": X}, ["y"])
    await made.close()


async def test_text_may_be_str_or_bytes(tmp_path: Path) -> None:
    code = predicting("{'y': np.array(['a', b'b'], object)}").replace(
        '("y", "FP32"', '("y", "BYTES"'
    )
    made, _ = await loaded(tmp_path, code)
    assert made.run({"x": X}, ["y"])["y"].tolist() == [b"a", b"b"]
    await made.close()


async def test_an_example_is_kept_for_the_warm_up(tmp_path: Path) -> None:
    made, _ = await loaded(tmp_path, f"{HEAD}    example = {{'x': [[1, 2]]}}\n{SUM}")
    assert made.example is not None
    assert made.example["x"].tolist() == [[1, 2]]
    await made.close()


async def test_a_class_may_say_that_it_takes_no_rows(tmp_path: Path) -> None:
    code = f"{HEAD}    batched = False\n{SUM}".replace("[-1, 2]", "[2, 2]")
    made, signature = await loaded(tmp_path, code)
    assert not signature.batched
    await made.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("x = 1", "no class 'Model'", id="no class"),
        pytest.param("class Model: pass", "no method 'predict'", id="no predict"),
        pytest.param(f"class Model:\n{SUM}", "needs `inputs`", id="no signature"),
        pytest.param(
            HEAD.replace("FP32", "FLOAT") + SUM, "with the datatypes BOOL", id="unknown datatype"
        ),
        pytest.param(HEAD.replace("[-1]", "[3]") + SUM, "first dimension must be", id="no rows"),
        pytest.param("import not_there", "ModuleNotFoundError", id="a missing module"),
        pytest.param(
            f"{HEAD}    def load(self, files):\n        1 / 0\n{SUM}", "ZeroDivision", id="load"
        ),
        pytest.param(
            f"{HEAD}    def __init__(self, a):\n        pass\n{SUM}", "TypeError", id="init"
        ),
    ],
)
async def test_a_class_that_cant_serve_says_why(code: str, told: str, tmp_path: Path) -> None:
    made = runtime(tmp_path, code)
    with pytest.raises(LoadFailed, match=told):
        await made.load()
    await made.close()


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py"])
async def test_a_files_name_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    made = runtime(tmp_path, HEAD + SUM, {name: ""})
    with pytest.raises(LoadFailed, match="can't be called"):
        await made.load()
    await made.close()
