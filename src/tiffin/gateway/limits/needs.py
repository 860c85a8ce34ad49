"""What a request needs of its limits: estimated before it runs, counted when it ended."""

from hashlib import sha256
from typing import NamedTuple

from tiffin.dialects.dialect import Asked
from tiffin.gateway.account import NO_USAGE, Account
from tiffin.gateway.limits.habits import Habits
from tiffin.gateway.limits.limit import Limit
from tiffin.ledger.marginal import marginal
from tiffin.ports.exchange import Exchange
from tiffin.types.limits import IMAGES, INPUT, MONEY, OUTPUT, PAGES, QUANTITIES, TOKENS
from tiffin.types.snapshot import Plan
from tiffin.types.usage import Usage

MAX_NAME = 128


class Claim(NamedTuple):
    """A request that was read and may be served; its body had `size` bytes."""

    exchange: Exchange
    asked: Asked
    plan: Plan
    account: Account
    size: int

    def end_user(self) -> str:
        """Whom it is for, by the header, else by the body: a long name as its digest; empty where
        it is for nobody in particular."""
        said = self.exchange.header(b"x-tiffin-end-user")
        name = said.decode("utf-8", "replace").strip() if said else self.asked.end_user
        if len(name) <= MAX_NAME:
            return name
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class Needs:
    """Amounts by the quantities' places: `wanted` of each at most, as far as that can be known, of
    which the request itself says that it is `certain`."""

    __slots__ = ("_claim", "_expected", "_habit", "_size", "certain", "wanted")

    def __init__(self, claim: Claim, tenant: str, habits: Habits) -> None:
        asked = claim.asked
        extent = asked.extent()
        self._claim = claim
        self._size = max(claim.size, extent.size)
        self._habit = habits.of(tenant, f"{claim.plan.name} {asked.operation}")
        self._expected = expected = self._habit.expected(self._size, extent)
        stated = extent.answer_tokens or 0
        self.wanted = [1] * len(QUANTITIES)
        self.certain = [1] * len(QUANTITIES)
        self.wanted[INPUT], self.certain[INPUT] = expected.prompt_tokens, 0
        self.wanted[OUTPUT], self.certain[OUTPUT] = expected.completion_tokens, stated
        self.wanted[TOKENS] = expected.prompt_tokens + expected.completion_tokens
        self.certain[TOKENS] = stated
        self.wanted[IMAGES] = self.certain[IMAGES] = extent.images
        self.wanted[PAGES], self.certain[PAGES] = expected.pages, 0
        self.wanted[MONEY] = -1

    def of(self, limit: Limit) -> int:
        """How much to take of a limit.

        What is only expected never makes a request impossible, so it is no more than there may be;
        except of money, where nothing is lent.
        """
        if limit.of == MONEY:
            return self._money()
        wanted, capacity = self.wanted[limit.of], limit.meter.capacity
        return wanted if wanted <= capacity else max(capacity, self.certain[limit.of])

    def learn(self, usage: Usage) -> None:
        """The request ended well and used this."""
        self._habit.learn(self._size, usage)

    def used(self, account: Account) -> list[int]:
        """What it came to; its account is closed.

        Where nobody got anything, only what the model itself says that it did was used.
        """
        usage = account.usage
        if account.error is not None and not (account.streamed or usage.measured):
            usage = NO_USAGE
        used = [1] * len(QUANTITIES)
        used[INPUT], used[OUTPUT] = usage.prompt_tokens, usage.completion_tokens
        used[TOKENS] = usage.prompt_tokens + usage.completion_tokens
        ran = account.status == 200 and account.cache != "hit"
        used[IMAGES] = self.wanted[IMAGES] if ran else 0
        used[PAGES] = usage.pages
        used[MONEY] = account.cost_pico
        return [max(0, amount) for amount in used]

    def _money(self) -> int:
        """The dearest that the plan's targets may cost."""
        if self.wanted[MONEY] < 0:
            targets = self._claim.plan.targets
            self.wanted[MONEY] = max(
                (marginal(target.price, self._expected) for target in targets if target.price),
                default=0,
            )
        return self.wanted[MONEY]
