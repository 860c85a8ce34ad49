"""Whether the Tiffin beside an interpreter could take over: `python -m tiffin.app.trial FD`.

It says which version it is, or fails with the reason.
"""

import sys
from importlib.metadata import version

import msgspec

# What is to run must be possible to import.
import tiffin.app.supervisor  # noqa: F401
from tiffin.app.handover import read
from tiffin.errors import Conflict


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a program that could take over says of itself."""

    version: str


def main() -> None:
    """Entry of the process."""
    try:
        read(int(sys.argv[1]))
    except Conflict as failure:
        sys.exit(failure.message)
    sys.stdout.buffer.write(msgspec.json.encode(Tried(version=version("tiffin"))) + b"\n")


if __name__ == "__main__":
    main()
