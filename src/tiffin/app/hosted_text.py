"""A language model as what a replica hosts."""

import msgspec

from tiffin.api.replica import ReplicaApi
from tiffin.app.adapters import runtime_for
from tiffin.app.hosted import Surroundings
from tiffin.ports.exchange import Exchange
from tiffin.ports.text_runtime import TextRuntime
from tiffin.serving.measures import Measures
from tiffin.serving.replica import Replica
from tiffin.serving.timeouts import Timeouts


class TextHosted:
    """Satisfies `app.hosted.Hosted` for a runtime of texts."""

    def __init__(self, around: Surroundings, runtime: TextRuntime | None = None) -> None:
        deployment = around.deployment
        settings = msgspec.json.decode(deployment.spec, type=_Settings)
        self._queue = settings.queue
        self._runtime: TextRuntime = runtime or runtime_for(settings.runtime, deployment)
        self._measures = Measures(around.meter, deployment.model)
        self._replica = Replica(
            self._runtime,
            around.clock,
            around.progress,
            self._measures,
            settings.timeouts(),
        )
        self._api = ReplicaApi(
            self._replica,
            around.meter,
            fingerprint="fp_" + deployment.revision.removeprefix("sha256:")[:10],
            max_body_bytes=around.max_body_bytes,
        )

    @property
    def busy(self) -> bool:
        """Whether an answer is being given."""
        return self._replica.lanes.running > 0

    async def load(self) -> None:
        """Load the model; raises `LoadFailed`."""
        await self._replica.load(self._queue)

    async def warm_up(self) -> None:
        """A short chat; ready afterwards. Raises `LoadFailed`."""
        await self._replica.warm_up()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._api(exchange)

    def look(self) -> None:
        """Note how full the slots are."""
        self._measures.look(self._replica)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let answers finish."""
        await self._replica.drain(within_s)

    async def close(self) -> None:
        """Give the engine back."""
        await self._runtime.close()


class _Settings(msgspec.Struct):
    runtime: str
    queue: int = 64
    queue_timeout_s: float = 0.0
    first_token_timeout_s: float = 0.0
    between_tokens_timeout_s: float = 0.0

    def timeouts(self) -> Timeouts:
        return Timeouts(
            self.queue_timeout_s, self.first_token_timeout_s, self.between_tokens_timeout_s
        )
