"""From an answer to the client's bytes: whole, streamed, from the cache, or an error."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tiffin.dialects.dialect import Asked, Dialect, Whole
from tiffin.errors import Draining, TiffinError, UpstreamFailed
from tiffin.gateway.account import Account
from tiffin.gateway.run import Answer, Begun
from tiffin.ports.exchange import Exchange, Headers

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
FALLBACK = b"x-tiffin-fallback"
NO_STORE = (b"cache-control", b"no-cache")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it went to its client: its bytes, and the headers that say what it is."""

    body: bytes
    headers: Headers
    streaming: bool
    status: int = 200


@dataclass(slots=True)
class Delivery:
    """How this client gets its answer.

    `keep` collects what goes out where it may be given again, no more than about `keep_at_most`
    bytes; `kept_headers` are those that say what it is. `asked` is there once the request was read,
    `keeping` is called when all of the answer is there and collected, before its end goes out.
    """

    exchange: Exchange
    account: Account
    dialect: Dialect
    headers: Headers
    keep: bytearray | None = None
    keep_at_most: int = 0
    kept_headers: Headers | None = None
    asked: Asked | None = None
    keeping: Callable[[], None] | None = None

    def collect(self, at_most: int) -> None:
        """Collect what goes out, up to this many bytes or more."""
        if self.keep is None:
            self.keep = bytearray()
        self.keep_at_most = max(self.keep_at_most, at_most)

    async def settle(self) -> None:
        """All of the answer is there, and may go out: what is to remain of it is kept now."""
        if self.asked is not None:
            keeping = self.asked.settle()
            if keeping is not None:
                await keeping
        if self.keeping is not None:
            self.keeping()

    def head(self, *first: tuple[bytes, bytes]) -> Headers:
        """The answer's headers as it begins now: `first`, the time it took, the request's own."""
        took = (b"openai-processing-ms", b"%d" % self.account.elapsed_ms())
        return [*first, took, *self.headers]

    def marks(self) -> Headers:
        """Who answers, where that isn't the plan's first target: part of what the answer is."""
        other = self.account.fallback
        return [(FALLBACK, other.encode())] if other else []

    def cost(self) -> Headers:
        """What a whole answer costs, as a header; none where nothing has a price."""
        cost = self.account.charge.told(self.account.used())
        return [(b"x-tiffin-cost", cost.encode())] if cost else []


async def send_answer(delivery: Delivery, answer: Answer) -> None:
    """An answer at its commit point, whole or streamed."""
    if isinstance(answer, Whole):
        await send_whole(delivery, answer)
    else:
        await send_stream(delivery, answer)


async def send_whole(delivery: Delivery, answer: Whole) -> None:
    """The whole answer."""
    delivery.account.status = 200
    headers = [*answer.headers, *delivery.marks()]
    if delivery.keep is not None:
        delivery.keep += answer.body[: delivery.keep_at_most + 1]
        delivery.kept_headers = headers
    await delivery.settle()
    delivery.exchange.respond(200, delivery.head(*headers, *delivery.cost()), answer.body)
    delivery.account.content_sent()


async def send_stream(delivery: Delivery, answer: Begun) -> None:
    """The answer's events as they come; raises `UpstreamFailed` where it breaks off."""
    exchange, account, reading = delivery.exchange, delivery.account, answer.reading
    account.status = 200
    delivery.kept_headers = marks = delivery.marks()
    exchange.begin(200, delivery.head(EVENTS, NO_STORE, *marks))
    out = answer.first
    try:
        while True:
            if delivery.keep is not None and len(delivery.keep) <= delivery.keep_at_most:
                delivery.keep += out
            if reading.done and reading.error is None:
                await delivery.settle()
            if out:
                exchange.write(out)
                account.streamed = True
                account.content_sent()
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


def send_kept(delivery: Delivery, kept: Kept, mark: tuple[bytes, bytes]) -> None:
    """An answer that was given before, given again, and marked as that."""
    exchange = delivery.exchange
    delivery.account.status = kept.status
    if delivery.keep is not None:
        delivery.keep += kept.body[: delivery.keep_at_most + 1]
        delivery.kept_headers = kept.headers
    if delivery.keeping is not None:
        delivery.keeping()
    if kept.streaming:
        exchange.begin(kept.status, delivery.head(EVENTS, NO_STORE, *kept.headers, mark))
        exchange.write(kept.body)
        exchange.finish()
    else:
        head = delivery.head(*kept.headers, mark, *delivery.cost())
        exchange.respond(kept.status, head, kept.body)
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
