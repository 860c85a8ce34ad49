"""A tensor replica's edge over real runtimes: right answers under load, refusals, leaving."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession  # type: ignore[import-untyped]

from tests.onnx_graphs import doubling, fixed, lookup, passing, quantized, scoring, written
from tests.polling import eventually
from tiffin.adapters.runtimes.onnx import OnnxRuntime, Placement
from tiffin.adapters.runtimes.python import Code, PythonRuntime
from tiffin.api.tensor_replica import Identity, TensorReplicaApi
from tiffin.config.models import Decision
from tiffin.ports.exchange import Headers
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.serving.progress import ProgressFile
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.testing.tensors import POISON, DoublingTensors

REVISION = "sha256:" + "0123456789abcdef" * 4
INFER = "/v2/models/m/infer"


class Site:
    """An edge over a loaded model."""

    def __init__(self, folder: Path, runtime: TensorRuntime) -> None:
        self.meter = Meter("replica", "ep_1")
        self.measures = TensorMeasures(self.meter, "m", "0123456789ab")
        self.clock = FakeClock()
        progress = ProgressFile(folder / "progress")
        self.replica = TensorReplica(runtime, self.clock, progress, self.measures)
        self.api = TensorReplicaApi(
            self.replica, Identity(REVISION, "test"), self.meter, self.measures, 1_000_000
        )

    def request(self, body: Any, headers: Headers | None = None, path: str = INFER) -> FakeExchange:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        return FakeExchange(b"POST", path.encode(), headers=headers or [], body=encoded)

    async def post(self, body: Any, headers: Headers | None = None, path: str = INFER) -> Any:
        return await answered(self.api, self.request(body, headers, path))

    async def get(self, path: str) -> FakeExchange:
        return await answered(self.api, FakeExchange(b"GET", path.encode()))

    def failures(self) -> dict[str, float]:
        families = self.meter.snapshot().families
        [family] = [f for f in families if f.name == "nv_inference_request_failure"]
        return {s.labels[-1]: s.numbers[0] for s in family.series}


@asynccontextmanager
async def site(folder: Path, runtime: TensorRuntime, **load: Any) -> AsyncIterator[Site]:
    made = Site(folder, runtime)
    await made.replica.load(**load)
    await made.replica.warm_up()
    yield made
    await made.replica.close()


def onnx(folder: Path, model: bytes) -> OnnxRuntime:
    return OnnxRuntime({"model.onnx": written(folder, model)}, "model.onnx", Placement(), folder)


def asking(x: Any, datatype: str = "FP32", name: str = "x", **more: Any) -> dict[str, Any]:
    array = np.asarray(x)
    tensor = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    return {"inputs": [{**tensor, "data": array.ravel().tolist()}], **more}


def outputs_of(exchange: FakeExchange) -> dict[str, Any]:
    assert exchange.status == 200, bytes(exchange.sent)
    return {
        output["name"]: np.array(output["data"]).reshape(output["shape"])
        for output in json_of(exchange)["outputs"]
    }


async def test_results_are_onnxruntimes_own(tmp_path: Path) -> None:
    session = InferenceSession(scoring())
    random = np.random.default_rng(1)
    async with site(tmp_path, onnx(tmp_path, scoring())) as made:
        for rows in (1, 3, 32, 100):
            x = random.normal(size=(rows, 4)).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            told = outputs_of(await made.post(asking(x)))["probabilities"]
            assert np.abs(told - expected).max() <= 1e-5


async def test_a_quantized_graphs_answer_doesnt_depend_on_who_else_asks(tmp_path: Path) -> None:
    session = InferenceSession(quantized())
    random = np.random.default_rng(2)
    async with site(tmp_path, onnx(tmp_path, quantized())) as made:
        asked = [random.normal(scale=s, size=(2, 4)).astype(np.float32) for s in (0.1, 1, 50)]
        told = await asyncio.gather(*[made.post(asking(x)) for x in asked])
        for x, exchange in zip(asked, told, strict=True):
            (expected,) = session.run(None, {"x": x})
            assert np.abs(outputs_of(exchange)["y"] - expected).max() <= 1e-5


async def test_each_of_64_at_once_gets_its_own_right_answer(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:

        async def one(number: int) -> None:
            rows, columns = 1 + number % 3, 1 + number % 4
            x = np.full((rows, columns), number, np.float32)
            x[0, 0] += 0.5
            if number % 8 == 7:
                exchange = await made.post(asking(x[0], id=str(number)))
                assert exchange.status == 400
                message = json_of(exchange)["error"]["message"]
                assert message == (f"input 'x' is FP32 [{columns}]; the model takes FP32 [-1, -1]")
                return
            exchange = await made.post(asking(x, id=str(number)))
            told = outputs_of(exchange)
            assert json_of(exchange)["id"] == str(number)
            assert told["y"].tolist() == (2 * x).tolist()
            assert told["sum"].tolist() == x.sum(axis=1).tolist()

        for _ in range(3):
            await asyncio.gather(*[one(number) for number in range(64)])
        assert made.failures() == {"OTHER": 24}


async def test_values_that_one_request_gets_wrong_harm_no_other(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, lookup())) as made:
        asked = [made.post(asking([i], "INT64", "ids")) for i in (0, 1, 99, 3)]
        told = await asyncio.gather(*asked)
        assert [exchange.status for exchange in told] == [200, 200, 400, 200]
        assert outputs_of(told[3])["y"].tolist() == [[9, 10, 11]]
        assert "out of data bounds" in json_of(told[2])["error"]["message"]


async def test_160_clients_that_vanish_cost_no_more_than_the_running_batch(tmp_path: Path) -> None:
    runtime = DoublingTensors()
    async with site(tmp_path, runtime) as made:
        runtime.batches.clear()
        runtime.began.clear()
        runtime.gate.clear()
        exchanges = [made.request(asking([[number]])) for number in range(160)]
        for exchange in exchanges:
            exchange.start(made.api)
        await eventually(runtime.began.is_set)
        assert made.replica.waiting == 128
        await asyncio.gather(*[exchange.leave() for exchange in exchanges])
        assert made.replica.waiting == 0
        runtime.gate.set()
        assert outputs_of(await made.post(asking([[7]])))["y"].tolist() == [[14]]
        assert runtime.rows == 32 + 1
        assert made.failures() == {"CANCELED": 160}


async def test_what_a_request_used_is_told_in_a_header(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        exchange = await made.post(asking([[1], [2]]))
        usage = json.loads(exchange.answer_headers[b"x-tiffin-usage"])
        assert usage["rows"] == 2
        assert set(usage) <= {"rows", "queue_ns", "device_ns", "prepare_ns", "reason"}


async def test_binary_data_goes_in_and_comes_out(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        x = np.array([[1, 2]], np.float32)
        header = asking(x, id="b", parameters={"binary_data_output": True})
        del header["inputs"][0]["data"]
        header["inputs"][0]["parameters"] = {"binary_data_size": 8}
        told = json.dumps(header).encode()
        headers = [(b"inference-header-content-length", b"%d" % len(told))]
        exchange = await made.post(told + x.tobytes(), headers)
        assert exchange.answer_headers[b"content-type"] == b"application/octet-stream"
        length = int(exchange.answer_headers[b"inference-header-content-length"])
        assert json.loads(exchange.sent[:length])["id"] == "b"
        assert np.frombuffer(exchange.sent[length:], np.float32).tolist() == [2, 4, 3]


async def test_nan_is_null_and_infinity_needs_binary(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        body = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[null]}]}'
        exchange = await made.post(body)
        assert [o["data"] for o in json_of(exchange)["outputs"]] == [[None], [None]]
        exchange = await made.post(asking([[3e38]], outputs=[{"name": "y"}]))
        assert exchange.status == 500
        assert "'y' has an infinite value" in json_of(exchange)["error"]["message"]
        binary = [{"name": "y", "parameters": {"binary_data": True}}]
        assert (await made.post(asking([[3e38]], outputs=binary))).status == 200


@pytest.mark.parametrize("version", ["01234567", "0123456789ab", REVISION.removeprefix("sha256:")])
async def test_a_version_is_the_first_digits_of_the_revision(version: str, tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        path = f"/v2/models/m/versions/{version}/infer"
        assert json_of(await made.post(asking([[1]]), path=path))["model_version"] == "0123456789ab"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/m/versions/0123456/infer", 404),
        ("/v2/models/m/versions/fedcba98/infer", 404),
        ("/v2/models/m/versions/1/infer", 404),
        ("/v2/models/m/infer/more", 404),
        ("/v2/models/m", 405),
        ("/v1/chat/completions", 404),
    ],
)
async def test_other_paths_and_methods_are_refused(path: str, status: int, tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        assert (await made.post(asking([[1]]), path=path)).status == status


async def test_metadata_tells_everything_that_can_be_asked_for(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, scoring()), decision=Decision()) as made:
        told = json_of(await made.get("/v2/models/credit%20risk"))
        assert told["name"] == "credit risk"
        assert told["versions"] == ["0123456789ab"]
        assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        assert [o["name"] for o in told["outputs"]] == ["probabilities", "decision", "score"]
        assert json_of(await made.get("/v2/health/ready")) == {"ready": True}
        assert json_of(await made.get("/v2/models/m/ready")) == {"name": "m", "ready": True}
        assert json_of(await made.get("/metrics.json"))["role"] == "replica"


async def test_a_decision_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    settings = Decision(labels=("good", "bad"), features=list("abcd"), reference=[0.0] * 4)
    async with site(tmp_path, onnx(tmp_path, scoring()), decision=settings) as made:
        names = ["decision", "reasons", "score"]
        exchange = await made.post(asking([[1, 2, 3, 4]], outputs=[{"name": n} for n in names]))
        told = outputs_of(exchange)
        assert list(told) == names
        assert told["decision"][0] == ("bad" if told["score"][0] >= 0.5 else "good")
        assert len(json.loads(told["reasons"][0])) == 3


async def test_a_crash_in_a_users_code_is_a_500_that_keeps_it_inside(tmp_path: Path) -> None:
    code = """
