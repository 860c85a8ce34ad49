"""Functions as steps: what they say of themselves is checked, before and after they run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiffin.errors import InvalidRequest, LoadFailed, RunFailed
from tiffin.serving.pipeline.functions import Function, step

X = {"x": np.ones(2, np.float32)}


def giving(value: Any) -> Function:
    @step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[2]", "many": "INT64[-1]*"})
    def function(x: Any) -> Any:
        return value

    return Function("f", function, {}, {})


def test_options_and_files_reach_it() -> None:
    @step(takes={"x": "FP32[-1]"}, gives={"y": "BYTES[1]"})
    def named(x: Any, *, prefix: str = "", files: Mapping[str, Path]) -> dict[str, Any]:
        return {"y": np.array([f"{prefix}{files['a.txt'].name}".encode()], object)}

    values, usage = Function("f", named, {"prefix": "in "}, {"a.txt": Path("/b/c")})(X)
    assert values["y"][0] == b"in c"
    assert usage.prepare_ns > 0


@pytest.mark.parametrize("option", ["nope", "x", "files"])
def test_an_option_that_it_does_not_have_is_refused(option: str) -> None:
    @step(takes={"x": "FP32[-1]"}, gives={})
    def function(x: Any, *, files: Any = None) -> dict[str, Any]:
        return {}

    with pytest.raises(LoadFailed, match=f"no option '{option}'"):
        Function("f", function, {option: 1}, {})


def test_what_is_not_marked_is_no_step() -> None:
    with pytest.raises(LoadFailed, match="marked with @step"):
        Function("f", len, {}, {})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "didn't give 'y'"),
        (None, "didn't give 'y'"),
        ({"y": np.ones(2)}, r"float64 \[2\], not FP32\[2\]"),
        ({"y": np.ones(3, np.float32)}, r"float32 \[3\], not FP32\[2\]"),
        ({"y": np.ones(2, np.float32), "many": np.ones(1, np.int64)}, "instead of many"),
    ],
)
def test_what_it_gives_must_be_what_it_says(value: Any, told: str) -> None:
    with pytest.raises(RunFailed, match=told):
        giving(value)(X)


def test_a_refusal_of_the_request_comes_through() -> None:
    @step(takes={"x": "FP32[-1]"}, gives={})
    def refuses(x: Any) -> dict[str, Any]:
        raise InvalidRequest("not this")

    with pytest.raises(InvalidRequest, match="not this"):
        Function("f", refuses, {}, {})(X)


@pytest.mark.parametrize("raised", [KeyboardInterrupt("secret"), GeneratorExit(), SystemExit(1)])
def test_whatever_it_raises_fails_one_request(raised: BaseException) -> None:
    @step(takes={"x": "FP32[-1]"}, gives={"y": "FP32[1]"})
    def function(x: Any) -> Any:
        raise raised

    with pytest.raises(RunFailed, match=f"failed: {type(raised).__name__}$"):
        Function("f", function, {}, {})(X)
