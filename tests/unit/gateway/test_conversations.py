import string

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tiffin.gateway.conversations import ENTRY_BYTES, MemoryConversations, Room
from tiffin.ports.conversations import Kept
from tiffin.testing.clock import FakeClock

ROOM = Room(
    one_bytes=ENTRY_BYTES + 60,
    tenant_bytes=4 * ENTRY_BYTES + 150,
    tenant_entries=3,
    all_bytes=8 * ENTRY_BYTES,
    ttl_s=10.0,
)
TENANTS = st.sampled_from(["a", "b", "a\x00b", ""])
NAMES = st.sampled_from(["r1", "r2", "r3", "r4", "r5", "b"])


class Conversations(RuleBasedStateMachine):
    """The store against a plain map: it may have forgotten, but never says another's words."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = MemoryConversations(self.clock, ROOM)
        self.told: dict[tuple[str, str], tuple[Kept, float]] = {}
        self.count = 0

    @rule(tenant=TENANTS, name=NAMES, size=st.integers(0, 70))
    def keep(self, tenant: str, name: str, size: int) -> None:
        self.count += 1
        kept = Kept(response=f"{tenant}/{self.count}".encode(), items=b"x" * size)
        if self.store.keep(tenant, name, kept):
            assert self.store.find(tenant, name) == kept
            self.told[tenant, name] = kept, self.clock.monotonic()
        else:
            assert self.store.find(tenant, name) is None
            self.told.pop((tenant, name), None)

    @rule(tenant=TENANTS, name=NAMES)
    def find(self, tenant: str, name: str) -> None:
        found = self.store.find(tenant, name)
        if found is not None:
            kept, at = self.told[tenant, name]
            assert found == kept
            assert found.response.decode().rpartition("/")[0] == tenant
            assert self.clock.monotonic() - at < ROOM.ttl_s

    @rule(tenant=TENANTS, name=NAMES)
    def forget(self, tenant: str, name: str) -> None:
        others = {key: self.store.find(*key) for key in self.told if key != (tenant, name)}
        self.store.forget(tenant, name)
        assert self.store.find(tenant, name) is None
        assert all(self.store.find(*key) == kept for key, kept in others.items())

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def is_bounded(self) -> None:
        here = [key for key in self.told if self.store.find(*key) is not None]
        assert len(self.store) == len(here)
        held = {tenant: 0 for tenant, _ in here}
        for key in here:
            kept = self.told[key][0]
            held[key[0]] += len(kept.response) + len(kept.items) + ENTRY_BYTES
        assert self.store.held == sum(held.values()) <= ROOM.all_bytes
        assert all(size <= ROOM.tenant_bytes for size in held.values())
        assert all(
            sum(tenant == other for other, _ in here) <= ROOM.tenant_entries for tenant in held
        )


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def kept(text: str) -> Kept:
    return Kept(response=text.encode(), items=b"[]")


def test_the_oldest_of_a_tenant_goes_first() -> None:
    store = MemoryConversations(FakeClock(), ROOM)
    for name in string.ascii_lowercase[:4]:
        store.keep("t", name, kept(name))
    assert [store.find("t", name) is not None for name in "abcd"] == [False, True, True, True]


def test_a_loud_tenant_pushes_out_its_own() -> None:
    room = Room(all_bytes=4 * (ENTRY_BYTES + 10))
    store = MemoryConversations(FakeClock(), room)
    store.keep("quiet", "first", kept("mine"))
    for number in range(50):
        store.keep("loud", str(number), kept("x"))
    assert store.find("quiet", "first") == kept("mine")


def test_what_is_too_old_is_gone() -> None:
    clock = FakeClock()
    store = MemoryConversations(clock, Room(ttl_s=60))
    store.keep("t", "a", kept("a"))
    clock.advance(59)
    assert store.find("t", "a") is not None
    clock.advance(2)
    assert store.find("t", "a") is None
    assert len(store) == store.held == 0
