"""Whose a key is, from the snapshot or the keyring, and what it may do."""

from hashlib import sha256

import pytest

from tiffin.errors import (
    KeyExpired,
    OutOfScope,
    PermissionDenied,
    TenantSuspended,
    TiffinError,
    Unauthenticated,
    Unavailable,
)
from tiffin.gateway.authenticate import (
    Authentication,
    check_endpoint,
    check_tools,
    introduction,
    require_entrance,
    require_sight,
)
from tiffin.gateway.keyring import Keyring
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Principal, Snapshot, Terms


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


class Door:
    """A tenant `file` in the snapshot, and `acme` and `late` whose keys are in the ring."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ring = Keyring()
        self.authenticate = Authentication(self.clock, self.ring)
        self.ring.keys = {
            digest("of-acme"): Principal(tenant="acme", key="k"),
            digest("of-late"): Principal(tenant="late", key="k"),
            digest("of-gone"): Principal(tenant="gone", key="k"),
            digest("for-a-time"): Principal(
                tenant="acme", key="t", expires_ns=self.clock.now_ns() + 10**9
            ),
        }
        self.snapshot = Snapshot(
            number=1,
            config_hash="",
            published_ns=0,
            keys={digest("of-file"): Principal(tenant="file", key="k")},
            tenant_limits={},
            plans={},
            tenants={"acme": Terms(), "late": Terms(suspended=True), "file": Terms()},
        )

    def ask(self, key: str) -> Principal:
        headers = [(b"authorization", b"Bearer " + key.encode())]
        return self.authenticate(FakeExchange(b"GET", b"/", headers=headers), self.snapshot)


@pytest.mark.parametrize("tenant", ["file", "acme"])
def test_a_key_is_found_in_the_snapshot_or_in_the_ring(tenant: str) -> None:
    assert Door().ask(f"of-{tenant}").tenant == tenant


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("nobody's", Unauthenticated),
        ("of-gone", Unauthenticated),
        ("of-late", TenantSuspended),
    ],
)
def test_others_are_refused(key: str, error: type[TiffinError]) -> None:
    with pytest.raises(error):
        Door().ask(key)


def test_a_key_that_may_not_have_been_read_yet_is_asked_to_come_again() -> None:
    door = Door()
    door.ring.whole = False
    with pytest.raises(Unavailable) as refusal:
        door.ask("nobody's")
    assert refusal.value.retry_after
    assert door.ask("of-acme")


def test_a_key_ends_at_its_time() -> None:
    door = Door()
    assert door.ask("for-a-time")
    door.clock.advance(1.0)
    with pytest.raises(KeyExpired, match="'acme/t' has expired"):
        door.ask("for-a-time")


def test_a_key_may_be_for_some_endpoints() -> None:
    principal = Principal(tenant="t", key="k", endpoints=("chat", "embeddings"))
    check_endpoint(principal, "chat")
    check_endpoint(Principal(tenant="t", key="k"), "infer")
    with pytest.raises(OutOfScope, match="isn't for 'infer'; it is for: chat, embeddings"):
        check_endpoint(principal, "infer")


def test_a_key_may_be_without_tools() -> None:
    principal = Principal(tenant="t", key="k", tools=False)
    check_tools(principal, offered=False)
    check_tools(Principal(tenant="t", key="k"), offered=True)
    with pytest.raises(OutOfScope):
        check_tools(principal, offered=True)


@pytest.mark.parametrize(
    ("role", "enters", "sees"),
    [
        ("user", False, False),
        ("viewer", True, False),
        ("tenant-admin", True, False),
        ("auditor", True, True),
        ("admin", True, True),
    ],
)
def test_roles_open_the_admin_side(role: str, enters: bool, sees: bool) -> None:
    principal = Principal(tenant="t", key="k", role=role, admin=role == "admin")
    for check, passes in ((require_entrance, enters), (require_sight, sees)):
        try:
            check(principal)
        except PermissionDenied:
            assert not passes
        else:
            assert passes
    assert b"x-tiffin-role: %b\r\n" % role.encode() in introduction(principal)
