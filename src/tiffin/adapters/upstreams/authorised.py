"""Calls that a signer authorises, one by one; what it had cached and isn't let in is had anew."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final

from tiffin.errors import DeadlineExceeded, UpstreamUnavailable
from tiffin.ports.backend import Backend, Call, Reply
from tiffin.ports.signer import Signer

UNAUTHORISED: Final = 401


class AuthorisedBackend:
    """Satisfies `ports.backend.Backend`.

    A call that was refused for what had been let in before is an `UpstreamUnavailable` that is
    `stale`: it may be made again at once, with fresh credentials, and counts as one made.
    """

    def __init__(self, inner: Backend, signer: Signer, close: Callable[[], None]) -> None:
        self._inner = inner
        self._signer = signer
        self._close = close

    def start(self, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Authorise and send `call` on entering the returned context; stop it on leaving."""
        return _Exchange(self._inner, self._signer, call)

    def close(self) -> None:
        """Close what it asks through."""
        self._signer.close()
        self._close()


class _Exchange:
    __slots__ = ("_call", "_exchange", "_inner", "_signer")

    def __init__(self, inner: Backend, signer: Signer, call: Call) -> None:
        self._inner = inner
        self._signer = signer
        self._call = call
        self._exchange: AbstractAsyncContextManager[Reply] | None = None

    async def __aenter__(self) -> Reply:
        call, signer = self._call, self._signer
        lines = await _lines(signer, call)
        exchange = self._inner.start(replace(call, headers=call.headers + lines))
        reply = await exchange.__aenter__()
        if reply.status != UNAUTHORISED:
            signer.accepted(lines)
        elif signer.refused(lines):
            await exchange.__aexit__(None, None, None)
            raise _over()
        self._exchange = exchange
        return reply

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        exchange, self._exchange = self._exchange, None
        return await exchange.__aexit__(kind, error, trace) if exchange is not None else None


async def _lines(signer: Signer, call: Call) -> bytes:
    try:
        async with asyncio.timeout_at(call.deadline):
            return await signer.lines(call)
    except TimeoutError as error:
        raise DeadlineExceeded("the deadline passed while the call was authorised") from error


def _over() -> UpstreamUnavailable:
    error = UpstreamUnavailable("the upstream doesn't take its token any more (status 401)")
    error.stale = True
    error.status = UNAUTHORISED
    return error
