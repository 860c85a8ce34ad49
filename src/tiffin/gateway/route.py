"""Name to plan: which targets may answer, in which order."""

from difflib import get_close_matches

from tiffin.errors import ModelNotFound
from tiffin.types.snapshot import Plan, Principal, Snapshot


def may_use(principal: Principal, name: str) -> bool:
    """Whether this key may see and use a model or route of this name."""
    return not principal.models or name in principal.models


def visible(principal: Principal, snapshot: Snapshot) -> list[Plan]:
    """The plans that a listing shows to this key, by name."""
    return [plan for name, plan in sorted(snapshot.plans.items()) if may_use(principal, name)]


def route(name: str, principal: Principal, snapshot: Snapshot) -> Plan:
    """The plan of this public name; `ModelNotFound` also where the key may not see it."""
    plan = snapshot.plans.get(name)
    if plan is None or not may_use(principal, name):
        names = [plan.name for plan in visible(principal, snapshot)]
        near = get_close_matches(name[:80], names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; GET /v1/models lists what there is"
        raise ModelNotFound(f"there is no model '{name[:80]}'{hint}", param="model")
    return plan
