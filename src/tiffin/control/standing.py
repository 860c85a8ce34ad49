"""How limits stand: what the gateway last said, and what is configured but wasn't met yet."""

from collections.abc import Iterator

import msgspec

from tiffin.types.json_file import read_json
from tiffin.types.limits import Limits, Standing, Standings, amount_of, rules_of
from tiffin.types.paths import DataFolder, standing_limits
from tiffin.types.snapshot import Snapshot

MOST_KEYS = 1_000


class LimitsPage(msgspec.Struct, frozen=True, kw_only=True):
    """All limits as they stand; `currency` is that of money, which is in pico-units."""

    currency: str
    data: list[Standing]


def limits_page(folder: DataFolder, snapshot: Snapshot | None) -> LimitsPage:
    """What the newest file of a gateway says, and after that what nobody has used yet."""
    met = _newest(folder).limits
    known = {(one.holder, one.rule) for one in met}
    configured = _configured(snapshot) if snapshot else ()
    rest = [one for one in configured if (one.holder, one.rule) not in known]
    return LimitsPage(currency=snapshot.currency if snapshot else "", data=[*met, *rest])


def _newest(folder: DataFolder) -> Standings:
    newest = Standings()
    for path in folder.run.glob(standing_limits(folder, "*").name):
        try:
            found = read_json(path, Standings)
        except (OSError, msgspec.DecodeError):
            continue
        if found.at_ns > newest.at_ns:
            newest = found
    return newest


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
