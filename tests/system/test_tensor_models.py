"""Tensor models of our own behind the whole of Tiffin, by Triton's client, also from afar."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto
from tritonclient.utils import (  # type: ignore[import-untyped]
    InferenceServerException,
    np_to_triton_dtype,
)

from tests.onnx_graphs import doubling, passing, scoring, written
from tests.system.server import KEY, Server, until

pytestmark = pytest.mark.xdist_group("tensor models")

GRAPHS = {"double": doubling(), "score": scoring(), "words": passing(TensorProto.STRING)}
MORE = """
[routes.kept]
models = ["double"]
cache = { ttl_s = 60.0 }

[guards.personal]
kind = "personal_data"

[routes.guarded]
models = ["words"]
guard = "personal"
"""
AFAR = """
[models.afar]
runtime = "remote"
protocol = "oip"
url = "{url}"
model = "score"
key_file = "{key}"
"""


def section(name: str, path: Path) -> str:
    digest = sha256(path.read_bytes()).hexdigest()
    return (
        f'\n[models.{name}]\nruntime = "onnx"\n[models.{name}.files."model.onnx"]\n'
        f'sources = ["file:{path}"]\nsha256 = "{digest}"\n'
    )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """One with models, and one that has a model of the first."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    files = {name: written(here, model, f"{name}.onnx") for name, model in GRAPHS.items()}
    near = Server(here, "".join(section(*item) for item in files.items()) + MORE)
    far: Server | None = None
    try:
        near.start()
        for name in GRAPHS:
            near.until_ready(name)
        url = str(near.http.base_url).rstrip("/")
        far = Server(there, AFAR.format(url=url, key=here / "key")).start()
        yield near, far
    finally:
        near.close()
        if far is not None:
            far.close()


@pytest.fixture
def near(servers: tuple[Server, Server]) -> Server:
    return servers[0]


@pytest.fixture
def client(near: Server) -> Iterator[triton.InferenceServerClient]:
    with client_of(near) as made:
        until(lambda: all(made.is_model_ready(name, headers=auth()) for name in GRAPHS))
        yield made


def client_of(server: Server) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(f"127.0.0.1:{server.http.base_url.port}")


def auth() -> dict[str, str]:
    """The client adds to the headers that it is given, so each call has its own."""
    return {"authorization": f"Bearer {KEY}"}


def infer(
    client: triton.InferenceServerClient,
    model: str,
    given: NDArray[Any],
    *outputs: str,
    binary: bool = True,
    **more: Any,
) -> triton.InferResult:
    tensor = triton.InferInput("x", list(given.shape), np_to_triton_dtype(given.dtype))
    tensor.set_data_from_numpy(given, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs]
    return client.infer(model, [tensor], outputs=wanted or None, headers=auth(), **more)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_answers_are_the_models_own(client: triton.InferenceServerClient, binary: bool) -> None:
    given = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(GRAPHS["score"])
    [expected] = session.run(None, {"x": given})
    result = infer(client, "score", given, "probabilities", binary=binary, request_id="r-1")
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected, atol=1e-5)
    assert result.get_response()["id"] == "r-1"
    named = infer(client, "double", given, "sum", binary=binary).get_response()
    assert [output["name"] for output in named["outputs"]] == ["sum"]
    everything = infer(client, "double", given).get_response()
    assert [output["name"] for output in everything["outputs"]] == ["y", "sum"]


def test_texts_come_back_as_they_went(client: triton.InferenceServerClient) -> None:
    given = np.array([["one", "zwei"], ["três", "चार"]], dtype=np.object_)
    for binary in (False, True):
        result = infer(client, "words", given, "y", binary=binary).as_numpy("y")
        texts = [one.decode() if isinstance(one, bytes) else one for one in result.ravel()]
        assert texts == given.ravel().tolist()


def test_a_model_tells_of_itself(client: triton.InferenceServerClient) -> None:
    found = client.get_model_metadata("double", headers=auth())
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
    assert [output["name"] for output in found["outputs"]] == ["y", "sum"]
    [version] = found["versions"]
    given = np.ones((1, 2), np.float32)
    result = infer(client, "double", given, model_version=version).get_response()
    assert (result["model_name"], result["model_version"]) == ("double", version)
    assert client.get_model_metadata("kept", headers=auth())["name"] == "kept"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.ones((1, 3), np.float32), ["'x'", "4", "3"]),
        (np.ones((4,), np.float32), ["'x'", "[4]"]),
        (np.ones((1, 4), np.int32), ["'x'", "FP32", "INT32"]),
    ],
    ids=["columns", "dimensions", "datatype"],
)
def test_what_a_model_cannot_take_is_said(
    client: triton.InferenceServerClient, given: NDArray[Any], words: list[str]
) -> None:
    with pytest.raises(InferenceServerException) as raised:
        infer(client, "score", given)
    assert raised.value.status() == "400"
    assert not [word for word in words if word not in raised.value.message()]


def test_a_kept_answer_is_given_again_binary_too(
    client: triton.InferenceServerClient, near: Server
) -> None:
    given = np.array([[1, 2]], np.float32)
    for _ in range(2):
        assert infer(client, "kept", given).as_numpy("y").tolist() == [[2, 4]]
        infer(client, "kept", given, "y", binary=False)

    def kept() -> list[str]:
        return [entry["cache"] for entry in near.accounts() if entry["model"] == "kept"]

    assert sorted(until(lambda: kept() if len(kept()) == 4 else None)) == ["hit"] * 2 + ["miss"] * 2


def test_a_guard_looks_into_texts(client: triton.InferenceServerClient) -> None:
    infer(client, "guarded", np.array([["a", "b"]], np.object_))
    for binary in (False, True):
        with pytest.raises(InferenceServerException, match="e-mail"):
            infer(client, "guarded", np.array([["a", "me@example.com"]], np.object_), binary=binary)


def test_what_was_used_is_accounted(client: triton.InferenceServerClient, near: Server) -> None:
    infer(client, "score", np.ones((7, 4), np.float32))
    entry = until(lambda: next((one for one in near.accounts() if one["rows"] == 7), None))
    assert (entry["endpoint"], entry["outcome"], entry["measured"]) == ("infer", "ok", True)
    assert entry["device_ns"] > 0


def test_a_model_leaves_and_comes_back(client: triton.InferenceServerClient, near: Server) -> None:
    pid = near.until_ready("double").pid
    client.unload_model("double", headers=auth())
    with pytest.raises(InferenceServerException, match="is unloaded"):
        infer(client, "double", np.ones((1, 2), np.float32))
    until(lambda: pid not in near.children(), what=near.explain)
    client.load_model("double", headers=auth())
    assert infer(client, "double", np.ones((1, 2), np.float32)).as_numpy("y").tolist() == [[2, 2]]


def test_another_tiffin_is_a_model_of_ours(
    client: triton.InferenceServerClient, servers: tuple[Server, Server]
) -> None:
    given = np.ones((2, 4), np.float32)
    with client_of(servers[1]) as afar:
        until(lambda: afar.is_model_ready("afar", headers=auth()), what=servers[1].explain)
        assert afar.get_model_metadata("afar", headers=auth())["inputs"][0]["shape"] == [-1, 4]
        for binary in (False, True):
            ours, theirs = (
                infer(one, name, given, "probabilities", binary=binary).as_numpy("probabilities")
                for one, name in ((client, "score"), (afar, "afar"))
            )
            np.testing.assert_array_equal(ours, theirs)
        with pytest.raises(InferenceServerException, match="'x'"):
            infer(afar, "afar", np.ones((1, 3), np.float32))
