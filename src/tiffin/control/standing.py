"""How limits stand: what the gateways last said, and what is configured but wasn't met yet."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from tiffin.types.json_file import read_json
from tiffin.types.limits import Limits, Rule, Standing, Standings, amount_of, rules_of
from tiffin.types.paths import DataFolder, standing_limits
from tiffin.types.snapshot import Snapshot

MOST_KEYS = 1_000


class LimitsPage(msgspec.Struct, frozen=True, kw_only=True):
    """All limits as they stand; `currency` is that of money, which is in pico-units."""

    currency: str
    data: list[Standing]


def limits_page(folder: DataFolder, snapshot: Snapshot | None) -> LimitsPage:
    """What gateways say together, and after that what nobody has used yet."""
    met = _together(_said(folder))
    known = {(one.holder, one.rule) for one in met}
    configured = _configured(snapshot) if snapshot else ()
    rest = [one for one in configured if (one.holder, one.rule) not in known]
    return LimitsPage(currency=snapshot.currency if snapshot else "", data=[*met, *rest])


def faults(folder: DataFolder) -> list[str]:
    """Why limits aren't counted as they should be, each reason once."""
    return sorted({said.degraded for said in _said(folder) if said.degraded})


def _said(folder: DataFolder) -> list[Standings]:
    found = []
    for path in sorted(folder.run.glob(standing_limits(folder, "*").name)):
        with suppress(OSError, msgspec.DecodeError):
            found.append(read_json(path, Standings))
    return found


def _together(said: Iterable[Standings]) -> list[Standing]:
    """Of each limit what was learnt of it last; slots are those that all have taken together."""
    newest: dict[tuple[str, Rule], tuple[int, Standing]] = {}
    taken: Counter[tuple[str, Rule]] = Counter()
    for standings in said:
        for one in standings.limits:
            place, at_ns = (one.holder, one.rule), one.asked_ns or standings.at_ns
            taken[place] += one.whole - one.left
            if place not in newest or at_ns > newest[place][0]:
                newest[place] = at_ns, one
    return [
        msgspec.structs.replace(one, left=max(0, one.whole - taken[place]))
        if one.rule.of == "concurrency"
        else one
        for place, (_, one) in newest.items()
    ]


def _configured(snapshot: Snapshot) -> Iterator[Standing]:
    """Everything that is untouched; of what each has its own nobody is named."""
    for tenant, limits in snapshot.tenant_limits.items():
        yield from _whole("tenant", f"tenant '{tenant}'", limits)
    for tenant, terms in snapshot.tenants.items():
        for project, limits in terms.projects.items():
            yield from _whole("project", f"project '{tenant}/{project}'", limits)
    for principal in list(snapshot.keys.values())[:MOST_KEYS]:
        yield from _whole("key", f"key '{principal.tenant}/{principal.key}'", principal.limits)


def _whole(level: str, holder: str, limits: Limits) -> Iterator[Standing]:
    for rule in rules_of(limits):
        whole = rule.burst or amount_of(rule)
        each = f"each {rule.each.replace('_', ' ')} of " if rule.each else ""
        yield Standing(
            holder=each + holder, level=rule.each or level, rule=rule, whole=whole, left=whole
        )
