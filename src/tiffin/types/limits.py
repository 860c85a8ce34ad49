"""What tenants, projects, keys and end users may use, as values: amounts in a time."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from tiffin.types.caps import Caps
from tiffin.types.money import pico

Of = Literal[
    "requests",
    "concurrency",
    "input_tokens",
    "output_tokens",
    "tokens",
    "images",
    "pages",
    "money",
]
Per = Literal["second", "minute", "hour", "day", "month"]
Each = Literal["project", "key", "end_user"]

QUANTITIES: tuple[Of, ...] = get_args(Of)
"""Everything that is counted; what a request needs and used are numbers in this order."""

REQUESTS, CONCURRENCY, INPUT, OUTPUT, TOKENS, IMAGES, PAGES, MONEY = range(len(QUANTITIES))

Amount = Annotated[float, Meta(gt=0, le=10**15)]
Count = Annotated[int, Meta(ge=0, le=10**15)]
ModelName = Annotated[str, Meta(min_length=1)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One limit: `amount` of something, `per` some time.

    A second, a minute and an hour make a rate, of which `burst` may come at once (0: the whole
    amount). Days and months are the calendar's, and money is always counted by it: both begin and
    are counted as `[prices]` says. Concurrency has no time.

    Without `each` all that belongs to the section share the amount; with it, each of its projects,
    keys or end users has as much. `models` are those that count, none: all. A `shadow` refuses
    nothing and says what it would have.

    `without_store` says what several gateways do while the store that they share doesn't answer:
    `refuse` what the limit holds for, or count it `local`, each gateway its share of the amount.
    Without it money is refused, and everything else is local.
    """

    of: Of
    amount: Amount
    per: Per | Literal[""] = ""
    burst: Count = 0
    each: Each | Literal[""] = ""
    models: tuple[ModelName, ...] = ()
    shadow: bool = False
    without_store: Literal["", "refuse", "local"] = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What a tenant, a project or a key may use; 0 means no limit of that kind.

    `burst` is how many requests may come at once before `requests_per_minute` bites (0: one
    second's worth, at least 1). `rules` say everything else that is used up, `per_request` what a
    single request may ask for.
    """

    requests_per_minute: int = 0
    burst: int = 0
    concurrency: int = 0
    rules: tuple[Rule, ...] = ()
    per_request: Caps = Caps()


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a rule stands for one `holder` (`key 'shop/web'`), which is of a `level`.

    `left` of `whole` may be taken now; in `resets_s` seconds it is all there again. Money is in
    pico-units. `asked_ns` is when the store that gateways share was last asked (UTC), 0 where there
    is none.
    """

    holder: str
    level: str
    rule: Rule
    whole: int
    left: int
    resets_s: float = 0.0
    asked_ns: int = 0


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says of the limits that it met lately, at a moment (UTC nanoseconds).

    `degraded` is why the store that gateways share can't be used, empty while it can or there is
    none. Of slots each gateway tells those that it has taken itself.
    """

    at_ns: int = 0
    limits: tuple[Standing, ...] = ()
    degraded: str = ""


def rules_of(limits: Limits) -> list[Rule]:
    """All rules, the short forms spelt out."""
    found: list[Rule] = []
    if limits.concurrency:
        found.append(Rule(of="concurrency", amount=limits.concurrency))
    if limits.requests_per_minute:
        burst = limits.burst or max(1, limits.requests_per_minute // 60)
        found.append(
            Rule(of="requests", per="minute", amount=limits.requests_per_minute, burst=burst)
        )
    return [*found, *limits.rules]


def by_calendar(rule: Rule) -> bool:
    """Whether it starts anew with each period, instead of recovering all the time."""
    return rule.of == "money" or rule.per in ("day", "month")


def amount_of(rule: Rule) -> int:
    """A rule's amount in whole numbers, money in pico-units; raises `ValueError` where it isn't."""
    if rule.of == "money":
        return pico(repr(rule.amount))
    if rule.amount != int(rule.amount):
        raise ValueError(f"{rule.amount} isn't a whole number")
    return int(rule.amount)
