"""A tensor model as what a replica hosts."""

import msgspec

from tiffin.api.tensor_replica import Identity, TensorReplicaApi
from tiffin.app.adapters import runtime_for
from tiffin.app.hosted import Surroundings
from tiffin.config.models import Decision
from tiffin.dialects.oip.messages import version_of
from tiffin.ports.exchange import Exchange
from tiffin.serving.tensors.measures import TensorMeasures
from tiffin.serving.tensors.replica import TensorReplica

# Triton's names for what it calls a platform; others are called by their runtime.
PLATFORMS = {"onnx": "onnxruntime_onnx"}


class TensorsHosted:
    """Satisfies `app.hosted.Hosted` for a runtime of tensors."""

    def __init__(self, around: Surroundings) -> None:
        deployment = around.deployment
        self._settings = settings = msgspec.json.decode(deployment.spec, type=_Settings)
        runtime = runtime_for(settings.runtime, deployment)
        revision = deployment.revision
        self._measures = TensorMeasures(around.meter, deployment.model, version_of(revision))
        self._replica = TensorReplica(runtime, around.clock, around.progress, self._measures)
        self._api = TensorReplicaApi(
            self._replica,
            Identity(revision, PLATFORMS.get(settings.runtime, settings.runtime)),
            around.meter,
            self._measures,
            around.max_body_bytes,
        )

    async def load(self) -> None:
        """Load the model; raises `LoadFailed`."""
        settings = self._settings
        await self._replica.load(
            max_batch=settings.max_batch,
            queue=settings.queue,
            queue_timeout_s=settings.queue_timeout_s,
            decision=settings.decision,
        )

    async def warm_up(self) -> None:
        """A few rows through the batcher; ready afterwards. Raises `LoadFailed`."""
        await self._replica.warm_up()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._api(exchange)

    def look(self) -> None:
        """Note how many wait and run."""
        self._measures.look(self._replica)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let what was taken finish."""
        await self._replica.drain(within_s)

    async def close(self) -> None:
        """Give the model back."""
        await self._replica.close()


class _Settings(msgspec.Struct):
    runtime: str
    max_batch: int = 32
    queue: int = 1024
    queue_timeout_s: float = 0.0
    decision: Decision | None = None
