"""Identifiers: time-ordered 128-bit values with a prefix: they sort by birth and never clash."""

import os
import time
from typing import NewType

RequestId = NewType("RequestId", str)
TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
RevisionId = NewType("RevisionId", str)
EpochId = NewType("EpochId", str)


def new_id(prefix: str) -> str:
    """`prefix_` and 32 hex digits: 48 bits of Unix milliseconds, then 80 random bits."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
