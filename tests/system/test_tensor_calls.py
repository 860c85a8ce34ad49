"""The tensor protocol over gRPC, by Triton's own client, before a whole Tiffin."""

import queue
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import (  # type: ignore[import-untyped]
    InferenceServerException,
    np_to_triton_dtype,
)

from tests.onnx_graphs import doubling, passing_each, scoring, written
from tests.system.server import KEY, Server, until
from tests.system.test_tensor_models import section

pytestmark = pytest.mark.xdist_group("tensor models")

KINDS = {
    "BOOL": (TensorProto.BOOL, np.array([[True, False]])),
    "UINT8": (TensorProto.UINT8, np.array([[0, 255]], np.uint8)),
    "UINT16": (TensorProto.UINT16, np.array([[0, 2**16 - 1]], np.uint16)),
    "UINT32": (TensorProto.UINT32, np.array([[0, 2**32 - 1]], np.uint32)),
    "UINT64": (TensorProto.UINT64, np.array([[0, 2**64 - 1]], np.uint64)),
    "INT8": (TensorProto.INT8, np.array([[-128, 127]], np.int8)),
    "INT16": (TensorProto.INT16, np.array([[-(2**15), 5]], np.int16)),
    "INT32": (TensorProto.INT32, np.array([[-(2**31), 5]], np.int32)),
    "INT64": (TensorProto.INT64, np.array([[-(2**63), 5]], np.int64)),
    "FP16": (TensorProto.FLOAT16, np.array([[0.5, np.inf]], np.float16)),
    "FP32": (TensorProto.FLOAT, np.array([[0.5, np.nan]], np.float32)),
    "FP64": (TensorProto.DOUBLE, np.array([[-0.1, np.inf]], np.float64)),
    "BYTES": (TensorProto.STRING, np.array([["one", "चार"]], np.object_)),
}
SAME = passing_each({name: kind for name, (kind, _) in KINDS.items()})
GRAPHS = {"double": doubling(), "score": scoring(), "same": SAME}
GATED = """
import pathlib, time

class Model:
    inputs = [("x", "FP32", [-1, 1])]
    outputs = [("y", "FP32", [-1, 1])]

    def predict(self, inputs):
        while pathlib.Path({shut!r}).exists():
            time.sleep(0.005)
        return {{"y": inputs["x"] * 2}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("calls")
    files = {name: written(folder, model, f"{name}.onnx") for name, model in GRAPHS.items()}
    sections = [section(*item) for item in files.items()]
    with serving(folder, port, "".join(sections) + gated(folder)) as made:
        yield made


@contextmanager
def serving(folder: Path, port: int, models: str) -> Iterator[Server]:
    made = Server(folder, models)
    text = made.config.read_text()
    made.config.write_text(text.replace("[server]\n", f"[server]\ngrpc_port = {port}\n"))
    try:
        yield made.start()
    finally:
        (folder / "shut").unlink(missing_ok=True)
        made.close()


def gated(folder: Path) -> str:
    """A model that computes only while there is no file `shut` in the folder."""
    code = folder / "gated.py"
    code.write_text(GATED.format(shut=str(folder / "shut")))
    return (
        '\n[models.gated]\nruntime = "python"\ncode = "gated.py"\ntrusted = true\n'
        f'[models.gated.files."gated.py"]\nsources = ["file:{code}"]\n'
        f'sha256 = "{sha256(code.read_bytes()).hexdigest()}"\n'
    )


@pytest.fixture
def shut(server: Server) -> Iterator[Path]:
    """The file that keeps the gated model of the module's server from computing."""
    path = server.config.parent / "shut"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def client(server: Server, port: int) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as made:
        yield made


