"""Names of models, routes and revisions, and who may use them."""

import pytest

from tiffin.errors import ModelNotFound
from tiffin.gateway.route import labels, route, visible
from tiffin.types.snapshot import Plan, Principal, Snapshot, Target

ONE, TWO, THREE = "a1" * 32, "a2" * 32, "a1a1a1a1a1a1" + "b3" * 26
EVERYTHING = Principal(tenant="t", key="k")


def plan(name: str, *digests: str) -> Plan:
    targets = tuple(Target(model=name, revision=f"sha256:{one}", kind="echo") for one in digests)
    return Plan(name=name, identity=name, targets=targets)


SNAPSHOT = Snapshot(
    number=1,
    config_hash="",
    published_ns=0,
    keys={},
    tenant_limits={},
    plans={
        one.name: one
        for one in (
            plan("chat", ONE),
            plan("chat@next", TWO),
            plan("chat@third", THREE),
            plan("chatty", "cc" * 32),
            plan("best", ONE, TWO),
        )
    },
)


def key(*models: str) -> Principal:
    return Principal(tenant="t", key="k", models=models)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("chat", "chat"),
        ("chat@next", "chat@next"),
        (f"chat@{ONE}", "chat"),
        (f"chat@{TWO[:8]}", "chat@next"),
        (f"chat@{ONE[:13]}", "chat"),
        (f"chat@next@{TWO[:8]}", ""),
        (f"chat@{ONE[:8]}", ""),  # two begin so
        (f"chat@{TWO[:7]}", ""),
        (f"chatty@{ONE}", ""),
        (f"best@{ONE}", ""),
        ("chat@", ""),
        ("chat@none", ""),
        ("@next", ""),
    ],
)
def test_revisions_are_named_by_label_or_digest(name: str, found: str) -> None:
    if found:
        assert route(name, EVERYTHING, SNAPSHOT).name == found
    else:
        with pytest.raises(ModelNotFound):
            route(name, EVERYTHING, SNAPSHOT)


def test_what_a_model_has_not_is_said() -> None:
    with pytest.raises(ModelNotFound, match="'chat' has no version 'none'"):
        route("chat@none", EVERYTHING, SNAPSHOT)


def test_a_key_for_a_model_opens_its_revisions_and_one_for_a_revision_that_alone() -> None:
    names = [one.name for one in visible(key("chat"), SNAPSHOT)]
    assert names == ["chat", "chat@next", "chat@third"]
    assert [one.name for one in visible(key("chat@next"), SNAPSHOT)] == ["chat@next"]
    for name in ("chat", f"chat@{ONE}", "chat@third", "chatty"):
        with pytest.raises(ModelNotFound, match="there is no model"):
            route(name, key("chat@next"), SNAPSHOT)
    assert route(f"chat@{TWO}", key("chat@next"), SNAPSHOT).name == "chat@next"


def test_a_model_has_the_labels_that_a_key_may_use() -> None:
    chat = SNAPSHOT.plans["chat"]
    assert labels(chat, EVERYTHING, SNAPSHOT) == ["next", "third"]
    assert labels(chat, key("chat@third"), SNAPSHOT) == ["third"]
    assert labels(SNAPSHOT.plans["chat@next"], EVERYTHING, SNAPSHOT) == []
