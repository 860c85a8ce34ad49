"""Name to plan: which targets may answer, in which order."""

from difflib import get_close_matches

import msgspec

from tiffin.errors import ModelNotFound, ResidencyDenied
from tiffin.types.residency import holds
from tiffin.types.revisions import AT, DIGEST, base_of
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target


def allowed(target: Target, principal: Principal) -> bool:
    """Whether a key's data may go to where a target computes, and to who runs it."""
    return (
        (not principal.region or target.region == principal.region)
        and holds(target.data_class, principal.data_class)
        and not unfit(target, principal)
    )


def unfit(target: Target, principal: Principal) -> str:
    """Why a target's terms keep data of this key's class from it; empty where they don't."""
    return next((why for name, why in target.unfit if name == principal.data_class), "")


def may_use(principal: Principal, name: str) -> bool:
    """Whether this key may see and use a model or route of this name, or the one it belongs to."""
    models = principal.models
    return not models or name in models or base_of(name) in models


def visible(principal: Principal, snapshot: Snapshot) -> list[Plan]:
    """The plans that a listing shows to this key, by name."""
    return [
        plan
        for name, plan in sorted(snapshot.plans.items())
        if may_use(principal, name) and any(allowed(one, principal) for one in plan.targets)
    ]


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
    if principal.region or principal.data_class:
        return _within(plan, principal)
    return plan


def _within(plan: Plan, principal: Principal) -> Plan:
    """The plan with those targets alone that the key's data may go to.

    It is another plan then, so that no answer of it is taken for one of the whole.
    """
    embedder = plan.embedder
    if embedder is not None and not all(allowed(one, principal) for one in embedder.targets):
        plan = msgspec.structs.replace(plan, embedder=None)
    targets = tuple(target for target in plan.targets if allowed(target, principal))
    if len(targets) == len(plan.targets):
        return plan
    if not targets:
        raise ResidencyDenied(_elsewhere(plan, principal), param="model")
    identity = f"{plan.identity} {principal.region} {principal.data_class}"
    return msgspec.structs.replace(plan, targets=targets, identity=identity)


def _elsewhere(plan: Plan, principal: Principal) -> str:
    key = f"the data of the key '{principal.tenant}/{principal.key}'"
    if principal.region and all(target.region != principal.region for target in plan.targets):
        return f"{key} stay in '{principal.region}', and '{plan.name}' doesn't run there"
    reasons = [unfit(target, principal) for target in plan.targets]
    if why := next(filter(None, reasons), ""):
        return f"{key} are {principal.data_class}, and '{plan.name}' mustn't get that: {why}"
    return f"{key} are {principal.data_class}, and '{plan.name}' isn't cleared for that"


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
