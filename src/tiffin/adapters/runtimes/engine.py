"""llama.cpp's own server inside this process, and how we talk to it.

It runs in C++ threads without the GIL and listens on a unix socket that only this user can open.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from tiffin.adapters.runtimes.cadence import Cadence
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed, TiffinError
from tiffin.ports.backend import Backend, Call, Reply

# A prompt is read this many tokens at a time: as long others wait for their next token, and a
# client's leaving goes unnoticed. Beside a prompt of 3,000 tokens the gaps of four streams were
# 7.2 times as long as alone with 24, 2.9 to 4 times with 16, and reading took 32 and 39 s; with
# 64 and a shorter prompt it was 10.7 times (`bench/prefill_stall.py`).
BATCH_TOKENS: Final = 16
# Threads wait for each other hundreds of times a token, and OpenMP spins 300,000 times at each.
# Between two busy neighbours two threads gave 3 to 19 tokens/s that way, 10 to 30 with 10,000
# spins, and alone the same 82.
SPINS: Final = "10000"
MAX_SOCKET_BYTES: Final = 107
QUESTIONS_AT_ONCE: Final = 4
QUESTION_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 67_108_864
MAX_SAID_BYTES: Final = 1_048_576
# How long a reason may take to be written by the engine that has just failed.
TELLING_S: Final = 2.0
# What a connection pool to the engine may keep: each holds one of the engine's threads.
IDLE_CONNECTIONS: Final = 4

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Extent:
    """How much an engine gets: `context` tokens in each of `slots`, and so many `threads`.

    `cache` is what keys and values are kept in: `f16`, `f32` or `q8_0`. With `pooling` (`mean`,
    `cls`, `last`, `rank`) it gives vectors or scores of whole texts, and no answers.
    """

    context: int
    slots: int = 1
    threads: int = 1
    cache: str = "f16"
    pooling: str = ""


# What an engine only reads with: weights stay in the file, and no answer has room in its context.
READING: Final = Extent(context=256)


class Engine:
    """One loaded model behind its socket; starting blocks the whole process while it loads.

    With `reading` it does tokens and templates alone, and the weights stay on disk.
    """

    def __init__(self, model: str, socket: str, extent: Extent, *, reading: bool = False) -> None:
        self._model = model
        self._socket = Path(socket)
        self._context = extent.context
        self._slots = extent.slots
        self._threads = max(extent.threads, 1)
        self._cache = extent.cache
        self._pooling = extent.pooling
        self._reading = reading
        self._server: Any = None

    def start(self) -> None:
        """Load the model and listen; raises `LoadFailed` with the engine's own reason."""
        if len(os.fsencode(self._socket)) > MAX_SOCKET_BYTES or self._socket.suffix != ".sock":
            raise LoadFailed(
                f"the engine's socket must end in .sock and have at most {MAX_SOCKET_BYTES} bytes:"
                f" {self._socket}"
            )
        try:
            self._server = self._listen(verbosity=0)
        except RuntimeError as error:
            reason = self._reason()
            cause = MemoryError(reason) if "alloc" in reason else error
            raise LoadFailed(f"llama.cpp can't load the model: {reason}") from cause
        self._socket.chmod(0o600)

    def stop(self) -> None:
        """End the server and give its memory back; idempotent."""
        self._server = None
        self._socket.unlink(missing_ok=True)

    def _listen(self, *, verbosity: int) -> Any:
        os.putenv("GOMP_SPINCOUNT", SPINS)  # read while the library below is loaded
        import xllamacpp  # type: ignore[import-untyped]  # 100 MB, and only a replica needs it

        params = xllamacpp.CommonParams()
        params.model.path = self._model
        params.hostnames = [str(self._socket)]
        params.n_parallel = self._slots
        params.n_ctx = self._context * self._slots
        params.n_batch = params.n_ubatch = max(BATCH_TOKENS, self._slots)
        # A stream holds a thread, also one that was left until the engine notices.
        params.n_threads_http = 2 * self._slots + QUESTIONS_AT_ONCE + IDLE_CONNECTIONS
        params.verbosity = verbosity
        for cpu in (params.cpuparams, params.cpuparams_batch):
            cpu.n_threads = self._threads
            cpu.poll = 0
        params.cache_ram_mib = 0
        params.n_ctx_checkpoints = 0
        params.check_tensors = params.warmup = params.use_jinja = params.endpoint_slots = True
        params.kv_unified = params.ctx_shift = params.fit_params = params.ui = False
        params.prefill_assistant = False
        params.sleep_idle_seconds = -1
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{self._cache.upper()}")
        params.cache_type_k = params.cache_type_v = kind
        if self._cache == "f32":
            # Flash attention would round them to 16 bits after all.
            kinds = xllamacpp.llama_flash_attn_type
            params.flash_attn_type = kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if self._pooling:
            params.embedding = True
            params.embd_normalize = -1
            poolings = xllamacpp.llama_pooling_type
            params.pooling_type = getattr(poolings, f"LLAMA_POOLING_TYPE_{self._pooling.upper()}")
            # What is pooled has to be computed at once.
            params.n_batch = params.n_ubatch = max(self._context, self._slots)
        if self._reading:
            # Checking, warming up and packing anew each read every weight.
            params.check_tensors = params.warmup = False
            params.no_extra_bufts = True
        self._socket.unlink(missing_ok=True)
        return xllamacpp.Server(params)

    def _reason(self) -> str:
        """Why it can't load: the engine says so on stderr only, where it is mute while serving."""
        with tempfile.TemporaryFile() as said:
            kept = os.dup(2)
            os.dup2(said.fileno(), 2)
            try:
                with contextlib.suppress(RuntimeError):
                    self._listen(verbosity=1)
                causes = _causes(said.fileno())
            finally:
                os.dup2(kept, 2)
                os.close(kept)
        return causes[0].partition(": ")[2] or causes[0] if causes else "it gave no reason"


