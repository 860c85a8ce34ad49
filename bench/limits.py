"""What limits cost a request, and how much memory they take.

    python bench/limits.py [--requests 100000] [--keys 100000] [--users 100000]

A request is admitted, reserved and settled, as the walk does it, without anything else of the walk.
The microseconds are what that takes beyond a request of a key without limits, which passes the same
code; processor time, the middle of seven rounds, in turns. Then a million requests of as many end
users as were asked for, with the memory before and after.
"""

import argparse
import gc
import resource
import statistics
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from tiffin.adapters.stores.spent import SpentFile
from tiffin.app.clock import SystemClock
from tiffin.dialects.dialect import Asked, Extent
from tiffin.gateway.account import Account, Accounts
from tiffin.gateway.admit import Admission
from tiffin.gateway.limits.counts import Counts
from tiffin.gateway.limits.needs import Claim
from tiffin.telemetry.events import Closed, Opened
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange
from tiffin.types.limits import Limits, Rule
from tiffin.types.money import PICO
from tiffin.types.price import Price
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target
from tiffin.types.usage import Usage

T = TypeVar("T")

ROUNDS = 7
MANY = 10**9
FIRST = Limits(requests_per_minute=MANY, burst=MANY, concurrency=MANY)
TOKENS = Rule(of="tokens", amount=10**12, per="minute")
MONEY = Rule(of="money", amount=10**9, per="month")
ALL = (
    TOKENS,
    Rule(of="input_tokens", amount=10**12, per="hour"),
    Rule(of="output_tokens", amount=10**12, per="day"),
    Rule(of="images", amount=MANY, per="day"),
    Rule(of="pages", amount=MANY, per="day"),
    MONEY,
)
USERS = (Rule(of="tokens", amount=10**9, per="minute", each="end_user"),)
KINDS = {
    "no limits": Limits(),
    "requests and concurrency": FIRST,
    "and tokens": Limits(requests_per_minute=MANY, burst=MANY, concurrency=MANY, rules=(TOKENS,)),
    "and money": Limits(
        requests_per_minute=MANY, burst=MANY, concurrency=MANY, rules=(TOKENS, MONEY)
    ),
    "all kinds": Limits(requests_per_minute=MANY, burst=MANY, concurrency=MANY, rules=ALL),
    "all kinds, and end users'": Limits(
        requests_per_minute=MANY, burst=MANY, concurrency=MANY, rules=(*ALL, *USERS)
    ),
}
PRICE = Price(currency="INR", input_token=PICO // 10**6, output_token=PICO // 10**5)
TARGET = Target(model="m", revision="r", kind="remote", price=PRICE)
PLAN = Plan(name="m", identity="1", targets=(TARGET,))
USED = Usage(prompt_tokens=200, completion_tokens=100)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What comes of work that doesn't wait, as counting in this process doesn't."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("it waits for something")


class Nobody:
    """Takes accounts' events and forgets them."""

    def open(self, event: Opened) -> None:
        """Nothing."""

    def close(self, event: Closed) -> None:
        """Nothing."""


class Request:
    """A chat for an end user."""

    operation = "chat"

    def __init__(self, end_user: str = "") -> None:
        self.end_user = end_user

    def extent(self) -> Extent:
        """Its length, as it says it."""
        return Extent(True, 400)


class Desk:
    """Limits of a tenant `t`, and keys without limits of their own."""

    def __init__(
        self, folder: Path, limits: Limits, keys: int, counts: Counts | None = None
    ) -> None:
        clock = SystemClock()
        self.spent = SpentFile(folder, "bench", clock.now_ns())
        self.admission = Admission(clock, MANY, self.spent, counts=counts)
        self.accounts = Accounts(Nobody(), Meter("bench", "e"), clock)
        self.exchange = FakeExchange(b"POST", b"/")
        self.principals = [Principal(tenant="t", key=f"k{n}") for n in range(keys)]
        self.snapshot = Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={},
            tenant_limits={"t": limits},
            plans={},
            currency="INR",
        )

    def account(self) -> Account:
        """One that ended well, as a request's is when its permit ends."""
        found = self.accounts.open(self.principals[0], "chat", self.exchange, 1)
        found.usage, found.status, found.cost_pico = USED, 200, 10**9
        return found

    def pass_through(self, account: Account, requests: int, users: int = 1) -> float:
        """Seconds of the processor that so many requests take, of one key after the other."""
        asked = [cast(Asked, Request(f"user {n}")) for n in range(users)]
        admit, keys, snapshot = self.admission.admit, self.principals, self.snapshot
        began = time.process_time()
        for n in range(requests):
            with at_once(admit(keys[n % len(keys)], snapshot)) as permit:
                permit.headers()
                at_once(permit.reserve(Claim(self.exchange, asked[n % users], PLAN, account, 900)))
        return time.process_time() - began


def costs(requests: int, keys: int) -> None:
    """The table of what kinds of limits cost."""
    with tempfile.TemporaryDirectory() as folder:
        desks = {
            name: Desk(Path(folder) / str(at), limits, keys)
            for at, (name, limits) in enumerate(KINDS.items())
        }
        account = desks["no limits"].account()
        took: dict[str, list[float]] = {name: [] for name in desks}
        for desk in desks.values():
            desk.pass_through(account, keys)  # every key is met once
        for _ in range(ROUNDS):
            for name, desk in desks.items():
                took[name].append(desk.pass_through(account, requests) / requests * 1e6)
        bare = statistics.median(took["no limits"])
        print(f"{keys} keys, {requests} requests a round; microseconds a request")
        for name, each in took.items():
            middle = statistics.median(each)
            print(f"  {name:28} {middle:6.2f}  (+{middle - bare:5.2f})")


def memory(users: int, requests: int) -> None:
    """What many end users take, and whether it grows."""
    with tempfile.TemporaryDirectory() as folder:
        rules = (*USERS, Rule(of="money", amount=10**6, per="month", each="end_user"))
        desk = Desk(Path(folder), Limits(rules=rules), 1)
        account = desk.account()
        before = resident_mb()
        desk.pass_through(account, users, users)
        met = resident_mb()
        desk.pass_through(account, requests, users)
        after = resident_mb()
        print(f"{users} end users with two limits each: {met - before:.0f} MB;")
        print(f"  {requests} requests later: {after - met:+.1f} MB")


def resident_mb() -> float:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # as the gateway has it
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=100_000)
    given = parser.parse_args()
    costs(given.requests, given.keys)
    memory(given.users, 1_000_000)
