"""Groups of deployments, their fallbacks and aliases as models and routes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from tiffin.adapters.importers.litellm.models import Deployment
from tiffin.adapters.importers.litellm.reading import Section
from tiffin.adapters.importers.litellm.report import Report

MOST_TRIES: Final = 20
ANY: Final = "*"
OTHER_FALLBACKS: Final[Mapping[str, str]] = {
    "context_window_fallbacks": "a prompt that is too long for a model goes to the next one of its"
    " route; put the larger model there",
    "content_policy_fallbacks": "a refusal for content is the answer; no other model is asked",
}


@dataclass(slots=True)
class Reliability:
    """What of fallbacks and tries the file says; `fallbacks` are by group."""

    fallbacks: dict[str, list[str]] = field(default_factory=dict)
    default: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    retries: float = 0.0
    timeout_s: float = 0.0


def reliability_of(*sections: Section) -> Reliability:
    """What `litellm_settings` and `router_settings` say, the latter last."""
    found = Reliability()
    for section in sections:
        for at, entry in section.items("fallbacks"):
            one = Section(entry, f"{section.at('fallbacks')}[{at}]", section.report)
            for group in one.names():
                found.fallbacks.setdefault(group, []).extend(_models(one, group))
        found.default += [name for _, name in section.items("default_fallbacks") if _is_text(name)]
        found.retries = section.number("num_retries") or found.retries
        found.timeout_s = section.seconds("timeout") or found.timeout_s
        for name, reason in OTHER_FALLBACKS.items():
            if section.raw(name):
                section.report.dropped(section.at(name), reason)
        aliases = section.section("model_group_alias")
        for alias in aliases.names():
            target = aliases.raw(alias)
            target = target.get("model") if isinstance(target, dict) else target
            if _is_text(target):
                found.aliases[alias] = target
    found.default += found.fallbacks.pop(ANY, [])
    return found


def groups_of(deployments: Iterable[Deployment]) -> dict[str, list[Deployment]]:
    """Deployments by what they are asked for as, in the order in which they're to be tried."""
    groups: dict[str, list[Deployment]] = {}
    for one in deployments:
        groups.setdefault(one.group, []).append(one)
    return {name: sorted(some, key=lambda one: one.order) for name, some in groups.items()}


class Routes:
    """Makes the routes of some groups and aliases, whose `names` here are given.

    `made` are their sections, `public` the names of those that there are, `called` by which names
    here each group is asked for.
    """

    def __init__(
        self,
        groups: Mapping[str, list[Deployment]],
        reliability: Reliability,
        names: Mapping[str, str],
        report: Report,
    ) -> None:
        self._groups = groups
        self._says = reliability
        self.report = report
        self.made: dict[str, dict[str, Any]] = {}
        self.public: dict[str, str] = {}
        self.called: dict[str, list[str]] = {}
        for group in groups:
            self._add(group, group, names[group])
        for alias, group in reliability.aliases.items():
            if group in groups and alias not in groups:
                self._add(alias, group, names[alias])
            else:
                report.dropped(f"model_group_alias.{alias}", f"there is no group '{group}' here")

    def _add(self, name: str, group: str, public: str) -> None:
        """The route of a name, but for that of a single model which has the name itself."""
        targets = self._targets(group)
        self.public[name] = public
        self.called.setdefault(group, []).append(public)
        if targets != [public]:
            self.made[public] = self._route(targets, self._groups[group])
            tries = self.made[public]["attempts"]
            told = f"[routes.{public}], which tries {', '.join(targets)}: {tries} times in all"
            self.report.mapped(name, told)
        if public != name:
            self.report.to_do(name, f"clients must ask for '{public}' instead")

    def _route(self, targets: list[str], own: list[Deployment]) -> dict[str, Any]:
        retries = max([self._says.retries, *(one.retries for one in own)])
        tries = min(MOST_TRIES, len(targets) + int(retries))
        route: dict[str, Any] = {"models": targets, "attempts": tries}
        if self._says.timeout_s:
            route["timeout_s"] = self._says.timeout_s
        return route

    def _targets(self, group: str) -> list[str]:
        """A group's deployments, then those of its fallbacks, and of theirs: each once."""
        names: list[str] = []
        waiting, seen = [group], {group}
        while waiting:
            here = waiting.pop(0)
            names += [one.name for one in self._groups.get(here, ())]
            further = self._says.fallbacks.get(here, []) or self._says.default
            for other in further:
                if other not in self._groups:
                    self.report.dropped(f"fallbacks of {here}", f"there is no '{other}' here")
                elif other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return names


def wants_route(group: str, count: int, says: Reliability, known: Iterable[str]) -> bool:
    """Whether a group becomes a route, so that its deployments need names of their own."""
    further = says.fallbacks.get(group, []) or says.default
    others = {one for one in further if one != group} & set(known)
    return count > 1 or bool(others)


def _models(section: Section, group: str) -> list[str]:
    """The names of a group's fallbacks; those with parameters of their own by their model."""
    found = []
    for at, entry in section.items(group):
        name = entry.get("model") if isinstance(entry, dict) else entry
        if isinstance(entry, dict) and len(entry) > 1:
            where = f"{section.at(group)}[{at}]"
            section.report.dropped(where, "its parameters: a fallback gets the request as it is")
        if _is_text(name):
            found.append(name)
    return found


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)
