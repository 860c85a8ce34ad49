"""Text runtimes under test, and what can be seen of them from outside."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.real_models import model_file
from tiffin.adapters.runtimes.engine import IDLE_CONNECTIONS
from tiffin.adapters.runtimes.llamacpp import LlamacppRuntime
from tiffin.adapters.runtimes.openvino import OpenvinoRuntime
from tiffin.adapters.upstreams.endpoint import Endpoint
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.config.models import EchoModel, LlamacppModel
from tiffin.ports.backend import Call
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt, TextRuntime
from tiffin.testing.echo import EchoRuntime
from tiffin.types.snapshot import Deployment
from tiffin.types.text import ChatRequest, CompletionRequest, Message

CONTEXT = 1024
SLOTS = 4


class Answer:
    """A finished answer: all its deltas, and what they add up to."""

    def __init__(self, deltas: list[Delta]) -> None:
        self.deltas = deltas
        self.text = "".join(delta.text for delta in deltas)
        self.finish = deltas[-1].finish
        usage = deltas[-1].usage
        assert usage is not None
        self.usage = usage


class Bench:
    """A loaded runtime, and what of the contract it need not do: it refuses that by name."""

    remembers = True
    rivals = True
    schemas = True
    biases = True

    def __init__(self, runtime: TextRuntime, capabilities: Capabilities) -> None:
        self.runtime = runtime
        self.capabilities = capabilities

    async def busy(self) -> bool:
        """Whether anything still runs."""
        raise NotImplementedError

    async def until_idle(self) -> None:
        """Return once nothing runs any more."""
        await self._until(busy=False)

    async def until_busy(self) -> None:
        """Return once something runs."""
        await self._until(busy=True)

    async def _until(self, *, busy: bool, within_s: float = 15.0) -> None:
        end = time.monotonic() + within_s
        while await self.busy() != busy:
            assert time.monotonic() < end, "it goes on working" if not busy else "it never began"
            await asyncio.sleep(0.005)

    async def prompt(self, text: str, **given: Any) -> Prompt:
        """A completion's prompt."""
        request = CompletionRequest(model="m", prompt=text, **given)
        [prompt] = await self.runtime.prepare(request)
        return prompt

    async def run(
        self, prompt: Prompt, *, slot: int = 0, sample: int = 0, reuse_prefix: bool = False
    ) -> Answer:
        """A prompt's whole answer."""
        run = self.runtime.start(prompt, slot=slot, sample=sample, reuse_prefix=reuse_prefix)
        async with run as deltas:
            return Answer([delta async for delta in deltas])

    async def complete(self, text: str, **given: Any) -> Answer:
        """A text's continuation."""
        return await self.run(await self.prompt(text, **given))

    async def chat(self, text: str, **given: Any) -> Answer:
        """The answer to one message."""
        [prompt] = await self.runtime.prepare(chat(text, **given))
        return await self.run(prompt)


class EchoBench(Bench):
    """The echo model's."""

    async def busy(self) -> bool:
        assert isinstance(self.runtime, EchoRuntime)
        return self.runtime.running > 0


class LlamacppBench(Bench):
    """llama.cpp's: its engine says which of its slots are at work."""

    def __init__(
        self, runtime: TextRuntime, capabilities: Capabilities, engine: Http1Backend, socket: Path
    ) -> None:
        super().__init__(runtime, capabilities)
        self.socket = socket
        self._engine = engine

    async def slots(self) -> list[dict[str, Any]]:
        """The engine's own view of its slots."""
        call = Call(b"/slots", b"", b"", time.monotonic() + 30, b"GET")
        async with self._engine.start(call) as reply:
            slots: list[dict[str, Any]] = msgspec.json.decode(await reply.read_all(1_000_000))
        return slots

    async def busy(self) -> bool:
        return any(slot["is_processing"] for slot in await self.slots())


class OpenvinoBench(Bench):
    """OpenVINO's."""

    remembers = rivals = schemas = biases = False

    async def busy(self) -> bool:
        assert isinstance(self.runtime, OpenvinoRuntime)
        return self.runtime.busy


def chat(text: str, **given: Any) -> ChatRequest:
    """A chat request with one message."""
    return ChatRequest(model="m", messages=[Message(role="user", content=text)], **given)


def llamacpp(path: Path | str, socket: Path) -> LlamacppRuntime:
    """A runtime for a file, not loaded yet; with one thread, because others use these cores too."""
    spec = LlamacppModel(sources=["file:x"], sha256="0" * 64, context=CONTEXT, slots=SLOTS)
    backend = Http1Backend(Endpoint(authority=b"e", path=str(socket)), max_idle=IDLE_CONNECTIONS)
    return LlamacppRuntime(str(path), spec, 1, str(socket), backend)


@asynccontextmanager
async def loaded_llamacpp(folder: Path) -> AsyncIterator[LlamacppBench]:
    """`chat-tiny`, loaded."""
    socket = folder / "e.sock"
    runtime = llamacpp(model_file("chat-tiny"), socket)
    engine = Http1Backend(Endpoint(authority=b"e", path=str(socket)), max_idle=0)
    try:
        yield LlamacppBench(runtime, await runtime.load(), engine, socket)
    finally:
        engine.close()
        await runtime.close()


@asynccontextmanager
async def loaded_openvino(folder: Path) -> AsyncIterator[OpenvinoBench]:
    """`chat-tiny` in OpenVINO, loaded."""
    socket = folder / "o.sock"
    spec = LlamacppModel(sources=["file:x"], sha256="0" * 64, context=CONTEXT, slots=SLOTS)
    backend = Http1Backend(Endpoint(authority=b"e", path=str(socket)), max_idle=IDLE_CONNECTIONS)
    runtime = OpenvinoRuntime(str(model_file("chat-tiny")), spec, 1, str(socket), backend)
    try:
        yield OpenvinoBench(runtime, await runtime.load())
    finally:
        await runtime.close()


@asynccontextmanager
async def loaded_echo() -> AsyncIterator[EchoBench]:
    """The echo model, a little slow."""
    spec = EchoModel(context=CONTEXT, slots=SLOTS, prefill_ms=2, token_ms=1)
    raw = msgspec.Raw(msgspec.json.encode(spec))
    runtime = EchoRuntime(Deployment(model="m", revision="r", socket="", spec=raw))
    yield EchoBench(runtime, await runtime.load())
    await runtime.close()
