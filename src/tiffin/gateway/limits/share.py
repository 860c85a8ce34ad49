"""Which part of a limit is one gateway's own, for while the store of all doesn't answer."""

from typing import NamedTuple


class Share(NamedTuple):
    """Which of how many gateways this is."""

    ordinal: int
    gateways: int

    def of(self, amount: int) -> int:
        """Its part; those of all gateways make the whole."""
        return amount // self.gateways + (self.ordinal < amount % self.gateways)
