"""The Open Inference Protocol's endpoints beside `infer`: health, metadata, the repository.

Health needs no key. All others do, and show a key only what it may use; loading and unloading is an
admin's, and control does it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import msgspec

from tiffin.dialects.oip import metadata
from tiffin.dialects.oip.errors import JSON
from tiffin.dialects.oip.messages import IndexedModel
from tiffin.dialects.oip.paths import MODELS, NOWHERE, path_of, place_of
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import (
    Conflict,
    DeadlineExceeded,
    EndpointNotFound,
    LoadFailed,
    MethodNotAllowed,
    TiffinError,
    Unavailable,
    UpstreamFailed,
    UpstreamUnavailable,
)
from tiffin.gateway.authenticate import Authentication, introduction, require_admin
from tiffin.gateway.facts import Facts
from tiffin.gateway.route import labels, route, visible
from tiffin.ports.backend import Backend, Call
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange, Headers
from tiffin.telemetry.metrics import Counter
from tiffin.types.snapshot import Plan, Principal, Snapshot

ROOT: Final = b"/v2"
REPOSITORY: Final = b"/v2/repository/models/"
MAX_QUESTION_BYTES: Final = 1_048_576
CONTROL_TIMEOUT_S: Final = 30.0
LOAD_TIMEOUT_S: Final = 300.0
LOOK_EVERY_S: Final = 0.05
NOBODY: Final = Principal(tenant="", key="")

Page = Callable[[Exchange, Headers], Awaitable[None]]


@dataclass(slots=True, frozen=True)
class Sources:
    """Where answers come from; `not_ready` says why the server isn't, or is empty."""

    snapshot: Callable[[], Snapshot]
    authenticate: Authentication
    not_ready: Callable[[], str]
    facts: Facts
    control: Backend
    clock: Clock
    listings: Counter


class Switched(msgspec.Struct, frozen=True):
    """What control says of a model that it loaded or unloaded."""

    loaded: bool
    number: int


