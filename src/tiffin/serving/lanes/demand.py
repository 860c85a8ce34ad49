"""How much each tenant has lately asked for, also of what was refused; pure, bounded."""

import math
from dataclasses import dataclass
from typing import Final

LATELY_S: Final = 10.0
"""The time constant with which demand fades."""
MOST: Final = 64  # tenants of a class that are remembered


@dataclass(slots=True)
class _Asked:
    weight: float
    work_s: float
    at: float

    def rate(self, now: float) -> float:
        """Slot seconds a second."""
        return self.work_s * math.exp((self.at - now) / LATELY_S) / LATELY_S


class Demand:
    """Of one class of urgency."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def add(self, tenant: str, weight: float, work_s: float, now: float) -> None:
        """A tenant asks for so many slot seconds."""
        asked = self._asked.get(tenant)
        if asked is None:
            if len(self._asked) >= MOST:
                del self._asked[min(self._asked, key=lambda name: self._asked[name].rate(now))]
            asked = self._asked[tenant] = _Asked(weight, 0.0, now)
        asked.work_s = asked.rate(now) * LATELY_S + work_s
        asked.at, asked.weight = now, weight

    def rate(self, now: float) -> float:
        """All tenants' slot seconds a second."""
        return sum(asked.rate(now) for asked in self._asked.values())

    def to_come(
        self, tenant: str, share_s: float, before: dict[str, float], wait_s: float, now: float
    ) -> float:
        """What others may yet bring that goes before a newcomer who is to wait for so long.

        `share_s` is what may go before it of a tenant of weight 1, `before` what is there already.
        """
        return sum(
            max(0.0, min(share_s * asked.weight - before.get(name, 0.0), asked.rate(now) * wait_s))
            for name, asked in self._asked.items()
            if name != tenant
        )
