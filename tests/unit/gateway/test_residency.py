"""A key's data go where they may: to targets in its region that are cleared for its class."""

import pytest

from tiffin.errors import ResidencyDenied
from tiffin.gateway.route import route, visible
from tiffin.types.residency import holds, lowest
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target


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
