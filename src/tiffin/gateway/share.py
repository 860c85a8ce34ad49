"""Which part of what all gateways have is one gateway's own, where they can't ask each other."""

from typing import NamedTuple


class Share(NamedTuple):
    """Which of how many gateways this is."""

    ordinal: int = 0
    gateways: int = 1

    def of(self, amount: int) -> int:
        """Its part; those of all gateways make the whole."""
        return amount // self.gateways + (self.ordinal < amount % self.gateways)


WHOLE = Share()
"""That of the only gateway."""
