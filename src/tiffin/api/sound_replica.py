"""The inbound edge of a replica of sounds: transcripts, health and counters."""

from tiffin.api.hop import Routes, context_of, failures_told, route_of, usage_header
from tiffin.dialects.openai.transcriptions import PATH, read_asking
from tiffin.dialects.openai.transcripts import rendered
from tiffin.ports.exchange import Exchange
from tiffin.serving.sound import Listener
from tiffin.telemetry.metrics import Meter

JSON = (b"content-type", b"application/json")


class SoundReplicaApi:
    """Answers exchanges from one model."""

    def __init__(self, listener: Listener, meter: Meter, *, max_body_bytes: int) -> None:
        self._listener = listener
        self._meter = meter
        self._max_body_bytes = max_body_bytes
        self._routes: Routes = {
            PATH: (b"POST", self._transcribe),
            b"/v2/health/live": (b"GET", self._live),
            b"/v2/health/ready": (b"GET", self._ready),
            b"/metrics.json": (b"GET", self._metrics),
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange; cancelling this stops the work behind it."""
        with failures_told(exchange):
            await route_of(self._routes, exchange)(exchange)

    async def _transcribe(self, exchange: Exchange) -> None:
        self._listener.check()
        body = await exchange.body(self._max_body_bytes)
        asking = read_asking(exchange.header(b"content-type"), body)
        sound = body[asking.file.start : asking.file.end]
        context = context_of(exchange, self._listener.clock)
        heard = await self._listener.hear(sound, asking.hearing, context)
        content, answer = rendered(heard.transcript, asking.format)
        exchange.respond(200, [(b"content-type", content), usage_header(heard.usage)], answer)

    async def _live(self, exchange: Exchange) -> None:
        exchange.respond(200, [JSON], b'{"live":true}')

    async def _ready(self, exchange: Exchange) -> None:
        self._listener.check()
        exchange.respond(200, [JSON], b'{"ready":true}')

    async def _metrics(self, exchange: Exchange) -> None:
        exchange.respond(200, [JSON], self._meter.state())
