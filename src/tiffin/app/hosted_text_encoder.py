"""A model that embeds or reranks texts as what a replica hosts: tensors and a tokenizer."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from numpy.typing import NDArray

from tiffin.adapters.runtimes.quantized import scales_by_batch
from tiffin.adapters.runtimes.tokens import TokenizerFile
from tiffin.api.tensor_replica import Identity, TensorReplicaApi
from tiffin.api.text_encoder_replica import Served, TextEncoderApi
from tiffin.app.adapters import paths, runtime_for
from tiffin.app.hosted import Surroundings
from tiffin.app.hosted_tensors import PLATFORMS
from tiffin.config.models import OnnxModel
from tiffin.dialects.oip.messages import version_of
from tiffin.errors import LoadFailed, Loading, TiffinError
from tiffin.ports.exchange import Exchange
from tiffin.serving.replica import Context
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.replica import TensorReplica
from tiffin.serving.tensors.waiting import Ran
from tiffin.serving.texts.encoder import Encoder
from tiffin.serving.texts.fitting import fitting
from tiffin.serving.texts.measures import TextMeasures
from tiffin.serving.texts.reading import Reader

RUNTIME: Final = "onnx"
TOKENIZER: Final = "tokenizer.json"
HELLO: Final = "Hello"


class TextEncoderHosted:
    """Satisfies `app.hosted.Hosted` for `task = "embed"` and `task = "rerank"`."""

    def __init__(self, around: Surroundings) -> None:
        deployment = around.deployment
        self._model = msgspec.json.decode(deployment.spec, type=OnnxModel)
        self._files = paths(deployment)
        self._monotonic = around.clock.monotonic
        self._measures = TensorMeasures(
            around.meter, deployment.model, version_of(deployment.revision)
        )
        self._replica = TensorReplica(
            runtime_for(RUNTIME, deployment), around.clock, around.progress, self._measures
        )
        self._reader: Reader | None = None
        self._served: Served | None = None
        tensors = TensorReplicaApi(
            self._replica,
            Identity(deployment.revision, PLATFORMS[RUNTIME]),
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
        """Load the graph and the tokenizer, and see that they fit; raises `LoadFailed`."""
        model = self._model
        tokenizer = await asyncio.to_thread(TokenizerFile, str(self._file(TOKENIZER)))
        alone = scales_by_batch(self._file(model.graph))
        max_batch = 1 if alone else model.max_batch
        await self._replica.load(
            max_batch=max_batch, queue=model.queue, queue_timeout_s=model.queue_timeout_s
        )
        how = fitting(self._replica.signature, model)
        longest = min(model.max_tokens, how.length or model.max_tokens)
        self._reader = Reader(tokenizer, longest)
        encoder = Encoder(
            model,
            how,
            self._reader,
            self._run,
            alone=alone,
            window=2 * max_batch * self._replica.runtime.lanes,
        )
        self._served = Served(model.task, encoder, tokenizer, longest, self._replica.check)

    async def warm_up(self) -> None:
        """Rows through the batcher, then a text all the way. Raises `LoadFailed`."""
        await self._replica.warm_up()
        encoder = self._loaded().encoder
        try:
            if self._model.task == "embed":
                await encoder.embed([HELLO], None, Context())
            else:
                await encoder.rerank(HELLO, [HELLO], Context())
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

    def _file(self, name: str) -> Path:
        if name not in self._files:
            raise LoadFailed(f"the model has no file '{name}'; it has: {', '.join(self._files)}")
        return self._files[name]