def _causes(said: int) -> list[str]:
    """The errors in a file of what the engine says, which a thread of its own writes, soon."""
    patience = time.monotonic() + TELLING_S
    while True:
        lines = os.pread(said, MAX_SAID_BYTES, 0).decode("utf-8", "replace").splitlines()
        causes = [line.partition(" E ")[2] for line in lines if " E " in line]
        if causes or time.monotonic() > patience:
            return causes
        time.sleep(0.01)


class Chance(msgspec.Struct, frozen=True):
    """A token that was or could have been chosen; `logprob` is None for one that was impossible."""

    id: int = -1
    token: str = ""
    bytes: list[int] = []
    logprob: float | None = None
    top_logprobs: list["Chance"] = []


class Timings(msgspec.Struct, frozen=True):
    """What an answer took; times are milliseconds."""

    cache_n: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class Fault(msgspec.Struct, frozen=True):
    """The engine's refusal or failure."""

    message: str = ""
    type: str = ""


class Event(msgspec.Struct, frozen=True):
    """One step of a stream; `tokens_predicted` counts from the answer's beginning."""

    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    completion_probabilities: list[Chance] = []
    prompt_progress: dict[str, Any] | None = None
    timings: Timings | None = None
    error: Fault | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: Fault = Fault()


class Pool(Backend, Protocol):
    """Connections to the engine's socket, at most `IDLE_CONNECTIONS` of them unused."""

    def close(self) -> None:
        """Close all of them."""
        ...


class Line:
    """Questions and streams to the engine over a pool of connections."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def ask(self, path: str, question: Any, kind: type[T]) -> T:
        """One question's answer; raises `InvalidRequest` or `RunFailed` with the engine's words."""
        deadline = asyncio.get_running_loop().time() + QUESTION_S
        call = Call(path.encode(), msgspec.json.encode(question), b"", deadline)
        if question is None:
            call.method = b"GET"
        try:
            async with self._turns, self._backend.start(call) as reply:
                answer = await reply.read_all(MAX_ANSWER_BYTES)
        except TiffinError as error:
            raise RunFailed(f"the engine doesn't answer: {error.message}") from error
        if reply.status != 200:
            raise refusal(reply.status, answer)
        return _decoded(answer, kind)

    def stream(self, question: dict[str, Any], cadence: Cadence) -> "Stream":
        """A completion's events, read in this cadence; leaving the context stops it."""
        call = Call(b"/completion", msgspec.json.encode(question), b"", float("inf"))
        return Stream(self._backend, call, cadence)


class Stream:
    """The events of one completion, in order, while its context is held."""

    def __init__(self, backend: Backend, call: Call, cadence: Cadence) -> None:
        self._exchange = backend.start(call)
        self._cadence = cadence
        self._now = asyncio.get_running_loop().time
        self._reply: Reply | None = None
        self._rest = b""
        self._events: deque[Event] = deque()

    async def __aenter__(self) -> Self:
        try:
            reply = await self._exchange.__aenter__()
        except TiffinError as error:
            raise RunFailed(f"the engine can't be reached: {error.message}") from error
        if reply.status != 200:
            try:
                raise refusal(reply.status, await reply.read_all(MAX_ANSWER_BYTES))
            finally:
                await self._exchange.__aexit__(None, None, None)
        self._reply = reply
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exchange.__aexit__(kind, error, trace)

    async def next(self) -> list[Event]:
        """What has come, at least one event; raises `RunFailed` where the stream breaks off.

        An event that tells of the engine's failure comes alone.
        """
        while not self._events:
            await self._read()
        ready = [self._events.popleft()]
        while self._events and self._events[0].error is None:
            ready.append(self._events.popleft())
        return ready

    async def _read(self) -> None:
        assert self._reply is not None  # noqa: S101 - entered before it is read
        try:
            data = await self._reply.read()
        except TiffinError as error:
            raise RunFailed(f"the engine broke the answer off: {error.message}") from error
        if not data:
            raise RunFailed("the engine broke the answer off")
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            name, _, value = block.partition(b":")
            if name == b"data":
                event = _decoded(value, Event)
            elif name == b"error":
                event = Event(error=_decoded(value, Fault))
            else:
                continue
            if event.prompt_progress is None:
                self._events.append(event)
        if self._events:
            come = self._events[-1].tokens_predicted
            self._reply.rest(self._cadence.rest_s(self._now(), come))


def refusal(status: int, answer: bytes) -> TiffinError:
    """What the engine answered instead, as our error."""
    try:
        message = msgspec.json.decode(answer, type=_Refusal).error.message
    except msgspec.DecodeError:
        message = ""
    message = message or f"status {status}"
    if status == 400:
        return InvalidRequest(f"the engine refuses: {message}")
    return RunFailed(f"the engine failed: {message}")


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunFailed(f"the engine's answer can't be read: {error}") from error
