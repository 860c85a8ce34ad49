"""From an answer to the client's bytes: whole, streamed, from the cache, or an error."""

from dataclasses import dataclass

from tiffin.dialects.dialect import Asked, Dialect, Whole
from tiffin.errors import Draining, TiffinError, UpstreamFailed
from tiffin.gateway.account import Account
from tiffin.gateway.attempts import Answer, Begun
from tiffin.ports.exchange import Exchange, Headers

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
NO_STORE = (b"cache-control", b"no-cache")


@dataclass(slots=True)
class Delivery:
    """How this client gets its answer.

    `keep` collects what goes out where it may be cached, no more than about `keep_at_most` bytes;
    `kept_headers` are those that say what it is. `asked` is there once the request was read.
    """

    exchange: Exchange
    account: Account
    dialect: Dialect
    headers: Headers
    keep: bytearray | None = None
    keep_at_most: int = 0
    kept_headers: Headers | None = None
    asked: Asked | None = None

    def settle(self) -> None:
        """All of the answer is there, and may go out: what is to remain of it is kept now."""
        if self.asked is not None:
            self.asked.settle()

    def head(self, *first: tuple[bytes, bytes]) -> Headers:
        """The answer's headers as it begins now: `first`, the time it took, the request's own."""
        took = (b"openai-processing-ms", b"%d" % self.account.elapsed_ms())
        return [*first, took, *self.headers]

    def cost(self) -> Headers:
        """What a whole answer costs, as a header; none where nothing has a price."""
        cost = self.account.charge.told(self.account.usage)
        return [(b"x-tiffin-cost", cost.encode())] if cost else []


async def send_answer(delivery: Delivery, answer: Answer) -> None:
    """An answer at its commit point, whole or streamed."""
    if isinstance(answer, Whole):
        send_whole(delivery, answer)
    else:
        await send_stream(delivery, answer)


def send_whole(delivery: Delivery, answer: Whole) -> None:
    """The whole answer."""
    delivery.settle()
    delivery.account.status = 200
    delivery.exchange.respond(200, delivery.head(*answer.headers, *delivery.cost()), answer.body)
    delivery.account.content_sent()
    if delivery.keep is not None:
        delivery.keep += answer.body
        delivery.kept_headers = answer.headers


async def send_stream(delivery: Delivery, answer: Begun) -> None:
    """The answer's events as they come; raises `UpstreamFailed` where it breaks off."""
    exchange, account, reading = delivery.exchange, delivery.account, answer.reading
    account.status = 200
    exchange.begin(200, delivery.head(EVENTS, NO_STORE))
    out = answer.first
    try:
        while True:
            if reading.done and reading.error is None:
                delivery.settle()
            if out:
                exchange.write(out)
                account.streamed = True
                account.content_sent()
                if delivery.keep is not None and len(delivery.keep) <= delivery.keep_at_most:
                    delivery.keep += out
                await exchange.drain()
            if reading.error is not None:
                raise reading.error
            if reading.done:
                break
            data = await answer.reply.read()
            out = reading.feed(data)
            if not data and not reading.done and reading.error is None:
                raise UpstreamFailed("the answer broke off before its end")
    finally:
        account.usage = reading.usage
    exchange.finish()


def send_cached(delivery: Delivery, body: bytes, headers: Headers, *, streaming: bool) -> None:
    """A kept answer, replayed."""
    exchange, hit = delivery.exchange, (b"x-tiffin-cache", b"hit")
    delivery.account.status = 200
    if streaming:
        exchange.begin(200, delivery.head(EVENTS, NO_STORE, hit))
        exchange.write(body)
        exchange.finish()
    else:
        exchange.respond(200, delivery.head(*headers, hit, *delivery.cost()), body)
    delivery.account.content_sent()


def send_error(exchange: Exchange, error: TiffinError, dialect: Dialect, headers: Headers) -> int:
    """An error in the dialect's shape; inside a begun stream its last event. Returns the status."""
    if exchange.gone:
        return 499
    if exchange.begun:
        exchange.write(dialect.stream_error(error))
        exchange.keep_alive = False
        exchange.finish()
        return 200
    status, own, body = dialect.error(error)
    if isinstance(error, Draining):
        exchange.keep_alive = False
    exchange.respond(status, [*own, *headers], body)
    return status
