"""Which limits hold for a key and its end users; each is one object, shared by all it holds for."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from tiffin.errors import Overloaded
from tiffin.gateway.limits.calendar import SECOND_NS
from tiffin.gateway.limits.caps import HeldCaps, held
from tiffin.gateway.limits.limit import Limit, Meter, Now, meter_of
from tiffin.ports.spent import Spent
from tiffin.types.limits import (
    CONCURRENCY,
    INPUT,
    MONEY,
    OUTPUT,
    REQUESTS,
    TOKENS,
    Limits,
    Rule,
    rules_of,
)
from tiffin.types.snapshot import Principal, Snapshot

MAX_LIMITS = 1_000_000
# How many are looked at to find one that may go.
LOOK_AT = 32

NO_LIMITS = Limits()
OF_TOKENS = (TOKENS, INPUT, OUTPUT)


class Second:
    """What holds for requests to one model once they were read: all limits, and which of them count
    requests (`rates`) or are told of tokens (`paced`); `money` is whether one is of that."""

    __slots__ = ("limits", "money", "paced", "rates")

    def __init__(self, limits: Sequence[Limit], model: str) -> None:
        self.limits = own = tuple(limit for limit in limits if limit.holds_for(model))
        self.money = any(limit.of == MONEY for limit in own)
        self.rates = tuple(one for one in own if one.of == REQUESTS and not one.shadow)
        self.paced = tuple(one for one in own if one.of in OF_TOKENS and not one.shadow)

    def with_users(self, users: Sequence[Limit], model: str) -> "Second":
        """The same with limits of an end user."""
        return Second([*self.limits, *users], model)


class Course:
    """What holds for a key: `first` before a request is read, one of each (`paced` are the rates of
    them that are no shadows); `second` after it; and `users` for each end user: the level's name,
    its source with the rule's name there, and the rule. `caps` are what one may ask for."""

    __slots__ = ("_by_model", "caps", "first", "limits", "paced", "second", "users")

    def __init__(
        self,
        limits: Limits,
        first: Sequence[Limit],
        second: Sequence[Limit],
        users: Sequence[tuple[str, str, Rule]],
        caps: HeldCaps,
    ) -> None:
        self.limits = limits
        self.caps = caps
        self.first = tuple((limit, 1) for limit in first)
        self.paced = tuple(one for one in first if one.of == REQUESTS and not one.shadow)
        self.second = tuple(second)
        self.users = tuple(users)
        self._by_model: dict[str, Second] = {}

    def second_for(self, model: str) -> Second:
        """What holds for a public name that there is."""
        found = self._by_model.get(model)
        if found is None:
            found = self._by_model[model] = Second(self.second, model)
        return found


Build = Callable[[Rule, str, Spent, int], Meter]
"""Makes what counts for a rule: by its name, its records, and how long before UTC days begin."""

Courses = dict[tuple[str, str], Course]


