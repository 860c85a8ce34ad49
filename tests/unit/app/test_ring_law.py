"""Whatever control does and whenever gateways look: in the end they know all the keys."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.app.test_ring_follower import Ring, drop, put
from tiffin.app.ring_follower import RingFollower
from tiffin.gateway.keyring import Keyring

names = st.sampled_from("abcde")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names),
        st.tuples(st.just("drop"), names),
        st.sampled_from([("rewrite", ""), ("restart", ""), ("look", ""), ("torn", "")]),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_gateways_know_the_keys_that_there_are(done: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = Ring(Path(folder) / "keyring.jsonl")
        there: set[str] = set()
        for step, name in done:
            if step == "put":
                ring.write(put(name))
                there.add(name)
            elif step == "drop" and name in there:
                ring.write(drop(name))
                there.discard(name)
            elif step == "rewrite":
                ring.rewrite()
            elif step == "look":
                assert ring.names() == there
            elif step == "torn" and ring.path.exists():
                with ring.path.open("ab") as file:
                    file.write(b"0123 half")
                ring = _again(ring)
            elif step == "restart":
                ring = _again(ring)
        assert ring.names() == there
        assert not ring.keyring.fault
        late = Keyring()
        follower = RingFollower(ring.path, late)
        while follower.step():
            pass
        assert late.whole
        assert {one.key for one in late.keys.values()} == there
        follower.close()
        ring.follower.close()


def _again(ring: Ring) -> Ring:
    """Control starts anew; the gateway goes on."""
    fresh = Ring(ring.path)
    fresh.follower.close()
    fresh.keyring, fresh.follower = ring.keyring, ring.follower
    return fresh
