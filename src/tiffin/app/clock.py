"""The system's clocks, as the port wants them."""

import time


class SystemClock:
    """Satisfies `ports.clock.Clock`."""

    __slots__ = ()

    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
