"""What models say of themselves is asked once, kept for as long as it holds, and bounded."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec
import pytest

from tiffin.dialects.oip.metadata import Tensors
from tiffin.errors import Loading, NoHealthyReplica, TiffinError, UpstreamFailed
from tiffin.gateway import facts
from tiffin.gateway.facts import Facts, State
from tiffin.gateway.pool import NoOutlook, Pool
from tiffin.ports.backend import Call, Reply
from tiffin.testing.clock import FakeClock
from tiffin.types.snapshot import Plan, Snapshot, Target

METADATA = {"platform": "onnx", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}


class Why(NoOutlook):
    """Knows a reason why replicas don't run."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    def explain(self, target: Target) -> str:
        return self._why()


class Answering:
    """A server whose answer is a test's to change; satisfies `Backend`, its context and `Reply`."""

    content_type = b"application/json"
    streaming = False
    retry_after: float | None = None
    inference_header = b""
    usage = b""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = METADATA
        self.asked: list[bytes] = []

    def start(self, call: Call) -> "Answering":
        self.asked.append(call.path)
        return self

    async def __aenter__(self) -> Reply:
        await asyncio.sleep(0)  # others get their turn, as they would on a wire
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def read(self) -> bytes:
        return b""

    async def read_all(self, limit: int) -> bytes:
        return msgspec.json.encode(self.answer)

    def rest(self, seconds: float) -> None:
        """Everything is here already."""

    def close(self) -> None:
        return None


class Desk:
    """Facts over one fake server behind every target; targets that aren't remote are ready."""

    def __init__(self, *targets: Target) -> None:
        self.server = Answering()
        self.clock = FakeClock()
        self.pool = Pool(lambda target, _: self.server, Why(lambda: self.why))
        self.why = ""
        self.plan = Plan(name="m", identity="", targets=targets)
        self.pool.adopt(
            Snapshot(
                number=1,
                config_hash="",
                published_ns=0,
                keys={},
                tenant_limits={},
                plans={"m": self.plan},
            )
        )
        for target in targets:
            if target.state == "ready-to-run":
                for place in self.pool._stations[target].places:
                    place.ready = True
        self.facts = Facts(self.pool, self.clock)


def onnx(name: str = "m", **more: Any) -> Target:
    more.setdefault("sockets", (f"/{name}",))
    return Target(model=name, revision="sha256:1", kind="onnx", serves=("infer",), **more)


def remote(protocol: str = "oip") -> Target:
    return Target(
        model="m",
        revision="sha256:2",
        kind="remote",
        serves=("infer",),
        protocol=protocol,
        upstream_model="their m",
    )


async def test_a_revision_is_asked_once() -> None:
    desk = Desk(onnx())
    told = await asyncio.gather(*[desk.facts.tensors(desk.plan) for _ in range(5)])
    desk.clock.advance(1e9)
    assert (await desk.facts.tensors(desk.plan)).inputs[0].name == "x"
    assert {one.platform for one in told} == {"onnx"}
    assert desk.server.asked == [b"/v2/models/m"]


async def test_another_server_is_asked_again_after_a_while() -> None:
    desk = Desk(remote())
    for _ in range(3):
        await desk.facts.tensors(desk.plan)
    assert desk.server.asked == [b"/v2/models/their%20m"]
    desk.clock.advance(facts.REMOTE_METADATA_S + 1)
    await desk.facts.tensors(desk.plan)
    assert len(desk.server.asked) == 2


async def test_another_servers_no_holds_for_a_moment() -> None:
    desk = Desk(remote())
    desk.server.status, desk.server.answer = 404, {"error": "no such model"}
    for _ in range(3):
        with pytest.raises(NoHealthyReplica, match="isn't ready at its server"):
            await desk.facts.check_ready(desk.plan)
    assert desk.server.asked == [b"/v2/models/their%20m/ready"]
    desk.clock.advance(facts.REMOTE_READY_S + 0.1)
    desk.server.status = 200
    await desk.facts.check_ready(desk.plan)


async def test_who_does_not_speak_the_protocol_is_not_asked_whether_it_is_ready() -> None:
    desk = Desk(remote("openai"))
    await desk.facts.check_ready(desk.plan)
    assert desk.server.asked == []


async def test_metadata_of_another_form_is_the_servers_fault() -> None:
    desk = Desk(onnx())
    for answer in ([1], {"inputs": 3}, {"inputs": [{"name": 1}]}):
        desk.server.answer = answer
        with pytest.raises(UpstreamFailed, match="metadata"):
            await desk.facts.tensors(desk.plan)
    desk.server.answer = METADATA
    await desk.facts.tensors(desk.plan)  # a replica's failure isn't kept


async def test_a_model_without_tensors_has_none() -> None:
    desk = Desk(Target(model="m", revision="sha256:3", kind="llamacpp", serves=("chat",)))
    told = await desk.facts.tensors(desk.plan)
    assert (told.platform, told.inputs, desk.server.asked) == ("llamacpp", [], [])


async def test_a_name_is_as_ready_as_its_best_target() -> None:
    gone = onnx("gone", state="unloaded", reason="no room")
    coming = onnx("coming", state="fetching")
    desk = Desk(gone, coming, onnx("here"))
    assert desk.facts.state(desk.plan) == State("READY")
    await desk.facts.check_ready(desk.plan)
    two = msgspec.structs.replace(desk.plan, targets=(coming, gone))
    assert desk.facts.state(two).name == "LOADING"
    with pytest.raises(NoHealthyReplica, match=r"'gone' is unloaded .no room"):
        await desk.facts.check_ready(two)
    last = msgspec.structs.replace(desk.plan, targets=(gone,))
    assert desk.facts.state(last).name == "UNAVAILABLE"
    assert "no room" in desk.facts.state(last).reason


async def test_what_time_alone_will_not_mend_is_told_apart() -> None:
    desk = Desk(onnx())
    desk.pool.station(desk.plan.targets[0]).places[0].ready = False
    with pytest.raises(Loading):
        await desk.facts.check_ready(desk.plan)
    assert desk.facts.failure(desk.plan) == ""
    desk.why = "out of memory"
    assert desk.facts.failure(desk.plan) == "out of memory"
    failed = onnx(state="failed", reason="no such file")
    assert Desk(failed).facts.failure(Desk(failed).plan) == "no such file"


async def test_what_is_kept_is_bounded() -> None:
    desk = Desk()
    for number in range(facts.MAX_KEPT + 10):
        target = onnx(f"m{number}")
        desk.facts._keep(facts.Fact(target, ""), Tensors(), 60.0)
    assert len(desk.facts._kept) == facts.MAX_KEPT
    assert desk.facts._find(facts.Fact(onnx("m0"), "")) is None


async def test_an_error_is_raised_anew_for_each() -> None:
    desk = Desk(remote())
    desk.server.status = 500
    raised: list[TiffinError] = []
    for _ in range(2):
        with pytest.raises(TiffinError) as told:
            await desk.facts.tensors(desk.plan)
        raised.append(told.value)
    assert raised[0] is not raised[1]
    assert raised[0].message == raised[1].message
