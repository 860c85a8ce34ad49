"""All budgets that there are, and what counts for each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tiffin.config.schema import Config
from tiffin.config.tenants import place_of_key
from tiffin.control.tenants.registry import Made
from tiffin.ledger.book import Book
from tiffin.ports.spending import Field, Spent
from tiffin.types.budgets import Budget
from tiffin.types.revisions import base_of


@dataclass(frozen=True, slots=True)
class Held:
    """A budget and who has it: a tenant, or the project or key that is named beside it."""

    tenant: str
    name: str
    budget: Budget
    project: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """Where it stands, or would, in the configuration: no other budget's place."""
        section = f"tenants.{self.tenant}"
        if self.key:
            section = place_of_key(section, self.project, self.key)
        elif self.project:
            section += f".projects.{self.project}"
        return f"{section}.budgets.{self.name}"

    @property
    def holder(self) -> str:
        """Whose it is, as a gateway's limits say it."""
        if self.key:
            return f"key '{self.tenant}/{self.key}'"
        if self.project:
            return f"project '{self.tenant}/{self.project}'"
        return f"tenant '{self.tenant}'"

    def counts(self, spent: Spent) -> bool:
        """Whether this is spent of it."""
        models = self.budget.models
        return (
            spent.tenant == self.tenant
            and (spent.key == self.key if self.key else self.project in ("", spent.project))
            and (not models or spent.model in models or base_of(spent.model) in models)
        )


def held_in(config: Config, made: Made) -> Iterator[Held]:
    """Every budget of a configuration, and of what the admin API made."""
    for tenant, section in config.tenants.items():
        yield from _of(section.budgets, tenant)
        for project, part in section.projects.items():
            yield from _of(part.budgets, tenant, project)
        for project, name, key in section.every_key():
            yield from _of(key.budgets, tenant, project, name)
    closed = {name for name, one in made.tenants.items() if one.closed}
    for tenant, whole in made.tenants.items():
        if tenant not in config.tenants and tenant not in closed:
            yield from _of(whole.budgets, tenant)
    for (tenant, project), mine in made.projects.items():
        configured = config.tenants.get(tenant)
        if configured is None or project not in configured.projects:
            yield from _of(mine.budgets, tenant, project)


def told_apart(budgets: Iterable[Held]) -> set[Field]:
    """What has to be known of spending to count it for all of these."""
    found: set[Field] = set()
    for one in budgets:
        found |= {"key"} if one.key else {"project"} if one.project else set()
        found |= {"model"} if one.budget.models else set()
    return found


def by_hours(
    budgets: Iterable[Held], spent: Iterable[Spent], book: Book
) -> dict[str, dict[int, int]]:
    """What was spent of each budget in each hour, by the budgets' places; pico-units.

    Raises `ValueError` where a currency has no rate.
    """
    found: dict[str, dict[int, int]] = {}
    by_tenant: dict[str, list[tuple[Held, dict[int, int]]]] = {}
    for one in budgets:
        hours = found[one.place] = {}
        by_tenant.setdefault(one.tenant, []).append((one, hours))
    for row in spent:
        cost = book.converted(row.cost_pico, row.currency, row.hour_ns)
        for one, hours in by_tenant.get(row.tenant, ()):
            if one.counts(row):
                hours[row.hour_ns] = hours.get(row.hour_ns, 0) + cost
    return found


def _of(
    budgets: Mapping[str, Budget], tenant: str, project: str = "", key: str = ""
) -> Iterator[Held]:
    for name, budget in budgets.items():
        yield Held(tenant=tenant, name=name, budget=budget, project=project, key=key)
