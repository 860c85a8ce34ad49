"""The public port's credentials as they are now: read anew when a file of theirs is another one."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tiffin.api.server import EdgeServer
from tiffin.config.tls import Credentials, context_of, credentials_of
from tiffin.errors import ConfigInvalid
from tiffin.telemetry import log
from tiffin.types.tls import Tls
from tiffin.types.whole_file import replace_file

LOOK_EVERY_S = 0.5
AGAIN_AFTER_S = 30.0

Mark = tuple[int, int, int] | None


class PortCredentials:
    """What `tls` refers to. `current` is what is shown from now on.

    Raises `ConfigInvalid` where that can't be read at first; later what was there before stays, and
    `fault` says why. `shown` is where the certificates are left for commands on this machine, which
    know the port by them.
    """

    def __init__(self, tls: Tls, shown: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tls = tls
        self._shown = shown
        self._now_s = now_s
        self._again_s = 0.0
        self._marks = _marks(tls)
        self.current = credentials_of(tls)
        self.fault = ""
        self._show()

    async def look(self, wanted: Tls | None = None) -> Credentials | None:
        """The credentials where they have changed since. `wanted` is the configuration in force:
        what it refers to is followed, whether and whom to ask for certificates isn't."""
        tls = self._followed(wanted)
        marks = _marks(tls)
        same = tls == self._tls and marks == self._marks
        if same and not (self.fault and self._now_s() >= self._again_s):
            return None
        self._tls, self._marks = tls, marks
        try:
            # A program may have to be asked for the key.
            found = await asyncio.to_thread(credentials_of, tls)
        except ConfigInvalid as failure:
            if str(failure) != self.fault:
                log.error("certificates refused, those before stay", error=str(failure))
            self.fault = str(failure)
            self._again_s = self._now_s() + AGAIN_AFTER_S
            return None
        self.fault = ""
        if found == self.current:
            return None
        self.current = found
        self._show()
        log.info("certificates renewed", certificate=tls.certificate)
        return found

    def _followed(self, wanted: Tls | None) -> Tls:
        if wanted is None or not wanted.on:
            return self._tls
        if wanted.client == self._tls.client:
            return wanted
        ours = self._tls
        return msgspec.structs.replace(wanted, client=ours.client, client_ca=ours.client_ca)

    def _show(self) -> None:
        try:
            replace_file(self._shown, self.current.certificate, lasting=False)
        except OSError as failure:
            log.warning("the certificate can't be left for commands here", error=str(failure))


async def keep_fresh(
    credentials: PortCredentials, server: EdgeServer, wanted: Callable[[], Tls | None]
) -> None:
    """Have a server use what there is, until cancelled."""
    used = credentials.current
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await credentials.look(wanted())
        fresh = credentials.current
        if fresh is used:
            continue
        try:
            await server.renew(context_of(fresh), others=fresh.admits != used.admits)
        except OSError as failure:  # no descriptor is left: it is tried again
            log.error("the renewed certificates can't be shown yet", error=str(failure))
            continue
        used = fresh


def _marks(tls: Tls) -> tuple[Mark, ...]:
    """What tells whether files are others than before."""
    return tuple(_mark(path) for path in (tls.certificate, tls.key_file, tls.client_ca))


def _mark(path: str) -> Mark:
    try:
        seen = Path(path).expanduser().stat() if path else None
    except (OSError, RuntimeError):
        return None
    return (seen.st_mtime_ns, seen.st_size, seen.st_ino) if seen else None