def auth(key: str = KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def tensor(given: NDArray[Any], name: str = "x") -> triton.InferInput:
    made = triton.InferInput(name, list(given.shape), np_to_triton_dtype(given.dtype))
    made.set_data_from_numpy(given)
    return made


def ready(client: triton.InferenceServerClient, model: str) -> None:
    until(lambda: client.is_model_ready(model, headers=auth()), within_s=60.0)


def infer(
    client: triton.InferenceServerClient, model: str, given: NDArray[Any], **more: Any
) -> triton.InferResult:
    return client.infer(model, [tensor(given)], **{"headers": auth(), **more})


def test_every_datatype_comes_back(client: triton.InferenceServerClient) -> None:
    ready(client, "same")
    given = [tensor(array, f"x-{name}") for name, (_, array) in KINDS.items()]
    found = client.infer("same", given, headers=auth(), request_id="r-1")
    assert found.get_response().id == "r-1"
    for name, (_, array) in KINDS.items():
        back = found.as_numpy(f"y-{name}")
        if name == "BYTES":
            assert [one.decode() for one in back.ravel()] == array.ravel().tolist()
        else:
            np.testing.assert_array_equal(back, array, name)
        assert found.get_output(f"y-{name}").datatype == name


def test_it_tells_of_itself(client: triton.InferenceServerClient) -> None:
    ready(client, "double")
    assert client.is_server_live()
    assert client.is_server_ready()
    about = client.get_server_metadata(headers=auth())
    assert about.name == "tiffin"
    told = client.get_model_metadata("double", headers=auth())
    assert [(one.name, one.datatype, list(one.shape)) for one in told.inputs] == [
        ("x", "FP32", [-1, -1])
    ]
    [version] = told.versions
    given = np.ones((1, 2), np.float32)
    wanted = [triton.InferRequestedOutput("sum")]
    found = infer(client, "double", given, model_version=version, outputs=wanted)
    assert [one.name for one in found.get_response().outputs] == ["sum"]
    assert found.get_response().model_version == version
    rows = client.get_model_repository_index(headers=auth()).models
    assert ("double", version, "READY") in {(row.name, row.version, row.state) for row in rows}


@pytest.mark.parametrize(
    ("model", "given", "key", "code", "words"),
    [
        ("score", np.ones((1, 3), np.float32), KEY, "INVALID_ARGUMENT", "'x'"),
        ("score", np.ones((1, 4), np.int32), KEY, "INVALID_ARGUMENT", "FP32"),
        ("nobody", np.ones((1, 4), np.float32), KEY, "NOT_FOUND", "nobody"),
        ("score", np.ones((1, 4), np.float32), "wrong", "UNAUTHENTICATED", "key"),
        ("score", np.ones((2000, 2000), np.float32), KEY, "RESOURCE_EXHAUSTED", "larger"),
    ],
    ids=["shape", "datatype", "model", "key", "size"],
)
def test_refusals_have_their_status(
    client: triton.InferenceServerClient,
    model: str,
    given: NDArray[Any],
    key: str,
    code: str,
    words: str,
) -> None:
    ready(client, "score")
    with pytest.raises(InferenceServerException) as raised:
        infer(client, model, given, headers=auth(key))
    assert raised.value.status() == f"StatusCode.{code}"
    assert words in raised.value.message()


def test_contents_by_field_and_what_is_wrong_with_them(
    client: triton.InferenceServerClient, port: int
) -> None:
    ready(client, "double")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = service_pb2.ModelInferRequest(model_name="double")
        one = call.inputs.add(name="x", datatype="FP32", shape=[1, 2])
        one.contents.fp32_contents.extend([1.0, 2.5])
        metadata = [("authorization", f"Bearer {KEY}")]
        reply = stub.ModelInfer(call, metadata=metadata)
        [y] = [
            np.frombuffer(raw, np.float32).tolist()
            for output, raw in zip(reply.outputs, reply.raw_output_contents, strict=True)
            if output.name == "y"
        ]
        assert y == [2.0, 5.0]
        one.contents.int_contents.append(1)
        with pytest.raises(grpc.RpcError) as raised:
            stub.ModelInfer(call, metadata=metadata)
        assert "fp32_contents" in raised.value.details()
        assert dict(raised.value.trailing_metadata())["x-tiffin-error"] == "invalid_value"
        nonsense = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as raised:
            nonsense(b"\xff\xff", metadata=metadata)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        unknown = channel.unary_unary("/inference.GRPCInferenceService/LogSettings")
        with pytest.raises(grpc.RpcError) as raised:
            unknown(b"", metadata=metadata)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_answers_in_order_and_goes_on_after_an_error(
    client: triton.InferenceServerClient,
) -> None:
    ready(client, "double")
    came: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)), headers=auth())
    for at in range(5):
        model = "nobody" if at == 2 else "double"
        client.async_stream_infer(model, [tensor(np.full((1, 2), at, np.float32))], request_id="a")
    answers = [came.get(timeout=20) for _ in range(5)]
    client.stop_stream()
    assert "nobody" in answers[2][1].message()
    sums = [result.as_numpy("sum").tolist() for result, error in answers if error is None]
    assert sums == [[0.0], [2.0], [6.0], [8.0]]


