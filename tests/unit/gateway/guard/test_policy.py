"""What a finding or a failing guard leads to is the policy's, and in doubt it is a refusal."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from tiffin.errors import Blocked
from tiffin.gateway.guard.policy import Guards
from tiffin.ports.guard import Finding, Guard, Piece
from tiffin.types.snapshot import GuardPolicy, Snapshot


def pieces() -> Iterator[Piece]:
    yield Piece("messages[0].content", "hi")


class Finds:
    """A guard that always finds something."""

    checks_output = True

    def check_input(self, pieces: Iterable[Piece]) -> Finding | None:
        return Finding(what="a secret", param="messages[0].content")

    def check_output(self, text: str) -> Finding | None:
        return Finding(what="a secret")


class Passes:
    """A guard that never finds anything and doesn't look at answers."""

    checks_output = False

    def check_input(self, pieces: Iterable[Piece]) -> Finding | None:
        return None

    def check_output(self, text: str) -> Finding | None:
        raise AssertionError("it said that it doesn't look")


class Fails:
    """A guard that can't check."""

    checks_output = True

    def check_input(self, pieces: Iterable[Piece]) -> Finding | None:
        raise RuntimeError("broken")

    def check_output(self, text: str) -> Finding | None:
        raise RecursionError


KINDS: dict[str, Callable[[], Guard]] = {"finds": Finds, "passes": Passes, "fails": Fails}


def guards(**policies: GuardPolicy) -> Guards:
    found = Guards(KINDS)
    found.adopt(
        Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={},
            tenant_limits={},
            plans={},
            guards=policies,
        )
    )
    return found


def test_a_finding_blocks_and_says_where() -> None:
    with pytest.raises(Blocked, match="'g' blocked the request: it has a secret") as caught:
        guards(g=GuardPolicy(kind="finds")).check_input("g", pieces)
    assert caught.value.param == "messages[0].content"
    with pytest.raises(Blocked, match="blocked the answer"):
        guards(g=GuardPolicy(kind="finds")).check_output("g", "text")


def test_nothing_found_passes() -> None:
    found = guards(g=GuardPolicy(kind="passes"))
    found.check_input("g", pieces)
    found.check_output("g", "text")
    assert not found.checks_output("g")


def test_no_guard_checks_nothing() -> None:
    found = guards()
    found.check_input("", pieces)
    found.check_output("", "text")
    assert not found.checks_output("")


@pytest.mark.parametrize("kind", ["fails", "of the future"])
def test_a_guard_that_fails_refuses_unless_its_policy_says_otherwise(kind: str) -> None:
    with pytest.raises(Blocked, match="couldn't check the request"):
        guards(g=GuardPolicy(kind=kind)).check_input("g", pieces)
    guards(g=GuardPolicy(kind=kind, on_error="allow")).check_input("g", pieces)


def test_a_guard_that_fails_on_an_answer_refuses_it() -> None:
    with pytest.raises(Blocked, match="couldn't check the answer"):
        guards(g=GuardPolicy(kind="fails")).check_output("g", "text")
    guards(g=GuardPolicy(kind="fails", on_error="allow")).check_output("g", "text")


def test_a_guard_that_is_not_there_refuses() -> None:
    with pytest.raises(Blocked):
        guards().check_input("gone", pieces)


def test_a_new_snapshot_replaces_the_guards() -> None:
    found = guards(g=GuardPolicy(kind="finds"))
    assert found.checks_output("g")
    found.adopt(
        Snapshot(number=2, config_hash="", published_ns=0, keys={}, tenant_limits={}, plans={})
    )
    with pytest.raises(Blocked):
        found.check_input("g", pieces)
    assert not found.checks_output("g")


def test_the_kinds_that_the_configuration_offers_are_there() -> None:
    found = Guards()
    found.adopt(
        Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={},
            tenant_limits={},
            plans={},
            guards={"g": GuardPolicy(kind="personal_data")},
        )
    )
    found.check_input("g", pieces)
    leaking = [Piece("messages[0].content", "98765 43210")]
    with pytest.raises(Blocked, match="a phone number") as caught:
        found.check_input("g", lambda: leaking)
    assert "98765" not in caught.value.message
