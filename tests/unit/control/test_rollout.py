"""New before old: whatever happens in whatever order, what has served goes on being served."""

from dataclasses import replace
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tiffin.config.load import load_tree
from tiffin.config.schema import Tree
from tiffin.control.observed import Observed
from tiffin.control.publish import Shelf, Site, compose
from tiffin.control.rollout import LINGER_NS
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import Deployment, Snapshot, Target

SITE = Site(DataFolder(Path("/data")), cores=8)
DIGEST = "ab" * 32
SECOND = 1_000_000_000


class Scene:
    """Control and the world that it sees: a clock, a configuration, replicas that get ready."""

    def __init__(self) -> None:
        self.now_ns = 100 * SECOND
        self.tree: Tree = {}
        self.shelf = Shelf(present={DIGEST: Path("/data/a")})
        self.unloaded: dict[str, str] = {}
        self.restarts: dict[str, int] = {}
        self.ready: set[str] = set()
        self.served: set[str] = set()
        self.snapshot: Snapshot | None = None

    def models(self, **models: Tree) -> "Scene":
        self.tree = {"models": {name: {"runtime": "echo", **of} for name, of in models.items()}}
        return self

    def publish(self) -> Snapshot:
        observed = Observed(frozenset(self.ready), frozenset(self.served))
        site = replace(SITE, observed=observed, unloaded=self.unloaded, restarts=self.restarts)
        loaded = load_tree(self.tree, {})
        self.snapshot = compose(loaded, {}, self.shelf, site, self.snapshot, self.now_ns)
        names = {one.name for one in self.snapshot.deployments}
        self.ready &= names
        self.served &= names
        return self.snapshot

    def get_ready(self, *names: str) -> Snapshot:
        """These replicas, or all, are ready; what follows."""
        assert self.snapshot is not None
        fresh = set(names) or {one.name for one in self.snapshot.deployments}
        self.ready |= fresh
        self.served |= fresh
        return self.publish()

    def later(self, seconds: float) -> Snapshot:
        self.now_ns += int(seconds * SECOND)
        return self.publish()


def target(snapshot: Snapshot, name: str = "m") -> Target:
    return snapshot.plans[name].targets[0]


def running(snapshot: Snapshot, name: str = "m") -> list[Deployment]:
    return [one for one in snapshot.deployments if one.model == name]


def test_the_first_generation_is_tried_at_once() -> None:
    snapshot = Scene().models(m={"replicas": 2}).publish()
    assert target(snapshot).sockets == tuple(one.socket for one in running(snapshot))
    assert [one.name[-2:] for one in running(snapshot)] == ["-0", "-1"]


def test_the_old_serves_until_all_of_the_new_is_ready_then_lingers() -> None:
    site = Scene().models(m={})
    site.publish()
    old = site.get_ready()
    both = site.models(m={"context": 9, "replicas": 2}).publish()
    assert target(both) == target(old)
    assert both.coming["m"].revision != target(old).revision
    [_, one, other] = running(both)
    assert target(site.get_ready(one.name)) == target(old)
    switched = site.get_ready(other.name)
    assert target(switched).sockets == (one.socket, other.socket)
    assert switched.coming == {}
    assert switched.leaving == {running(old)[0].name: site.now_ns + LINGER_NS}
    assert len(running(site.later(1.9))) == 3
    assert running(site.later(0.2)) == [one, other]


def test_one_that_does_not_load_leaves_the_old_one_serving() -> None:
    site = Scene().models(m={})
    site.publish()
    old = site.get_ready()
    site.models(m={"fail_load": "no"}).publish()
    for _ in range(5):
        assert target(site.later(60)) == target(old)
    back = site.models(m={}).publish()
    assert (running(back), back.coming) == (running(old), {})


def test_one_whose_file_is_still_to_come_leaves_the_old_one_serving() -> None:
    site = Scene()
    model = {"runtime": "llamacpp", "sources": ["file:/x"]}
    site.models(m={**model, "sha256": DIGEST}).publish()
    old = site.get_ready()
    coming = site.models(m={**model, "sha256": "cd" * 32}).publish()
    assert target(coming) == target(old)
    assert coming.coming["m"].state == "fetching"


