"""Name to plan: which targets may answer, in which order."""

from difflib import get_close_matches

from tiffin.errors import ModelNotFound
from tiffin.types.revisions import AT, DIGEST, base_of
from tiffin.types.snapshot import Plan, Principal, Snapshot


def may_use(principal: Principal, name: str) -> bool:
    """Whether this key may see and use a model or route of this name, or the one it belongs to."""
    allowed = principal.models
    return not allowed or name in allowed or base_of(name) in allowed


def visible(principal: Principal, snapshot: Snapshot) -> list[Plan]:
    """The plans that a listing shows to this key, by name."""
    return [plan for name, plan in sorted(snapshot.plans.items()) if may_use(principal, name)]


def labels(plan: Plan, principal: Principal, snapshot: Snapshot) -> list[str]:
    """The labels of a model's other revisions that this key may use, in alphabetical order."""
    start = plan.name + AT
    names = sorted(name for name in snapshot.plans if name.startswith(start))
    return [name.removeprefix(start) for name in names if may_use(principal, name)]


def route(name: str, principal: Principal, snapshot: Snapshot) -> Plan:
    """The plan of this public name; `ModelNotFound` also where the key may not see it.

    `NAME@LABEL` and `NAME@<8 to 64 hex digits>` name revisions of a model.
    """
    plan = snapshot.plans.get(name) or _by_digest(name, snapshot)
    if plan is None or not may_use(principal, plan.name):
        raise ModelNotFound(_missing(name, principal, snapshot), param="model")
    return plan


def _by_digest(name: str, snapshot: Snapshot) -> Plan | None:
    """The one of a model's revisions whose digest begins so; the model itself before others."""
    base, at, digest = name.partition(AT)
    if not at or not DIGEST.fullmatch(digest):
        return None
    found: dict[str, Plan] = {}
    for plan in snapshot.plans.values():
        if base_of(plan.name) == base and len(plan.targets) == 1:
            revision = plan.targets[0].revision
            if revision.removeprefix("sha256:").startswith(digest):
                found.setdefault(revision, plan)
    return next(iter(found.values())) if len(found) == 1 else None


def _missing(name: str, principal: Principal, snapshot: Snapshot) -> str:
    base, at, version = name.partition(AT)
    if at and base in snapshot.plans and may_use(principal, base):
        return f"'{base}' has no version '{version[:80]}'; its metadata lists those that it has"
    names = [plan.name for plan in visible(principal, snapshot)]
    near = get_close_matches(name[:80], names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "; GET /v1/models lists what there is"
    return f"there is no model '{name[:80]}'{hint}"
