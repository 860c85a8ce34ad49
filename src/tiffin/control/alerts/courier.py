"""Brings messages to who is to be told: one at a time to each, again and again until it's taken."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tiffin.config.alerts import Alert
from tiffin.control.alerts.outbox import Message, Outbox
from tiffin.control.alerts.signature import signed
from tiffin.errors import TiffinError
from tiffin.ports.clock import Clock
from tiffin.ports.webhooks import Webhooks
from tiffin.telemetry import log
from tiffin.telemetry.metrics import Meter

LOOK_EVERY_S: Final = 0.25
WITHIN_S: Final = 10.0
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """An alert, and the key that its messages are signed with."""

    alert: Alert
    key: str = field(repr=False)


@dataclass(slots=True)
class Delay:
    """When a message may be tried again, by the monotonic clock, and how long the next wait is."""

    until_s: float = 0.0
    next_s: float = FIRST_RETRY_S


class Courier:
    """`receivers` are those of the configuration in force, by name; None while there is none.

    One that doesn't answer holds up nobody else, and a message that isn't taken no other message.
    """

    def __init__(
        self,
        outbox: Outbox,
        webhooks: Webhooks,
        receivers: Callable[[], Mapping[str, Receiver] | None],
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._outbox = outbox
        self._webhooks = webhooks
        self._receivers = receivers
        self._clock = clock
        self._sent = meter.counter(
            "tiffin_alerts_sent_total", "Tries to send an alert", ("alert", "outcome")
        )
        self._delays: dict[tuple[str, str], Delay] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._send_out(group)
                await asyncio.sleep(LOOK_EVERY_S)

    def _send_out(self, group: asyncio.TaskGroup) -> None:
        receivers = self._receivers()
        if receivers is None:
            return
        self._outbox.tidy(list(receivers), self._clock.now_ns())
        waiting = self._outbox.waiting
        known = {(one.to, one.id) for one in waiting}
        self._delays = {name: delay for name, delay in self._delays.items() if name in known}
        self._busy = {name: task for name, task in self._busy.items() if not task.done()}
        now = self._clock.monotonic()
        for message in waiting:
            delay = self._delays.setdefault((message.to, message.id), Delay())
            if message.to not in self._busy and delay.until_s <= now:
                work = self._tell(message, receivers[message.to], delay)
                self._busy[message.to] = group.create_task(work)

    async def _tell(self, message: Message, receiver: Receiver, delay: Delay) -> None:
        body = message.body.encode()
        headers = signed(receiver.key, message.id, self._clock.now_ns() // 1_000_000_000, body)
        try:
            status = await self._webhooks.post(receiver.alert.url, headers, body, within_s=WITHIN_S)
            failure = "" if 200 <= status < 300 else f"it answered {status}"
            if not failure:
                self._outbox.strike(message)
                self._sent.add((message.to, "taken"))
                return
        except TiffinError as cause:
            failure = cause.message
        except Exception as cause:  # noqa: BLE001 - what surprises here may end nobody else's
            failure = f"{type(cause).__name__}: {cause}"
        self._sent.add((message.to, "failed"))
        delay.until_s = self._clock.monotonic() + delay.next_s
        delay.next_s = min(2 * delay.next_s, LAST_RETRY_S)
        log.warning("an alert isn't taken yet", alert=message.to, id=message.id, reason=failure)
