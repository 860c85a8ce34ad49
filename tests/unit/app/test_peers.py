"""Where a pipeline's models answer, by the published snapshot."""

from pathlib import Path

import msgspec

from tiffin.app.peers import Peers, Published
from tiffin.types.snapshot import Deployment, Plan, Snapshot, Target


def deployment(name: str, revision: str) -> Deployment:
    spec = msgspec.Raw(b"{}")
    return Deployment(name=name, model="m", revision=revision, socket=f"/{name}", spec=spec)


def snapshot(serving: Target, *deployments: Deployment, **more: int) -> Snapshot:
    return Snapshot(
        number=1,
        config_hash="",
        published_ns=0,
        keys={},
        tenant_limits={},
        plans={"m": Plan(name="m", identity="", targets=(serving,))},
        deployments=deployments,
        leaving=more,
    )


def read(published: Snapshot) -> Published:
    return msgspec.json.decode(msgspec.json.encode(published), type=Published)


def target(revision: str, *sockets: str) -> Target:
    return Target(model="m", revision=revision, kind="onnx", sockets=sockets)


ALL = (deployment("old", "1"), deployment("fresh", "1"), deployment("next", "2"))


def test_requests_go_where_the_revision_serves() -> None:
    assert read(snapshot(target("1", "/fresh"), *ALL)).sockets_of("m", "1") == ("/fresh",)


def test_a_revision_that_does_not_serve_yet_or_any_more_answers_its_pipelines() -> None:
    published = read(snapshot(target("1", "/fresh"), *ALL, old=5))
    assert published.sockets_of("m", "2") == ("/next",)
    published = read(snapshot(target("2", "/next"), *ALL, old=5))
    assert published.sockets_of("m", "1") == ("/fresh",)
    published = read(snapshot(target("2", "/next"), *ALL, old=5, fresh=5))
    assert published.sockets_of("m", "1") == ("/old", "/fresh")
    assert published.sockets_of("m", "3") == ()


async def test_a_new_snapshot_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(msgspec.json.encode(snapshot(target("1", "/old"), *ALL)))
    peers = Peers({"m": "1"}, path)
    places = peers.backends["m"]
    before = places.in_turn()
    peers.follow()
    assert places.in_turn() == before
    fresh = path.with_name("fresh")
    fresh.write_bytes(msgspec.json.encode(snapshot(target("1", "/fresh", "/old"), *ALL)))
    fresh.replace(path)
    peers.follow()
    assert len(places.in_turn()) == 2
    peers.close()