class TensorPages:
    """Answers everything below `/v2` that doesn't take the walk."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._pages: dict[bytes, tuple[bytes, Page]] = {
            ROOT: (b"GET", self._server),
            b"/v2/health/live": (b"GET", self._live),
            b"/v2/health/ready": (b"GET", self._ready),
            b"/v2/repository/index": (b"POST", self._index),
        }

    async def __call__(self, exchange: Exchange, headers: Headers) -> None:
        """Answer one request, with `headers` beside its own; raises what keeps it from that."""
        method, page = self._find(exchange.path)
        if exchange.method != method:
            allowed = method.decode()
            raise MethodNotAllowed(f"this endpoint answers {allowed} only", allowed=allowed)
        await page(exchange, headers)

    def _find(self, path: bytes) -> tuple[bytes, Page]:
        found = self._pages.get(path)
        if found is not None:
            return found
        if path.startswith(MODELS) and (place := place_of(path)) and place.verb in ("", "ready"):
            return b"GET", self._model
        if path.startswith(REPOSITORY):
            place = place_of(_below_models(path))
            if place and not place.version and place.verb in ("load", "unload"):
                return b"POST", self._switch
        shown = path[:80].decode("utf-8", "replace")
        raise EndpointNotFound(f"there is no endpoint '{shown}'; /openapi.json lists them")

    async def _live(self, exchange: Exchange, headers: Headers) -> None:
        exchange.respond(200, [JSON, *headers], metadata.live_body())

    async def _ready(self, exchange: Exchange, headers: Headers) -> None:
        reason = self._sources.not_ready()
        if reason:
            raise Unavailable(f"not ready: {reason}", retry_after=1.0)
        exchange.respond(200, [JSON, *headers], metadata.ready_body())

    async def _server(self, exchange: Exchange, headers: Headers) -> None:
        self._enter(exchange)
        exchange.respond(200, [JSON, *headers], metadata.server_body(version("tiffin")))

    async def _model(self, exchange: Exchange, headers: Headers) -> None:
        snapshot, principal = self._enter(exchange)
        place = place_of(exchange.path) or NOWHERE
        plan = route(place.name, principal, snapshot)
        if place.verb == "ready":
            await self._sources.facts.check_ready(plan)
            body = metadata.model_ready_body(plan.name)
        else:
            tensors = await self._sources.facts.tensors(plan)
            body = metadata.metadata_body(plan, labels(plan, principal, snapshot), tensors)
        exchange.respond(200, [JSON, *headers], body)

    async def _index(self, exchange: Exchange, headers: Headers) -> None:
        snapshot, principal = self._enter(exchange)
        only_ready = metadata.only_ready(await exchange.body(MAX_QUESTION_BYTES))
        rows = [self._row(plan, snapshot) for plan in visible(principal, snapshot)]
        wanted = [row for row in rows if not only_ready or row.state == "READY"]
        exchange.respond(200, [JSON, *headers], metadata.index_body(wanted))

    async def _switch(self, exchange: Exchange, headers: Headers) -> None:
        snapshot, principal = self._enter(exchange)
        require_admin(principal)
        place = place_of(_below_models(exchange.path)) or NOWHERE
        plan = route(place.name, principal, snapshot)
        allowed = metadata.UNLOAD_PARAMETERS if place.verb == "unload" else ()
        metadata.check_switch(await exchange.body(MAX_QUESTION_BYTES), allowed)
        switched = await self._ask_control(plan, place.verb, principal)
        plan = await self._seen(plan.name, switched.number)
        if switched.loaded and plan.targets[0].kind != "remote":
            plan = await self._loaded(plan.name)
        exchange.respond(200, [JSON, *headers], msgspec.json.encode(self._row(plan, snapshot)))

    def _enter(self, exchange: Exchange) -> tuple[Snapshot, Principal]:
        snapshot = self._sources.snapshot()
        principal = self._sources.authenticate(exchange, snapshot)
        self._sources.listings.add()
        return snapshot, principal

    def _row(self, plan: Plan, snapshot: Snapshot) -> IndexedModel:
        state = self._sources.facts.state(plan)
        versions = metadata.versions_of(plan)
        reason = state.reason or self._coming(plan, snapshot)
        return IndexedModel(plan.name, versions[0] if versions else "", state.name, reason)

    def _coming(self, plan: Plan, snapshot: Snapshot) -> str:
        """What is to take the model's place, and why it hasn't yet."""
        target = snapshot.coming.get(plan.name)
        if target is None or len(plan.targets) != 1:
            return ""
        coming = msgspec.structs.replace(plan, targets=(target,))
        [version] = metadata.versions_of(coming)
        why = self._sources.facts.failure(coming) or self._sources.facts.state(coming).reason
        return f"version {version} is to take its place: {why}" if why else ""

    async def _ask_control(self, plan: Plan, verb: str, principal: Principal) -> Switched:
        call = Call(
            path=b"/admin/v1/models/%b" % path_of(plan.name, verb).removeprefix(MODELS),
            body=b"",
            headers=introduction(principal),
            deadline=self._sources.clock.monotonic() + CONTROL_TIMEOUT_S,
        )
        try:
            async with self._sources.control.start(call) as reply:
                body = await reply.read_all(MAX_QUESTION_BYTES)
        except (UpstreamUnavailable, UpstreamFailed, DeadlineExceeded) as error:
            message = "control isn't answering; requests to models go on"
            raise Unavailable(message, retry_after=2.0) from error
        if reply.status >= 300:
            raise error_from_reply(reply.status, body, trusted=True, retry_after=reply.retry_after)
        return msgspec.json.decode(body, type=Switched)

    async def _seen(self, name: str, number: int) -> Plan:
        """The plan of this name in a snapshot that is at least this new."""
        deadline = self._sources.clock.monotonic() + CONTROL_TIMEOUT_S
        while (snapshot := self._sources.snapshot()).number < number:
            if self._sources.clock.monotonic() > deadline:
                raise Unavailable("the change is made, and not in force here yet", retry_after=2.0)
            await asyncio.sleep(LOOK_EVERY_S)
        return route(name, NOBODY, snapshot)

    async def _loaded(self, name: str) -> Plan:
        """Wait until a model of ours takes requests.

        Raises `LoadFailed` where it won't, and `Conflict` where it was unloaded meanwhile.
        """
        facts = self._sources.facts
        deadline = self._sources.clock.monotonic() + LOAD_TIMEOUT_S
        while True:
            plan = route(name, NOBODY, self._sources.snapshot())
            if plan.targets[0].state == "unloaded":
                raise Conflict(f"'{name}' was unloaded while it loaded ({plan.targets[0].reason})")
            try:
                await facts.ask_ready(plan)
                return plan
            except TiffinError as error:
                if reason := facts.failure(plan):
                    raise LoadFailed(f"'{plan.name}' doesn't load: {reason}") from error
                if self._sources.clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(LOOK_EVERY_S)


def _below_models(path: bytes) -> bytes:
    """A path of the repository as the path of its model that has the same form."""
    return MODELS + path.removeprefix(REPOSITORY)
