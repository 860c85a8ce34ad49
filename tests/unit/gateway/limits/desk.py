"""Requests that take limits without a server: they are read, run, use something and end."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tiffin.dialects.dialect import Asked, Extent
from tiffin.errors import TiffinError
from tiffin.gateway.account import Account, Accounts
from tiffin.gateway.admit import Admission, Permit, moments
from tiffin.gateway.limits.counts import Counts
from tiffin.gateway.limits.needs import Claim
from tiffin.ports.spent import Spent
from tiffin.telemetry.events import Closed, Opened
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange
from tiffin.types.limits import Limits, Rule
from tiffin.types.price import Price
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target, Terms
from tiffin.types.usage import Usage

T = TypeVar("T")

HUNDRED = Extent(text=True, answer_tokens=100)
SHOP = Principal(tenant="shop", key="web")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What comes of work that doesn't wait, as counting in this process doesn't."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise AssertionError("it waits for something")


class Sink:
    """Takes events and forgets them."""

    def open(self, event: Opened) -> None:
        """Nothing."""

    def close(self, event: Closed) -> None:
        """Nothing."""


@dataclass
class Request:
    """What limits see of one: `extent` by itself, `size` bytes, for an `end_user` or nobody."""

    extent_: Extent = HUNDRED
    size: int = 300
    end_user: str = ""
    model: str = "m"
    operation: str = "chat"

    def extent(self) -> Extent:
        return self.extent_


@dataclass
class Running:
    """A request that was let in; `end` ends it as its model says."""

    permit: Permit
    account: Account
    target: Target
    headers: dict[bytes, bytes] = field(default_factory=dict)

    def end(self, usage: Usage | None = None, *, error: TiffinError | None = None) -> None:
        """It ran and used this, failed, or (with neither) never ran."""
        if usage is not None:
            self.account.charge.at(self.target, tuple, Usage(), 0.0)
            self.account.usage, self.account.status = usage, 200
        self.account.error = error
        self.account.__exit__(None, None, None)
        self.permit.__exit__(None, None, None)


class Desk:
    """One tenant `shop` and who belongs to it; time is the clock's."""

    def __init__(
        self,
        *rules: Rule,
        tenant: Limits | None = None,
        project: Limits | None = None,
        price: Price | None = None,
        spent: Spent | None = None,
        counts: Counts | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.meter = Meter("gateway", "e")
        self.admission = Admission(self.clock, 1000, spent, self.meter, counts)
        self.accounts = Accounts(Sink(), Meter("t", "e"), self.clock)
        self.target = Target(model="m", revision="r", kind="remote", price=price)
        self.snapshot = Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={},
            tenant_limits={"shop": tenant or Limits(rules=rules)},
            tenants={"shop": Terms(projects={"app": project or Limits()})},
            plans={},
            currency="INR",
        )

    def come(self, request: Request | None = None, principal: Principal = SHOP) -> Running:
        """A request that passes both moments and runs; raises its refusal, having ended."""
        return at_once(self.arrive(request, principal))

    async def arrive(self, request: Request | None = None, principal: Principal = SHOP) -> Running:
        """The same where limits are counted elsewhere."""
        wanted = request or Request()
        exchange = FakeExchange(b"POST", b"/v1/chat/completions")
        permit = await self.admission.admit(principal, self.snapshot)
        permit.__enter__()
        account = self.accounts.open(principal, "chat", exchange, 1)
        running = Running(permit, account, self.target, dict(permit.headers()))
        plan = Plan(name=wanted.model, identity="1", targets=(self.target,))
        try:
            claim = Claim(exchange, cast(Asked, wanted), plan, account, wanted.size)
            running.headers |= dict(await permit.reserve(claim))
        except TiffinError as refusal:
            running.end(error=refusal)
            raise
        return running

    def left(self, what: str = "") -> int:
        """What is left of the only limit, or of that whose words these are."""
        (found,) = [limit for limit in self.admission.limits if what in str(limit)]
        return found.standing(moments(self.clock)).left
