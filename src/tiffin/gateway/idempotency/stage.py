"""The stage of the walk that lets a request with an `Idempotency-Key` be done once: what it came to
is given again to whoever sends the same request with the same key."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import sha256
from types import TracebackType

from tiffin.errors import Blocked, SchemaViolation, TiffinError, Unavailable
from tiffin.gateway.account import NO_USAGE, Account
from tiffin.gateway.idempotency.finish import FINISH, Lasting
from tiffin.gateway.idempotency.keys import Wanted
from tiffin.gateway.idempotency.register import KeptAnswer, Register
from tiffin.gateway.respond import Delivery, send_kept
from tiffin.gateway.run import Run
from tiffin.ports.exchange import Exchange
from tiffin.ports.key_log import Fact
from tiffin.types.snapshot import Principal

KEY = b"idempotency-key"
MAX_KEY_BYTES = 255
REPLAYED = (b"idempotency-replayed", b"true")
ORIGINAL = b"x-tiffin-original-request"
NOT_KEYED: AbstractAsyncContextManager[bool] = nullcontext(enter_result=False)

_ABOUT_NOW = (b"retry-after", b"retry-after-ms")
_FORM = b"multipart/form-data"


class Once:
    """Answers by key; `register` is None where nothing can be kept, so that keys are refused."""

    def __init__(self, register: Register | None = None) -> None:
        self._register = register

    def hold(
        self, principal: Principal, run: Run, delivery: Delivery, body: bytes
    ) -> AbstractAsyncContextManager[bool]:
        """A context: entering gives a kept answer again and says so, or claims the key; leaving
        lets go of a key whose answer wasn't kept. Raises what forbids to use it.
        """
        exchange = delivery.exchange
        key = key_of(exchange)
        if key is None:
            return NOT_KEYED
        if self._register is None:
            raise Unavailable("requests with an Idempotency-Key aren't taken here")
        wanted = Wanted(
            scope=digest(principal.tenant.encode(), principal.project.encode(), key),
            fingerprint=fingerprint(key, exchange, body),
            tenant=principal.tenant,
            request=delivery.account.id,
        )
        return Hold(self._register, wanted, run, delivery)


class Hold:
    """One request's use of its key."""

    __slots__ = ("_claim", "_delivery", "_paying", "_register", "_run", "_wanted")

    def __init__(self, register: Register, wanted: Wanted, run: Run, delivery: Delivery) -> None:
        self._register = register
        self._wanted = wanted
        self._run = run
        self._delivery = delivery
        self._claim: Fact | None = None
        self._paying = False

    async def __aenter__(self) -> bool:
        run, delivery = self._run, self._delivery
        found = await self._register.claim(self._wanted)
        if isinstance(found, KeptAnswer):
            delivery.account.cache = "replayed"
            delivery.account.given(run.plan.targets[0].price)
            delivery.headers.append((ORIGINAL, found.request.encode()))
            send_kept(delivery, found, REPLAYED)
            return True
        self._claim = found
        run.paying = self._pay
        delivery.collect(self._register.keys.bounds.answer_bytes)
        delivery.keeping = self._keep
        if isinstance(delivery.exchange, Lasting):
            delivery.exchange.lasts = True
        return False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        claim, register, delivery = self._claim, self._register, self._delivery
        if claim is None:
            return
        if isinstance(error, TiffinError):
            if is_paid(delivery.account, error):
                register.keep(claim, self._failure(error))
            else:
                register.release(claim)
        elif isinstance(error, asyncio.CancelledError) and delivery.exchange.gone:
            register.release(claim)
        elif self._paying:
            register.lose(claim)
        else:
            register.release(claim)

    def _keep(self) -> None:
        """All of the answer is there: it is kept before the client can have seen its end."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._register.keep(claim, self._answer(b""))

    def _pay(self) -> None:
        """A target that charges for each try is about to be called."""
        if self._claim is not None and not self._paying:
            self._register.paying(self._claim)
            self._paying = True

    def _answer(self, ending: bytes) -> KeptAnswer | None:
        delivery, streaming = self._delivery, self._run.asked.streaming
        body = bytes(delivery.keep or b"") + ending
        if len(body) > self._register.keys.bounds.answer_bytes:
            return None
        return KeptAnswer(
            request=delivery.account.id,
            status=delivery.account.status,
            headers=delivery.kept_headers or [],
            body=body,
            streaming=streaming,
        )

    def _failure(self, error: TiffinError) -> KeptAnswer | None:
        """What the client is told of an error: the end of what it got, or all that it gets."""
        delivery = self._delivery
        if delivery.exchange.begun:
            return self._answer(delivery.dialect.stream_error(error))
        status, headers, body = delivery.dialect.error(error)
        lasting = [(name, value) for name, value in headers if name not in _ABOUT_NOW]
        return KeptAnswer(
            request=delivery.account.id,
            status=status,
            headers=lasting,
            body=body,
            streaming=False,
        )


def key_of(exchange: Exchange) -> bytes | None:
    """The request's key, if it has one; raises `SchemaViolation` where it can't be one."""
    key = exchange.header(KEY)
    if key is None:
        if exchange.header(FINISH) is not None:
            raise SchemaViolation(
                "the header x-tiffin-finish needs an Idempotency-Key, under which the answer can be"
                " asked for later",
                param="x-tiffin-finish",
            )
        return None
    if not 1 <= len(key) <= MAX_KEY_BYTES or not all(32 <= byte < 127 for byte in key):
        raise SchemaViolation(
            f"the header Idempotency-Key must be 1 to {MAX_KEY_BYTES} printable ASCII characters,"
            f" not {len(key)} bytes; a UUID is a good one",
            param="Idempotency-Key",
        )
    return key


def fingerprint(key: bytes, exchange: Exchange, body: bytes) -> bytes:
    """A digest that another request doesn't have. The key, which isn't stored, is part of it: so a
    digest alone doesn't tell whether a body was guessed."""
    content = exchange.header(b"content-type") or b""
    if content.startswith(_FORM):
        # Clients choose another boundary for each try.
        boundary = content.partition(b"boundary=")[2].partition(b";")[0].strip(b'" ')
        content, body = _FORM, body.replace(boundary, b"") if boundary else body
    length = exchange.header(b"inference-header-content-length") or b""
    return digest(key, exchange.path, exchange.query, content, length, body)


def digest(*parts: bytes) -> bytes:
    """The sha256 of parts that can't run into each other."""
    found = sha256()
    for part in parts:
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


def is_paid(account: Account, error: TiffinError) -> bool:
    """Whether the tenant pays for what ended in an error: it got a part of its answer, or all of it
    was made and a guard let none of it out; and its model said what that took."""
    made = account.streamed or isinstance(error, Blocked)
    return made and account.usage.measured and account.usage != NO_USAGE
