"""Identifiers: time-ordered 128-bit values with a prefix: they sort by birth and never clash."""

import time
from random import getrandbits
from typing import NewType

RequestId = NewType("RequestId", str)
TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
RevisionId = NewType("RevisionId", str)
EpochId = NewType("EpochId", str)


def new_id(prefix: str) -> str:
    """`prefix_` and 32 hex digits: 48 bits of Unix milliseconds, then 80 random bits."""
    value = (time.time_ns() // 1_000_000 << 80) | getrandbits(80)
    return f"{prefix}_{value:032x}"