class LimitTable:
    """All limits that anybody met lately.

    One that has nothing to remember is as good as a new one, so it may be forgotten at any time
    when no course has it; one that has something is kept. Where there are as many as there may be,
    and none may go, whoever would need another one is refused.
    """

    def __init__(self, spent: Spent, most: int = MAX_LIMITS, build: Build = meter_of) -> None:
        self._spent = spent
        self._build = build
        self._most = most
        self._limits: OrderedDict[str, Limit] = OrderedDict()
        self._courses: Courses = {}
        self._gone: list[Courses] = []
        self._number = 0
        self._currency = ""
        self._east_ns = 0

    def __len__(self) -> int:
        return len(self._limits)

    def __iter__(self) -> Iterator[Limit]:
        """All of them, the newest first."""
        return reversed(self._limits.values())

    def course(self, principal: Principal, snapshot: Snapshot, now: Now) -> Course:
        """What holds for a key."""
        self._adopt(snapshot)
        key = (principal.tenant, principal.key)
        course = self._courses.get(key)
        if course is None or _changed(course.limits, principal.limits):
            course = self._courses[key] = self._lay(principal, snapshot, now)
        return course

    def meet(self, snapshot: Snapshot, now: Now) -> None:
        """Know the limits of tenants and projects before anybody asks: they may be used already."""
        self._adopt(snapshot)
        for tenant, limits in snapshot.tenant_limits.items():
            self._meet("tenant", f"tenant '{tenant}'", limits, now)
        for tenant, terms in snapshot.tenants.items():
            for project, limits in terms.projects.items():
                self._meet("project", f"project '{tenant}/{project}'", limits, now)

    def of_user(self, course: Course, user: str, now: Now) -> tuple[Limit, ...]:
        """What holds for an end user of a key, beside the key's own course.

        Users are called anything; what is before their names has no zero in it.
        """
        return tuple(
            self._limit(f"{name}\0{user}", rule, "end_user", f"end user '{user}' of {of}", now)
            for of, name, rule in course.users
        )

    def sweep(self, now: Now, at_most: int) -> None:
        """Forget some of those that may go; called again and again, it looks at all of them."""
        for _ in range(min(at_most, len(self._limits))):
            self._look(now)
        for _ in range(at_most):
            while self._gone and not self._gone[0]:
                del self._gone[0]
            if not self._gone:
                break
            self._gone[0].popitem()

    def _adopt(self, snapshot: Snapshot) -> None:
        if snapshot.number == self._number:
            return
        self._number = snapshot.number
        self._gone.append(self._courses)  # letting go of very many takes a while: bit by bit
        self._courses = {}
        self._currency = snapshot.currency
        self._east_ns = snapshot.utc_offset_s * SECOND_NS

    def _meet(self, level: str, of: str, limits: Limits, now: Now) -> None:
        for name, rule in _named(limits):
            if not rule.each and len(self._limits) < self._most:
                self._limit(f"{of} {name} {of}", rule, level, of, now)

    def _lay(self, principal: Principal, snapshot: Snapshot, now: Now) -> Course:
        users: list[tuple[str, str, Rule]] = []
        first: list[Limit] = []
        second: list[Limit] = []
        sources = list(_sources(principal, snapshot))
        for level, of, limits in sources:
            for name, rule in _named(limits):
                if rule.each == "end_user":
                    users.append((of, f"{of} {name}", rule))
                    continue
                holder_level, holder = _holder(rule.each or level, principal)
                if holder:
                    limit = self._limit(f"{of} {name} {holder}", rule, holder_level, holder, now)
                    (first if at_first(limit) else second).append(limit)
        caps = held((of, limits) for _, of, limits in sources)
        return Course(principal.limits, first, second, users, caps)

    def _limit(self, name: str, rule: Rule, level: str, holder: str, now: Now) -> Limit:
        limit = self._limits.get(name)
        if limit is None:
            if len(self._limits) >= self._most and not self._make_room(now):
                raise Overloaded(
                    f"limits of {self._most} end users and keys are in use, which is as many as"
                    " there may be",
                    retry_after=60.0,
                )
            meter = self._build(rule, name, self._spent, self._east_ns)
            limit = Limit(rule, level, holder, meter)
            self._limits[name] = limit
        elif limit.rule is not rule and limit.rule != rule:
            limit.change(rule, now)
        limit.seen = self._number
        limit.currency = self._currency
        return limit

    def _make_room(self, now: Now) -> bool:
        return any(self._look(now) for _ in range(LOOK_AT))

    def _look(self, now: Now) -> bool:
        """Forget the limit that was looked at longest ago, if it may go."""
        name, limit = self._limits.popitem(last=False)
        shared = limit.level != "end_user" and limit.seen == self._number
        if shared or not limit.meter.rests(now[limit.clock]):
            self._limits[name] = limit
            return False
        if limit.clock:
            self._spent.forget(name)
        return True


def _changed(known: Limits, given: Limits) -> bool:
    return known is not given and known != given


def at_first(limit: Limit) -> bool:
    """Whether a limit can be looked at before the request is read."""
    return limit.of in (REQUESTS, CONCURRENCY) and not limit.rule.models


def _sources(principal: Principal, snapshot: Snapshot) -> Iterator[tuple[str, str, Limits]]:
    """Where limits of a key are said: the level, who that is, and the limits."""
    tenant, project = principal.tenant, principal.project
    yield "tenant", f"tenant '{tenant}'", snapshot.tenant_limits.get(tenant, NO_LIMITS)
    if project and (terms := snapshot.tenants.get(tenant)) is not None:
        limits = terms.projects.get(project, NO_LIMITS)
        yield "project", f"project '{tenant}/{project}'", limits
    yield "key", f"key '{tenant}/{principal.key}'", principal.limits


def _named(limits: Limits) -> Iterator[tuple[str, Rule]]:
    """Rules with names that stay the same when an amount changes, and are each rule's own.

    A shadow beside a rule of its kind is another one; one that stops being a shadow isn't.
    """
    taken: set[str] = set()
    for rule in sorted(rules_of(limits), key=lambda rule: rule.shadow):
        name = " ".join((rule.of, rule.per, rule.each, *rule.models))
        while name in taken:
            name += " more"
        taken.add(name)
        yield name, rule


def _holder(level: str, principal: Principal) -> tuple[str, str]:
    """Who is held to a rule of a level; nobody where the key belongs to no project."""
    match level:
        case "tenant":
            return level, f"tenant '{principal.tenant}'"
        case "project":
            holder = f"project '{principal.tenant}/{principal.project}'"
            return level, holder if principal.project else ""
    return level, f"key '{principal.tenant}/{principal.key}'"
