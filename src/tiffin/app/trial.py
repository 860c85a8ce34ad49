"""Whether the Tiffin beside an interpreter could take over: `python -m tiffin.app.trial FD`.

It says which version it is, or fails with the reason.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import msgspec

from tiffin.app.handover import read
from tiffin.errors import Conflict


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a program that could take over says of itself."""

    version: str


def main() -> None:
    """Entry of the process."""
    for part in ("supervisor", "control", "gateway", "replica"):
        import_module(f"tiffin.app.{part}")
    try:
        read(int(sys.argv[1]))
    except Conflict as failure:
        sys.exit(failure.message)
    sys.stdout.buffer.write(msgspec.json.encode(Tried(version=version("tiffin"))) + b"\n")


if __name__ == "__main__":
    main()
