"""A model of sounds as what a replica hosts."""

import msgspec

from tiffin.api.sound_replica import SoundReplicaApi
from tiffin.app.adapters import runtime_for
from tiffin.app.hosted import Surroundings
from tiffin.ports.exchange import Exchange
from tiffin.ports.sound_runtime import SoundRuntime
from tiffin.serving.sound import Listener
from tiffin.serving.sound_measures import SoundMeasures


class SoundHosted:
    """Satisfies `app.hosted.Hosted` for a runtime of sounds."""

    def __init__(self, around: Surroundings) -> None:
        deployment = around.deployment
        settings = msgspec.json.decode(deployment.spec, type=_Settings)
        self._settings = settings
        runtime: SoundRuntime = runtime_for(settings.runtime, deployment)
        self._measures = SoundMeasures(around.meter, deployment.model)
        self._listener = Listener(runtime, around.clock, around.progress, self._measures)
        self._api = SoundReplicaApi(
            self._listener, around.meter, max_body_bytes=around.max_body_bytes
        )

    async def load(self) -> None:
        """Load the model; raises `LoadFailed`."""
        settings = self._settings
        await self._listener.load(settings.queue, queue_timeout_s=settings.queue_timeout_s)

    async def warm_up(self) -> None:
        """A second of silence; ready afterwards. Raises `LoadFailed`."""
        await self._listener.warm_up()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._api(exchange)

    def look(self) -> None:
        """Note how full it is."""
        self._measures.look(self._listener)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let what runs finish."""
        await self._listener.drain(within_s)

    async def close(self) -> None:
        """Give the model back."""
        await self._listener.close()


class _Settings(msgspec.Struct):
    runtime: str
    queue: int = 16
    queue_timeout_s: float = 0.0
