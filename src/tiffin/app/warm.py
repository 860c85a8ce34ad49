"""A replica's process before it knows its model: libraries are imported, the rest comes by a pipe.

`python -m tiffin.app.warm`; it takes one boot value from its pipe and goes on as `app.replica`
would have. Where the pipe closes instead, it ends.
"""

import os
import sys
from importlib import import_module

import msgspec
import uvloop

from tiffin.app.boot import Boot, enter, read_boot
from tiffin.app.replica import serve


def main() -> None:
    """Entry of the process."""
    warm = read_boot(sys.argv)
    enter(warm)
    for module in warm.imports:
        # What can't be imported fails again where it is needed, and is told there.
        try:
            import_module(module)
        except ImportError:
            continue
    with os.fdopen(warm.listen_fd, "rb") as pipe:
        given = pipe.readline()
    if not given:
        return
    boot = msgspec.json.decode(given, type=Boot)
    enter(boot)
    sys.exit(uvloop.run(serve(boot)))


if __name__ == "__main__":
    main()
