"""The tensor protocol beside `infer`: who may see what, and how a model is switched."""

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from types import TracebackType
from typing import Any

import msgspec
import pytest

from tiffin.api.oip import Sources, TensorPages
from tiffin.app.clock import SystemClock
from tiffin.dialects.openai.errors import error_body, status_of
from tiffin.errors import (
    Conflict,
    EndpointNotFound,
    LoadFailed,
    MalformedBody,
    MethodNotAllowed,
    ModelNotFound,
    PermissionDenied,
    SchemaViolation,
    TiffinError,
    Unauthenticated,
    Unavailable,
    UnknownParameter,
    UnsupportedParameter,
    UpstreamUnavailable,
)
from tiffin.gateway.authenticate import Authentication
from tiffin.gateway.facts import Facts
from tiffin.gateway.keyring import Keyring
from tiffin.gateway.pool import NoOutlook, Pool
from tiffin.ports.backend import Call, Reply
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target

VERSION = "0123456789ab"


class Why(NoOutlook):
    """Knows a reason why replicas don't run."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    def explain(self, target: Target) -> str:
        return self._why()


class Control:
    """Control as the gateway sees it: one answer, or an error; satisfies backend and reply."""

    content_type = b"application/json"
    streaming = False
    retry_after: float | None = None
    inference_header = b""
    usage = b""

    def __init__(self) -> None:
        self.status = 200
        self.answer = b'{"model":"m","loaded":true,"number":2}'
        self.down = False
        self.calls: list[Call] = []

    def start(self, call: Call) -> "Control":
        self.calls.append(call)
        return self

    async def __aenter__(self) -> Reply:
        if self.down:
            raise UpstreamUnavailable("can't connect")
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
        return self.answer

    def rest(self, seconds: float) -> None:
        """Everything is here already."""

    def close(self) -> None:
        return None

    def refuse(self, error: TiffinError) -> None:
        self.status, self.answer = status_of(error), error_body(error)


def onnx(name: str, state: str = "ready-to-run", reason: str = "") -> Target:
    return Target(
        model=name,
        revision=f"sha256:{VERSION}",
        kind="onnx",
        sockets=(f"/{name}",),
        serves=("infer",),
        state=state,
        reason=reason,
    )


class Site:
    """The pages over a snapshot with `m` and `other`; `admin` sees all, `plain` sees `m`."""

    def __init__(self) -> None:
        self.control, self.replica = Control(), Control()
        self.why = ""
        self.not_ready = ""
        self.pool = Pool(lambda target, _: self.replica, Why(lambda: self.why))
        self.publish(1, onnx("m"))
        self.pages = TensorPages(
            Sources(
                snapshot=lambda: self.snapshot,
                authenticate=Authentication(SystemClock(), Keyring()),
                not_ready=lambda: self.not_ready,
                facts=Facts(self.pool, SystemClock()),
                control=self.control,
                clock=SystemClock(),
                listings=Meter("gateway", "ep").counter("listings", "Listings"),
            )
        )

    def publish(self, number: int, target: Target, *, ready: bool = True) -> None:
        other = onnx("other")
        self.snapshot = Snapshot(
            number=number,
            config_hash="",
            published_ns=0,
            keys={
                sha256(b"admin").hexdigest(): Principal(tenant="t", key="a", admin=True),
                sha256(b"plain").hexdigest(): Principal(tenant="t", key="p", models=("m",)),
            },
            tenant_limits={},
            plans={
                "m": Plan(name="m", identity="", targets=(target,)),
                "other": Plan(name="other", identity="", targets=(other,)),
            },
        )
        self.pool.adopt(self.snapshot)
        for one in (target, other):
            if one.state == "ready-to-run":
                self.pool._stations[one].places[0].ready = ready

    async def ask(self, method: str, path: str, key: str = "admin", body: Any = b"") -> Any:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = [(b"authorization", b"Bearer " + key.encode())] if key else []
        exchange = FakeExchange(method.encode(), path.encode(), headers=headers, body=content)
        await self.pages(exchange, [(b"x-request-id", b"r")])
        assert exchange.status == 200
        assert exchange.answer_headers[b"x-request-id"] == b"r"
        return json.loads(exchange.sent)


LOAD, UNLOAD = "/v2/repository/models/m/load", "/v2/repository/models/m/unload"


async def test_health_needs_no_key_and_all_else_does() -> None:
    site = Site()
    assert await site.ask("GET", "/v2/health/live", "") == {"live": True}
    assert await site.ask("GET", "/v2/health/ready", "") == {"ready": True}
    site.not_ready = "the disk is full"
    with pytest.raises(Unavailable, match="the disk is full"):
        await site.ask("GET", "/v2/health/ready", "")
    for method, path in (
        ("GET", "/v2"),
        ("GET", "/v2/models/m"),
        ("GET", "/v2/models/m/ready"),
        ("POST", "/v2/repository/index"),
        ("POST", LOAD),
    ):
        with pytest.raises(Unauthenticated):
            await site.ask(method, path, "")


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/v2/", EndpointNotFound),
        ("GET", "/v2/models/m/config", EndpointNotFound),
        ("GET", "/v2/models/m/versions/1/2/ready", EndpointNotFound),
        ("POST", "/v2/repository/models/m/versions/1/load", EndpointNotFound),
        ("POST", "/v2/repository/models/m", EndpointNotFound),
        ("POST", "/v2/models/m", MethodNotAllowed),
        ("GET", LOAD, MethodNotAllowed),
        ("GET", "/v2/models/none", ModelNotFound),
        ("GET", "/v2/models/m/versions/ffffffffffff", ModelNotFound),
        ("POST", "/v2/repository/models/none/load", ModelNotFound),
    ],
)
async def test_what_there_is_not_is_said(method: str, path: str, error: type[TiffinError]) -> None:
    with pytest.raises(error):
        await Site().ask(method, path)


async def test_a_key_sees_its_own_models() -> None:
    site = Site()
    rows = await site.ask("POST", "/v2/repository/index", "plain")
    assert rows == [{"name": "m", "version": VERSION, "state": "READY", "reason": ""}]
    with pytest.raises(ModelNotFound):
        await site.ask("GET", "/v2/models/other/ready", "plain")
    with pytest.raises(PermissionDenied):
        await site.ask("POST", UNLOAD, "plain")
    assert site.control.calls == []


async def test_the_index_can_leave_out_what_is_not_ready() -> None:
    site = Site()
    site.publish(2, onnx("m", "failed", "file:/srv/own/m.onnx: no such file"))
    rows = await site.ask("POST", "/v2/repository/index")
    assert {row["name"]: row["state"] for row in rows} == {"m": "UNAVAILABLE", "other": "READY"}
    assert "file:m.onnx: no such file" in rows[0]["reason"]
    rows = await site.ask("POST", "/v2/repository/index", body={"ready": True})
    assert [row["name"] for row in rows] == ["other"]
    with pytest.raises(SchemaViolation, match="'ready'"):
        await site.ask("POST", "/v2/repository/index", body={"ready": 1})
    with pytest.raises(UnknownParameter, match="'read'"):
        await site.ask("POST", "/v2/repository/index", body={"read": True})
    with pytest.raises(MalformedBody, match="'ready' is given twice"):
        await site.ask("POST", "/v2/repository/index", body=b'{"ready":true,"ready":false}')
    unload = {"parameters": {"unload_dependents": "no"}}
    with pytest.raises(SchemaViolation, match=r"parameters\.unload_dependents"):
        await site.ask("POST", UNLOAD, body=unload)


async def test_control_is_told_who_unloads_and_the_answer_waits_for_the_snapshot() -> None:
    site = Site()
    site.control.answer = b'{"model":"m","loaded":false,"number":2}'
    parameters = {"parameters": {"unload_dependents": False}}
    asking = asyncio.create_task(site.ask("POST", UNLOAD, body=parameters))
    await asyncio.sleep(0)
    assert not asking.done()
    site.publish(2, onnx("m", "unloaded", "by t/a"))
    row = await asking
    assert (row["state"], "by t/a" in row["reason"]) == ("UNAVAILABLE", True)
    [call] = site.control.calls
    assert (call.method, call.path) == (b"POST", b"/admin/v1/models/m/unload")
    assert call.headers == b"x-tiffin-tenant: t\r\nx-tiffin-key: a\r\nx-tiffin-role: admin\r\n"


async def test_loading_waits_until_the_model_takes_requests() -> None:
    site = Site()
    site.publish(2, onnx("m"), ready=False)
    asking = asyncio.create_task(site.ask("POST", LOAD))
    done, _ = await asyncio.wait([asking], timeout=0.1)
    assert not done
    site.publish(2, onnx("m"))
    assert (await asking)["state"] == "READY"


async def test_a_model_that_will_not_load_says_why() -> None:
    site = Site()
    site.publish(2, onnx("m"), ready=False)
    site.why = "it ended with signal 9"
    with pytest.raises(LoadFailed, match="'m' doesn't load: it ended with signal 9"):
        await site.ask("POST", LOAD)


async def test_who_loads_what_another_unloads_is_told_at_once() -> None:
    site = Site()
    site.publish(2, onnx("m"), ready=False)
    asking = asyncio.create_task(site.ask("POST", LOAD))
    await asyncio.wait([asking], timeout=0.1)
    site.publish(3, onnx("m", "unloaded", "by t/b"))
    with pytest.raises(Conflict, match="by t/b"):
        await asyncio.wait_for(asking, 5)


async def test_who_loads_what_leaves_the_configuration_is_told_at_once() -> None:
    site = Site()
    site.publish(2, onnx("m"), ready=False)
    asking = asyncio.create_task(site.ask("POST", LOAD))
    await asyncio.wait([asking], timeout=0.1)
    site.snapshot = msgspec.structs.replace(site.snapshot, plans={})
    with pytest.raises(ModelNotFound):
        await asyncio.wait_for(asking, 5)


async def test_what_control_refuses_is_passed_on() -> None:
    site = Site()
    site.control.refuse(ModelNotFound("there is no model 'm' in the configuration in force"))
    with pytest.raises(ModelNotFound, match="in force"):
        await site.ask("POST", LOAD)
    site.control.down = True
    with pytest.raises(Unavailable, match="control isn't answering"):
        await site.ask("POST", LOAD)


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_a_model_is_what_the_configuration_says(path: str) -> None:
    site = Site()
    with pytest.raises(UnsupportedParameter, match="'config'"):
        await site.ask("POST", path, body={"parameters": {"config": "{}"}})
    assert site.control.calls == []


async def test_a_replica_that_only_counts_as_ready_is_asked_before_its_load_is_told() -> None:
    site = Site()
    site.publish(2, onnx("m"))
    site.replica.down = True
    asking = asyncio.create_task(site.ask("POST", LOAD))
    done, _ = await asyncio.wait([asking], timeout=0.1)
    assert not done
    site.replica.down = False
    site.publish(2, onnx("m"))
    assert (await asking)["state"] == "READY"
