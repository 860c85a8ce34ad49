"""A model that embeds or reranks texts as what a replica hosts: tensors and a tokenizer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from numpy.typing import NDArray

from tiffin.adapters.runtimes.quantized import scales_by_batch
from tiffin.adapters.runtimes.tokens import TokenizerFile
from tiffin.api.tensor_replica import Identity, TensorReplicaApi
from tiffin.api.text_encoder_replica import Served, TextEncoderApi
from tiffin.app.adapters import gguf_encoder, paths, runtime_for
from tiffin.app.hosted import Surroundings
from tiffin.app.hosted_tensors import PLATFORMS
from tiffin.config.models import LlamacppModel, OnnxModel
from tiffin.dialects.oip.messages import version_of
from tiffin.errors import LoadFailed, Loading, TiffinError
from tiffin.ports.exchange import Exchange
from tiffin.ports.tensor_runtime import TensorRuntime
from tiffin.ports.tokenizer import Tokenizer
from tiffin.serving.context import Context
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.serving.tensors.waiting import Ran
from tiffin.serving.texts.encoder import Encoder
from tiffin.serving.texts.fitting import Manner, Whole, fitting
from tiffin.serving.texts.measures import TextMeasures
from tiffin.serving.texts.reading import Reader
from tiffin.types.snapshot import Deployment

TOKENIZER: Final = "tokenizer.json"
HELLO: Final = "Hello"


@dataclass(frozen=True, slots=True)
class Reads:
    """How a loaded model reads texts. `alone` says that no other row may run beside a text."""

    manner: Manner
    tokenizer: Tokenizer
    alone: bool = False


class Source(Protocol):
    """A model of texts before it is hosted: its runtime, the length of its queue, its platform."""

    runtime: TensorRuntime
    platform: str
    queue: int
    queue_timeout_s: float

    async def opened(self) -> int:
        """See to what loading needs; how many rows may run as one. Raises `LoadFailed`."""
        ...

    def reads(self) -> Reads:
        """How the model reads, once it is loaded."""
        ...


class OnnxSource:
    """A graph and its `tokenizer.json`."""

    def __init__(self, deployment: Deployment) -> None:
        self._model = model = msgspec.json.decode(deployment.spec, type=OnnxModel)
        self._files = paths(deployment)
        self.runtime: TensorRuntime = runtime_for("onnx", deployment)
        self.platform = PLATFORMS["onnx"]
        self.queue = model.queue
        self.queue_timeout_s = model.queue_timeout_s

    async def opened(self) -> int:
        """Read the tokenizer."""
        model = self._model
        self._tokenizer = await asyncio.to_thread(TokenizerFile, str(self._file(TOKENIZER)))
        self._alone = scales_by_batch(self._file(model.graph))
        return 1 if self._alone else model.max_batch

    def reads(self) -> Reads:
        """As the section says."""
        return Reads(self._model, self._tokenizer, self._alone)

    def _file(self, name: str) -> Path:
        if name not in self._files:
            raise LoadFailed(f"the model has no file '{name}'; it has: {', '.join(self._files)}")
        return self._files[name]


class GgufSource:
    """A GGUF file, which brings its tokenizer."""

    def __init__(self, deployment: Deployment) -> None:
        self._model = model = msgspec.json.decode(deployment.spec, type=LlamacppModel)
        self._encoder = gguf_encoder(deployment)
        self.runtime: TensorRuntime = self._encoder
        self.platform = "llamacpp"
        self.queue = model.queue
        self.queue_timeout_s = model.queue_timeout_s

    async def opened(self) -> int:
        """The engine's slots are what runs together."""
        return self._model.slots

    def reads(self) -> Reads:
        """The engine makes one vector of a text, or one score of a pair."""
        model, encoder = self._model, self._encoder
        manner = Whole(model.task, encoder.max_tokens, model.dimensions)
        return Reads(manner, encoder.tokens)


def onnx_encoder_hosted(around: Surroundings) -> "TextEncoderHosted":
    """An ONNX encoder as what a replica hosts."""
    return TextEncoderHosted(around, OnnxSource(around.deployment))


def gguf_encoder_hosted(around: Surroundings) -> "TextEncoderHosted":
    """A GGUF encoder as what a replica hosts."""
    return TextEncoderHosted(around, GgufSource(around.deployment))


class TextEncoderHosted:
    """Satisfies `app.hosted.Hosted` for `task = "embed"` and `task = "rerank"`."""

    def __init__(self, around: Surroundings, source: Source) -> None:
        deployment = around.deployment
        self._source = source
        self._monotonic = around.clock.monotonic
        self._measures = TensorMeasures(
            around.meter, deployment.model, version_of(deployment.revision)
        )
        self._replica = TensorReplica(source.runtime, around.clock, around.progress, self._measures)
        self._reader: Reader | None = None
        self._served: Served | None = None
        tensors = TensorReplicaApi(
            self._replica,
            Identity(deployment.revision, source.platform),
            around.meter,
            self._measures,
            around.max_body_bytes,
        )
        self._api = TextEncoderApi(
            self._loaded,
            TextMeasures(around.meter, deployment.model),
            around.clock,
            tensors,
            max_body_bytes=around.max_body_bytes,
        )

    async def load(self) -> None:
        """Load the model and its tokenizer, and see that they fit; raises `LoadFailed`."""
        source = self._source
        max_batch = await source.opened()
        await self._replica.load(
            max_batch=max_batch, queue=source.queue, queue_timeout_s=source.queue_timeout_s
        )
        reads = source.reads()
        manner = reads.manner
        how = fitting(self._replica.signature, manner)
        longest = min(manner.max_tokens, how.length or manner.max_tokens)
        self._reader = Reader(reads.tokenizer, longest)
        encoder = Encoder(
            manner,
            how,
            self._reader,
            self._run,
            alone=reads.alone,
            window=2 * max_batch * self._replica.runtime.lanes,
        )
        self._served = Served(manner.task, encoder, reads.tokenizer, longest, self._replica.check)

    async def warm_up(self) -> None:
        """Rows through the batcher, then a text all the way. Raises `LoadFailed`."""
        await self._replica.warm_up()
        served = self._loaded()
        try:
            if served.task == "embed":
                await served.encoder.embed([HELLO], None, Context())
            else:
                await served.encoder.rerank(HELLO, [HELLO], Context())
        except TiffinError as error:
            raise LoadFailed(f"the warm-up failed: {error.message}") from error

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._api(exchange)

    def look(self) -> None:
        """Note how many wait and run."""
        self._measures.look(self._replica)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let what was taken finish: texts of a begun request are still run."""
        until = self._monotonic() + within_s
        if self._served is not None:
            await self._served.encoder.drain(within_s)
        await self._replica.drain(max(0.0, until - self._monotonic()))

    async def close(self) -> None:
        """Give the model back."""
        if self._reader is not None:
            self._reader.close()
        await self._replica.close()

    async def _run(
        self, inputs: Mapping[str, NDArray[Any]], outputs: tuple[str, ...], context: Context
    ) -> Ran:
        return await self._replica.infer(inputs, outputs, context=context)

    def _loaded(self) -> Served:
        if self._served is None:
            raise Loading("the model is loading", retry_after=1.0)
        return self._served