def test_a_model_leaves_and_comes_back(client: triton.InferenceServerClient) -> None:
    ready(client, "double")
    client.unload_model("double", headers=auth())
    assert not client.is_model_ready("double", headers=auth())
    with pytest.raises(InferenceServerException, match="is unloaded") as raised:
        infer(client, "double", np.ones((1, 2), np.float32))
    assert raised.value.status() == "StatusCode.UNAVAILABLE"
    client.load_model("double", headers=auth())
    assert infer(client, "double", np.ones((1, 2), np.float32)).as_numpy("y").tolist() == [[2, 2]]
    with pytest.raises(InferenceServerException, match="isn't supported"):
        client.load_model("double", headers=auth(), config="{}")


def test_calls_have_accounts(client: triton.InferenceServerClient, server: Server) -> None:
    ready(client, "score")
    infer(client, "score", np.ones((7, 4), np.float32))
    entry = until(lambda: next((one for one in server.accounts() if one["rows"] == 7), None))
    assert (entry["endpoint"], entry["outcome"]) == ("infer", "ok")


def test_a_new_gateway_takes_calls_again(
    client: triton.InferenceServerClient, server: Server
) -> None:
    ready(client, "double")
    server.until_ready("gateway", after_pid=server.kill("gateway"))

    def answered() -> bool:
        try:
            return bool(client.is_model_ready("double", headers=auth(), client_timeout=1.0))
        except InferenceServerException:
            return False

    until(answered)
    assert infer(client, "double", np.ones((1, 2), np.float32)).as_numpy("y").tolist() == [[2, 2]]


def test_a_deadline_ends_the_call_and_the_work(
    client: triton.InferenceServerClient, server: Server, shut: Path
) -> None:
    ready(client, "gated")
    shut.touch()
    with pytest.raises(InferenceServerException) as raised:
        infer(client, "gated", np.ones((3, 1), np.float32), client_timeout=0.3)
    assert raised.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    until(lambda: server.in_flight() == 0)
    entry = until(lambda: next((e for e in server.accounts() if e["model"] == "gated"), None))
    assert entry["outcome"] in ("failed", "cancelled")


def test_a_client_that_leaves_ends_the_work(
    client: triton.InferenceServerClient, server: Server, shut: Path
) -> None:
    ready(client, "gated")
    shut.touch()
    given = [tensor(np.ones((1, 1), np.float32))]
    came: queue.Queue[Any] = queue.Queue()
    call = client.async_infer(
        "gated", given, lambda result, error: came.put(error), headers=auth(), request_id="left"
    )
    until(lambda: server.in_flight() == 1)
    call.cancel()
    assert "CANCELLED" in str(came.get(timeout=20))
    until(lambda: server.in_flight() == 0)
    client.start_stream(lambda result, error: came.put(error), headers=auth())
    client.async_stream_infer("gated", given)
    until(lambda: server.in_flight() == 1)
    client.stop_stream(cancel_requests=True)
    until(lambda: server.in_flight() == 0)

    def cancelled() -> int:
        return sum(e["outcome"] == "cancelled" for e in server.accounts() if e["model"] == "gated")

    until(lambda: cancelled() >= 2)


def test_what_runs_ends_before_the_server_does(tmp_path: Path) -> None:
    port = free_port()
    came: queue.Queue[Any] = queue.Queue()
    streamed: queue.Queue[Any] = queue.Queue()
    given = np.ones((1, 1), np.float32)
    with (
        serving(tmp_path, port, gated(tmp_path)) as server,
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        ready(client, "gated")
        client.start_stream(lambda result, error: streamed.put((result, error)), headers=auth())
        client.async_stream_infer("gated", [tensor(given)])
        assert streamed.get(timeout=20)[0].as_numpy("y").tolist() == [[2.0]]
        (tmp_path / "shut").touch()
        client.async_infer(
            "gated",
            [tensor(given)],
            lambda result, error: came.put((result, error)),
            headers=auth(),
        )
        until(lambda: server.in_flight() == 1)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not client.is_server_ready())
        with pytest.raises(InferenceServerException, match="stopping") as raised:
            infer(client, "gated", given)
        assert raised.value.status() == "StatusCode.UNAVAILABLE"
        (tmp_path / "shut").unlink()
        assert came.get(timeout=20)[0].as_numpy("y").tolist() == [[2.0]]
        assert "UNAVAILABLE" in str(streamed.get(timeout=20)[1])
        assert server.process.wait(20) == 0
