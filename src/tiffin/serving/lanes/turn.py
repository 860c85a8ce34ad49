"""Waiting for a slot, the only part of the queue that does."""

import asyncio
import math
from types import TracebackType

from tiffin.serving.lanes.claim import Standing, Ticket
from tiffin.serving.lanes.slots import Lanes


class Turn:
    """Entering waits for the ticket's slot, or raises its refusal; leaving gives the slot back."""

    __slots__ = ("_lanes", "_ticket")

    def __init__(self, lanes: Lanes, ticket: Ticket) -> None:
        self._lanes = lanes
        self._ticket = ticket

    async def __aenter__(self) -> Ticket:
        ticket = self._ticket
        timer = None
        try:
            if ticket.standing is Standing.WAITING:
                loop = asyncio.get_running_loop()
                ticket.called = loop.create_future()
                left_s = self._lanes.patience_s(ticket)
                if left_s != math.inf:
                    timer = loop.call_later(left_s, self._lanes.give_up, ticket)
                await ticket.called
            if ticket.refusal is not None:
                raise ticket.refusal
        except BaseException:
            self._lanes.leave(ticket)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return ticket

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lanes.leave(self._ticket)