class Model:
    inputs = [("x", "FP32", [-1, 1])]
    outputs = [("y", "FP32", [-1, 1])]
    def predict(self, inputs):
        if (inputs["x"] > 100).any():
            raise ValueError("the secret of line 7")
        return {"y": inputs["x"] * 2}
"""
    files = {"model.py": written(tmp_path, code.encode(), "model.py")}
    async with site(tmp_path, PythonRuntime(files, Code(trusted=True), tmp_path)) as made:
        good, bad = await asyncio.gather(made.post(asking([[1]])), made.post(asking([[POISON]])))
        assert outputs_of(good)["y"].tolist() == [[2]]
        assert bad.status == 500
        assert b"secret" not in bad.sent
        assert b"Traceback" not in bad.sent
        assert made.failures() == {"BACKEND": 1}


async def test_a_graph_of_one_shape_and_one_of_text_serve_too(tmp_path: Path) -> None:
    async with site(tmp_path, onnx(tmp_path, fixed())) as made:
        asked = [made.post(asking(np.full((2, 3), i))) for i in range(4)]
        told = [outputs_of(exchange)["y"][0, 0] for exchange in await asyncio.gather(*asked)]
        assert told == [0, -1, -2, -3]
    async with site(tmp_path, onnx(tmp_path, passing(8))) as made:
        told_text = outputs_of(await made.post(asking([["नमस्ते", "a"]], "BYTES")))
        assert told_text["y"].tolist() == [["नमस्ते", "a"]]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", [], 400),
        (b"\xff", [], 400),
        (b"{}", [(b"inference-header-content-length", b"9")], 400),
        (asking([[1]]), [(b"x-tiffin-timeout-ms", b"-1")], 400),
        (asking([[1]]), [(b"x-tiffin-timeout-ms", b"0")], 504),
        (b" " * 1_000_001, [], 413),
    ],
)
async def test_what_cant_be_read_or_is_late_is_refused(
    body: Any, headers: Headers, status: int, tmp_path: Path
) -> None:
    async with site(tmp_path, onnx(tmp_path, doubling())) as made:
        exchange = await made.post(body, headers)
        assert exchange.status == status
        assert json_of(exchange)["error"]["message"]
