"""What a request needs of its limits: estimated before it runs, counted when it ended."""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from tiffin.dialects.dialect import Asked
from tiffin.errors import Unavailable
from tiffin.gateway.account import END_USER, GIVEN, NO_USAGE, Account
from tiffin.gateway.limits.habits import Habit
from tiffin.gateway.limits.limit import Limit
from tiffin.ledger.marginal import marginal
from tiffin.ports.exchange import Exchange
from tiffin.types.limits import IMAGES, MONEY
from tiffin.types.snapshot import Plan

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
        said = self.exchange.header(END_USER)
        name = said.decode("utf-8", "replace").strip() if said else self.asked.end_user
        if len(name) <= MAX_NAME:
            return name
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class Needs:
    """Amounts by the quantities' places: `wanted` of each at most, as far as that can be known, of
    which the request itself says that it is `certain`."""

    __slots__ = ("_account", "_habit", "_size", "_unpriced", "certain", "wanted")

    def __init__(self, claim: Claim, habit: Habit, *, money: bool) -> None:
        extent = claim.asked.extent()
        self._account = claim.account
        self._habit = habit
        self._size = size = max(claim.size, extent.size)
        stated = extent.answer_tokens
        prompt = habit.prompt(size) if extent.text else 0
        answer = habit.answer() if stated is None else stated
        pages = habit.pages() if extent.pages else 0
        # In the order of the quantities.
        self.wanted = [1, 1, prompt, answer, prompt + answer, extent.images, pages, 0]
        self.certain = (1, 1, 0, stated or 0, stated or 0, extent.images, 0, 0)
        self._unpriced = ""
        if money:
            unpriced = (one.model for one in claim.plan.targets if one.price is None)
            self._unpriced = next(unpriced, "")
            expected = habit.expected(prompt, answer, pages, extent.rows)
            self.wanted[MONEY] = max(
                (marginal(one.price, expected) for one in claim.plan.targets if one.price),
                default=0,
            )

    def of(self, limit: Limit) -> int:
        """How much to take of a limit.

        What is only expected never makes a request impossible, so it is no more than there may be;
        except of money, where nothing is lent. Raises `Unavailable` where money can't be counted.
        """
        of = limit.of
        if of == MONEY and self._unpriced and not limit.shadow:
            raise Unavailable(
                f"the limit of {limit} can't be counted, as nothing says what '{self._unpriced}'"
                " costs now: it needs a price in [[prices.models]], without an amount if it is free"
            )
        wanted = self.wanted[of]
        if wanted <= limit.capacity or of == MONEY:
            return wanted
        return max(limit.capacity, self.certain[of])

    def used(self, *, well: bool) -> Sequence[int]:
        """What it came to, its account being closed; one that ended `well` is learnt from.

        Where nobody got anything, only what the model itself says that it did was used.
        """
        account = self._account
        usage, error, hit = account.usage, account.error, account.cache in GIVEN
        if error is not None and not (account.streamed or usage.measured):
            usage = NO_USAGE
        if well and error is None and usage.measured and not hit:
            self._habit.learn(self._size, usage)
        prompt, answer = max(0, usage.prompt_tokens), max(0, usage.completion_tokens)
        images = self.wanted[IMAGES] if account.status == 200 and not hit else 0
        pages = max(0, usage.pages)
        return (1, 1, prompt, answer, prompt + answer, images, pages, account.cost_pico)