def test_more_and_fewer_replicas_leave_the_others_alone() -> None:
    site = Scene().models(m={"replicas": 2})
    site.publish()
    two = site.get_ready()
    three = site.models(m={"replicas": 3}).publish()
    assert running(three)[:2] == running(two)
    assert len(target(three).sockets) == 3
    one = site.models(m={"replicas": 1}).publish()
    assert target(one).sockets == (running(two)[0].socket,)
    assert len(one.leaving) == 1, "the third was never ready"
    assert running(site.later(3)) == running(two)[:1]


def test_fewer_replicas_of_which_none_is_there_wait_for_one() -> None:
    site = Scene().models(m={"replicas": 2})
    site.publish()
    two = site.get_ready()
    first, _ = running(two)
    site.ready.discard(first.name)
    assert target(site.models(m={}).publish()) == target(two)
    assert target(site.get_ready(first.name)).sockets == (first.socket,)
    assert running(site.later(3)) == [first]


def test_what_is_not_there_is_not_waited_for() -> None:
    site = Scene().models(m={})
    site.publish()
    fresh = site.models(m={"context": 9}).publish()
    assert [one.revision for one in running(fresh)] == [target(fresh).revision]


def test_a_rollout_that_is_under_way_goes_on_over_a_restart_of_everything() -> None:
    site = Scene().models(m={})
    site.publish()
    old = site.get_ready()
    site.models(m={"context": 9}).publish()
    site.ready.clear()
    site.served.clear()
    assert target(site.later(600)) == target(old)
    assert target(site.get_ready()).revision != target(old).revision


def test_an_unloaded_model_leaves_at_once() -> None:
    site = Scene().models(m={})
    site.publish()
    site.get_ready()
    site.unloaded["m"] = "enough"
    assert running(site.publish()) == []


def test_a_removed_model_lingers() -> None:
    site = Scene().models(m={}, other={})
    site.publish()
    site.get_ready()
    assert len(running(site.models(other={}).publish())) == 1
    assert running(site.later(3)) == []


def test_settings_of_others_than_the_process_change_at_once_and_restart_nothing() -> None:
    site = Scene().models(m={})
    site.publish()
    before = site.get_ready()
    after = site.models(m={"idle_s": 9, "keep": "on-demand"}).publish()
    assert target(after).on_demand
    assert [(one.name, one.idle_s) for one in running(after)] == [(running(before)[0].name, 9)]


def test_one_on_demand_is_loaded_before_it_takes_over_and_not_if_none_is_there() -> None:
    site = Scene().models(m={"keep": "on-demand"})
    site.publish()
    site.get_ready()
    site.models(m={"keep": "on-demand", "context": 9})
    old, new = running(site.publish())
    assert (old.on_demand, new.on_demand) == (True, False)
    assert [one.on_demand for one in running(site.get_ready(new.name))] == [True, True]
    site.ready.clear()  # evicted
    gone = site.models(m={"keep": "on-demand"}).publish()
    assert [one.revision for one in running(gone)] == [target(gone).revision]


def test_told_to_start_anew_it_does_so_in_the_same_way() -> None:
    site = Scene().models(m={})
    site.publish()
    old = site.get_ready()
    site.restarts["m"] = 1
    assert target(site.publish()) == target(old)
    new = target(site.get_ready())
    assert (new.revision, new.sockets != target(old).sockets) == (target(old).revision, True)


PIPELINE: Tree = {
    "runtime": "pipeline",
    "outputs": {"y": "a.y"},
    "steps": [{"name": "a", "model": "score", "inputs": {"x": "request.x"}}],
}


def graph(digest: str) -> Tree:
    files = {"model.onnx": {"sources": ["file:/x"], "sha256": digest}}
    return {"runtime": "onnx", "files": files}


