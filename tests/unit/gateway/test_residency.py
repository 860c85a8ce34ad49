"""A key's data go where they may: to targets in its region that are cleared for its class."""

import msgspec
import pytest

from tiffin.errors import ResidencyDenied
from tiffin.gateway.authenticate import bound
from tiffin.gateway.route import route, visible
from tiffin.types.residency import holds, lowest
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target, Terms


def target(name: str, region: str, data_class: str) -> Target:
    return Target(model=name, revision=name, kind="remote", region=region, data_class=data_class)


HERE = target("here", "in", "restricted")
THERE = target("there", "us", "internal")
ANYWHERE = target("anywhere", "", "")
SNAPSHOT = Snapshot(
    number=1,
    config_hash="",
    published_ns=0,
    keys={},
    tenant_limits={},
    plans={
        name: Plan(name=name, identity=f"of {name}", targets=targets)
        for name, targets in (
            ("here", (HERE,)),
            ("there", (THERE,)),
            ("anywhere", (ANYWHERE,)),
            ("best", (THERE, ANYWHERE, HERE)),
        )
    },
)


def names(**scope: str) -> list[str]:
    principal = Principal(tenant="t", key="k", **scope)  # type: ignore[arg-type]
    return [one.model for one in route("best", principal, SNAPSHOT).targets]


@pytest.mark.parametrize(
    ("scope", "tried"),
    [
        ({}, ["there", "anywhere", "here"]),
        ({"region": "in"}, ["here"]),
        ({"region": "us"}, ["there"]),
        ({"data_class": "public"}, ["there", "anywhere", "here"]),
        ({"data_class": "internal"}, ["there", "here"]),
        ({"data_class": "restricted"}, ["here"]),
        ({"region": "us", "data_class": "internal"}, ["there"]),
    ],
    ids=str,
)
def test_only_targets_that_may_have_the_data_are_tried(
    scope: dict[str, str], tried: list[str]
) -> None:
    assert names(**scope) == tried


def test_a_plan_that_lost_targets_is_another_one_for_caches() -> None:
    plain = route("best", Principal(tenant="t", key="k"), SNAPSHOT)
    at_home = route("best", Principal(tenant="t", key="k", region="in"), SNAPSHOT)
    assert plain.identity != at_home.identity
    same = route("here", Principal(tenant="t", key="k", region="in"), SNAPSHOT)
    assert same is SNAPSHOT.plans["here"]


@pytest.mark.parametrize(
    ("scope", "model", "why"),
    [
        ({"region": "in"}, "there", "stay in 'in', and 'there' doesn't run there"),
        ({"data_class": "restricted"}, "there", "are restricted, and 'there' isn't cleared"),
        ({"data_class": "internal"}, "anywhere", "isn't cleared for that"),
        ({"region": "eu"}, "best", "stay in 'eu'"),
    ],
)
def test_where_none_may_the_reason_is_said(scope: dict[str, str], model: str, why: str) -> None:
    principal = Principal(tenant="t", key="k", **scope)  # type: ignore[arg-type]
    with pytest.raises(ResidencyDenied, match=why):
        route(model, principal, SNAPSHOT)


def test_a_listing_shows_what_may_be_asked() -> None:
    principal = Principal(tenant="t", key="k", region="in")
    assert [plan.name for plan in visible(principal, SNAPSHOT)] == ["best", "here"]


def test_classes_are_in_order_and_an_unknown_one_goes_nowhere() -> None:
    assert holds("", "public")
    assert not holds("", "internal")
    assert holds("restricted", "confidential")
    assert not holds("internal", "confidential")
    assert not holds("restricted", "invented")
    assert lowest(["restricted", "internal", "confidential"]) == "internal"


KEEPS = Target(
    model="keeps",
    revision="keeps",
    kind="remote",
    data_class="restricted",
    unfit=(("confidential", "it keeps data for 31 days"), ("restricted", "it keeps data")),
)


def keeping(**tenant: str) -> Snapshot:
    plans = {
        "keeps": Plan(name="keeps", identity="1", targets=(KEEPS,)),
        "both": Plan(name="both", identity="2", targets=(KEEPS, HERE)),
    }
    terms = Terms(**tenant)  # type: ignore[arg-type]
    return msgspec.structs.replace(SNAPSHOT, plans=plans, tenants={"t": terms})


def test_who_keeps_data_too_long_is_not_asked_and_the_rule_is_said() -> None:
    confidential = Principal(tenant="t", key="k", data_class="confidential")
    assert [one.model for one in route("both", confidential, keeping()).targets] == ["here"]
    with pytest.raises(ResidencyDenied, match=r"are confidential, .* it keeps data for 31 days"):
        route("keeps", confidential, keeping())
    internal = Principal(tenant="t", key="k", data_class="internal")
    assert route("keeps", internal, keeping()).targets == (KEEPS,)


@pytest.mark.parametrize(
    ("key", "tenant", "tried"),
    [
        ({}, {"data_class": "confidential"}, ["here"]),
        ({"data_class": "internal"}, {"data_class": "confidential"}, ["here"]),
        ({"data_class": "restricted"}, {"data_class": "internal"}, ["here"]),
        ({"data_class": "internal"}, {"data_class": "public"}, ["keeps", "here"]),
        ({}, {"region": "in"}, ["here"]),
        ({"region": "in"}, {"region": "in"}, ["here"]),
    ],
    ids=str,
)
def test_what_holds_for_a_tenant_holds_for_its_keys(
    key: dict[str, str], tenant: dict[str, str], tried: list[str]
) -> None:
    snapshot = keeping(**tenant)
    principal = Principal(tenant="t", key="k", **key)  # type: ignore[arg-type]
    found = route("both", bound(principal, snapshot), snapshot)
    assert [one.model for one in found.targets] == tried


def test_a_key_that_is_at_home_elsewhere_than_its_tenant_is_at_home_nowhere() -> None:
    snapshot = keeping(region="us")
    principal = bound(Principal(tenant="t", key="k", region="in"), snapshot)
    assert visible(principal, snapshot) == []
    with pytest.raises(ResidencyDenied, match="stay in 'in and us'"):
        route("both", principal, snapshot)
