"""What a gateway keeps of answers to requests with an idempotency key, put together."""

import asyncio

from tiffin.adapters.stores.key_log import SEGMENT_BYTES, FolderKeyLog
from tiffin.app.boot import Boot
from tiffin.app.vault import LaterVault
from tiffin.config.vault import Idempotency
from tiffin.gateway.idempotency.keys import Bounds
from tiffin.gateway.idempotency.register import Register
from tiffin.ports.clock import Clock
from tiffin.telemetry.metrics import Meter
from tiffin.types.paths import DataFolder, idempotency_keys, vault

TEND_EVERY_S = 0.5


class KeptAnswers:
    """The register of one gateway, from its start to its end."""

    def __init__(self, boot: Boot, data: DataFolder, clock: Clock, meter: Meter) -> None:
        settings = boot.server.idempotency
        self._log = FolderKeyLog(
            idempotency_keys(data),
            boot.epoch,
            # Twice what counts, so that what doesn't can be told apart and removed.
            max_bytes=2 * settings.max_bytes + 16 * SEGMENT_BYTES,
            segment_bytes=max(SEGMENT_BYTES, 4 * settings.max_answer_bytes),
        )
        sealer = LaterVault(vault(data), boot.server.vault)
        self.register = Register(self._log, sealer, clock, bounds_of(settings))
        self._keys = meter.gauge(
            "tiffin_idempotency_keys", "Idempotency keys that are remembered", alike=True
        )
        self._bytes = meter.gauge(
            "tiffin_idempotency_bytes",
            "What they and their answers count for, with what runs",
            alike=True,
        )

    async def keep(self) -> None:
        """Read what is there, then look after it, until cancelled."""
        await self.register.load()
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            self.register.tend()
            share = self.register.keys.all
            self._keys.set(share.keys)
            self._bytes.set(share.bytes)

    def shut(self) -> None:
        """Nothing is claimed or kept after."""
        self._log.shut()


def bounds_of(settings: Idempotency) -> Bounds:
    """The bounds that the settings mean."""
    return Bounds(
        keep_ns=int(settings.keep_s * 1e9),
        keys=settings.max_keys,
        bytes=settings.max_bytes,
        tenant_keys=settings.max_tenant_keys,
        tenant_bytes=settings.max_tenant_bytes,
        answer_bytes=settings.max_answer_bytes,
    )
