"""Calls signed as services of AWS expect it."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from tiffin.adapters.upstreams.endpoint import Endpoint
from tiffin.dialects.aws.signature import Credentials, Scope, Signed, authorization
from tiffin.ports.backend import Call

AT_ONCE_BYTES: Final = 262_144
"""Up to here a body's digest takes less than what a thread for it costs others."""


class AwsSigner:
    """Satisfies `ports.signer.Signer`; `now_ns` is UTC."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials,
        *,
        region: str,
        service: str,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._region = region
        self._service = service
        self._now_ns = now_ns

    async def lines(self, call: Call) -> bytes:
        """The moment, the session's token where there is one, and the signature."""
        end, credentials = self._endpoint, self._credentials
        digest = sha256(call.body) if len(call.body) <= AT_ONCE_BYTES else None
        if digest is None:
            digest = await asyncio.to_thread(sha256, call.body)
        moment = f"{datetime.fromtimestamp(self._now_ns() / 1e9, UTC):%Y%m%dT%H%M%SZ}"
        own = [("x-amz-date", moment)]
        if credentials.token:
            own.append(("x-amz-security-token", credentials.token))
        named = [("host", end.authority.decode()), *_pairs(call.content), *own]
        path = (end.prefix + end.place(call.path)).decode()
        request = Signed(call.method.decode(), path, named, digest.hexdigest())
        scope = Scope(self._region, self._service, moment)
        own.append(("authorization", authorization(request, credentials, scope)))
        return "".join(f"{name}: {value}\r\n" for name, value in own).encode()

    def accepted(self, lines: bytes) -> None:
        """Each call has its own."""

    def refused(self, lines: bytes) -> bool:
        """The keys themselves are: others come by another reference."""
        return False

    def close(self) -> None:
        """It asks nobody."""


def _pairs(lines: bytes) -> list[tuple[str, str]]:
    """Header lines as names and values."""
    pairs = (line.partition(":") for line in lines.decode().split("\r\n") if line)
    return [(name, value) for name, _, value in pairs]