def test_a_pipeline_keeps_the_revisions_that_it_was_made_for() -> None:
    site = Scene()
    other = "cd" * 32
    site.shelf = Shelf(present={DIGEST: Path("/data/a"), other: Path("/data/b")})
    site.models(score=graph(DIGEST), p=PIPELINE).publish()
    old = site.get_ready()
    both = site.models(score=graph(other), p=PIPELINE).publish()
    fresh = next(one for one in running(both, "score") if one not in running(old, "score"))
    site.get_ready(fresh.name)
    assert target(site.later(60), "score").sockets == (fresh.socket,)
    snapshot = site.later(60)
    assert target(snapshot, "p") == target(old, "p")
    assert running(old, "score")[0] in running(snapshot, "score"), "its pipeline calls it"
    switched = site.get_ready(*(one.name for one in running(snapshot, "p")))
    assert running(switched, "p")[0].peers != running(old, "p")[0].peers
    assert len(running(site.later(3), "score")) == 2, "requests of the old pipeline may still run"
    assert running(site.later(60), "score") == [fresh]


changes = st.fixed_dictionaries(
    {},
    optional={
        "context": st.sampled_from([8, 9, 10]),
        "replicas": st.sampled_from([1, 2, 3]),
        "keep": st.sampled_from(["loaded", "on-demand"]),
        "idle_s": st.sampled_from([1, 2]),
    },
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), st.sampled_from("ab"), changes),
        st.tuples(st.just("restart"), st.sampled_from("ab"), st.none()),
        st.tuples(st.just("ready"), st.integers(0, 8), st.none()),
        st.tuples(st.just("died"), st.integers(0, 8), st.none()),
        st.tuples(st.just("later"), st.floats(0, 3), st.none()),
        st.tuples(st.just("control starts again"), st.none(), st.none()),
    ),
    max_size=40,
)


@given(events)
def test_who_has_served_is_never_without_replicas_and_the_wanted_come_in_the_end(
    story: list[tuple[str, object, object]],
) -> None:
    scene = Scene().models(a={}, b={})
    scene.publish()
    wanted: dict[str, Tree] = {"a": {}, "b": {}}
    for event in story:
        before = happen(scene, wanted, *event)
        ready = {one.socket for one in before.deployments if one.name in scene.ready}
        no_gap(before, scene.publish(), ready)
    for _ in range(3):
        scene.get_ready()
        scene.later(60)
    final = scene.publish()
    assert (final.coming, final.leaving) == ({}, {})
    for name in "ab":
        assert len(running(final, name)) == wanted[name].get("replicas", 1)
        assert {one.socket for one in running(final, name)} == set(target(final, name).sockets)
        contexts = {msgspec.json.decode(one.spec)["context"] for one in running(final, name)}
        assert contexts == {wanted[name].get("context", 4096)}


def happen(
    scene: Scene, wanted: dict[str, Tree], what: str, which: object, how: object
) -> Snapshot:
    """Something changes; the snapshot from before."""
    before = scene.snapshot
    assert before is not None
    names = sorted(one.name for one in before.deployments)
    match what, which, how:
        case "apply", str(name), dict(settings):
            wanted[name] = settings
            scene.models(**wanted)
        case "restart", str(name), _:
            scene.restarts[name] = scene.restarts.get(name, 0) + 1
        case "ready", int(n), _:
            scene.ready.add(names[n % len(names)])
            scene.served.add(names[n % len(names)])
        case "died", int(n), _:
            scene.ready.discard(names[n % len(names)])
        case "later", float(seconds), _:
            scene.now_ns += int(seconds * SECOND)
        case _:
            scene.snapshot = msgspec.json.decode(msgspec.json.encode(before), type=Snapshot)
    return before


def no_gap(before: Snapshot, after: Snapshot, ready: set[str]) -> None:
    there = {one.socket for one in after.deployments}
    leaving = {one.socket for one in after.deployments if one.name in after.leaving}
    assert len(leaving) == len(after.leaving)
    for name in "ab":
        now = target(after, name)
        assert now.state == "ready-to-run"
        assert now.sockets
        assert set(now.sockets) <= there - leaving
        if serving := set(target(before, name).sockets) & ready:
            assert set(now.sockets) & ready, f"{name} was there and isn't any more"
            assert serving <= there, f"{name} left without lingering"
