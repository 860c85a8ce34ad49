"""Another model's replica, called over its socket with binary tensors."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from numpy.typing import NDArray

from tiffin.dialects.oip import arrays
from tiffin.dialects.oip.binary import SIZE, size_of
from tiffin.dialects.oip.messages import HEADER_LENGTH, InferResponse, ModelMetadata, header_end
from tiffin.dialects.oip.paths import path_of
from tiffin.dialects.openai.errors import error_from_reply
from tiffin.errors import (
    DeadlineExceeded,
    Draining,
    Loading,
    NoHealthyReplica,
    TiffinError,
    UpstreamFailed,
    UpstreamUnavailable,
)
from tiffin.ports.backend import Backend, Call, Reply
from tiffin.serving.pipeline.edges import EdgeType
from tiffin.serving.pipeline.graph import Ends
from tiffin.types.usage import Usage

MAX_REPLY_BYTES: Final = 268_435_456
MAX_ERROR_BYTES: Final = 65_536
LONGEST_S: Final = 86_400.0
TRIES: Final = 2
"""How often a call may begin, where a replica didn't take it because it ends or has ended."""

_METADATA = msgspec.json.Decoder(ModelMetadata)
_REPLY = msgspec.json.Decoder(InferResponse)
_USAGE = msgspec.json.Decoder(Usage)


@dataclass(frozen=True, slots=True)
class Hop:
    """What a request takes along to the models of its steps.

    `headers` are its own lines (trace, tenant, request, attempt, priority), `deadline` a moment of
    the loop's clock. `spent` is told what was used where a model failed midway.
    """

    headers: bytes
    deadline: float
    spent: Callable[[Usage], None] = lambda usage: None


class Peer:
    """One model that steps call. Leaving a call closes its connection, which stops the work."""

    def __init__(self, model: str, datatypes: Mapping[str, str], backend: Backend) -> None:
        self.model = model
        self._datatypes = datatypes
        self._backend = backend
        self._path = path_of(model, "infer")

    async def __call__(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str], hop: Hop
    ) -> tuple[dict[str, NDArray[Any]], Usage]:
        """The named outputs, and what they took there; raises what the model's replica told.

        That none of them takes it is never told as if it were the caller that ends or loads.
        """
        header, parts = self._message(inputs, outputs)
        message = b"".join([header, *parts])
        tries = 0
        while True:
            try:
                return await self._asked(message, len(header), hop)
            except (Draining, Loading, UpstreamUnavailable) as error:
                tries += 1
                if tries == TRIES:
                    again = error.retry_after
                    raise NoHealthyReplica(error.message, retry_after=again) from error

    async def _asked(
        self, message: bytes, header: int, hop: Hop
    ) -> tuple[dict[str, NDArray[Any]], Usage]:
        now = asyncio.get_running_loop().time()
        left_s = min(hop.deadline - now, LONGEST_S)
        left_ms = int(left_s * 1000)
        if left_ms <= 0:
            raise DeadlineExceeded(f"the deadline passed before '{self.model}' was called")
        call = Call(
            path=self._path,
            body=message,
            # It may be held on the way until the model is loaded: that time is gone, too.
            headers=b"%bx-tiffin-clock: %d %d\r\nx-tiffin-timeout-ms: %d\r\n"
            % (hop.headers, now * 1e6, now * 1e6, left_ms),
            deadline=hop.deadline,
            content=b"content-type: application/octet-stream\r\n%b: %d\r\n"
            % (HEADER_LENGTH, header),
        )
        async with self._backend.start(call) as reply:
            if reply.status >= 300 and reply.usage:
                hop.spent(_USAGE.decode(reply.usage))
            await refuse_errors(self.model, reply)
            body = await reply.read_all(MAX_REPLY_BYTES)
            length, told = reply.inference_header or None, reply.usage
        return self._read(body, length), _USAGE.decode(told) if told else Usage(measured=False)

    def _message(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
    ) -> tuple[bytes, list[bytes]]:
        tensors, parts = [], []
        for name, array in inputs.items():
            datatype = self._datatypes[name]
            part = arrays.to_bytes(datatype, array)
            parts.append(part)
            tensors.append(
                {
                    "name": name,
                    "shape": array.shape,
                    "datatype": datatype,
                    "parameters": {SIZE: len(part)},
                }
            )
        wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        return msgspec.json.encode({"inputs": tensors, "outputs": wanted}), parts

    def _read(self, body: bytes, length: bytes | None) -> dict[str, NDArray[Any]]:
        try:
            at = header_end(body, length)
            reply = _REPLY.decode(memoryview(body)[:at])
            found = {}
            for tensor in reply.outputs:
                size = size_of(tensor)
                if size is None:
                    raise UpstreamFailed(f"'{self.model}' gave '{tensor.name}' without its bytes")
                part = memoryview(body)[at : at + size]
                at += size
                what = f"output '{tensor.name}'"
                found[tensor.name] = arrays.from_bytes(what, tensor.datatype, tensor.shape, part)
        except (TiffinError, msgspec.MsgspecError) as error:
            raise UpstreamFailed(f"'{self.model}' gave no answer that can be read") from error
        return found


async def ends_of(model: str, backend: Backend, deadline: float) -> Ends:
    """What a model says that it takes and gives; raises `Unavailable` while it isn't ready."""
    async with backend.start(Call(b"/v2/health/ready", b"", b"", deadline, b"GET")) as reply:
        await refuse_errors(model, reply)
        await reply.read_all(MAX_ERROR_BYTES)
    async with backend.start(Call(path_of(model), b"", b"", deadline, b"GET")) as reply:
        await refuse_errors(model, reply)
        body = await reply.read_all(MAX_REPLY_BYTES)
    try:
        told = _METADATA.decode(body)
    except msgspec.MsgspecError as error:
        raise UpstreamFailed(f"'{model}' tells no metadata that can be read") from error
    return Ends(
        {one.name: EdgeType(one.datatype, tuple(one.shape)) for one in told.inputs},
        {one.name: EdgeType(one.datatype, tuple(one.shape)) for one in told.outputs},
    )


async def refuse_errors(model: str, reply: Reply) -> None:
    """Raise what a replica's reply tells, where it is an error; it names the model."""
    if reply.status < 300:
        return
    body = await reply.read_all(MAX_ERROR_BYTES)
    error = error_from_reply(reply.status, body, trusted=True, retry_after=reply.retry_after)
    raise type(error)(f"{model}: {error.message}", retry_after=error.retry_after)
