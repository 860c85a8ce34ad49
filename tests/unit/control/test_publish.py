"""From configuration and files to snapshots."""

from pathlib import Path

import msgspec
import pytest

from tiffin.config.load import load_text
from tiffin.config.models import GGUF
from tiffin.control.deploy import threads_of
from tiffin.control.publish import Publisher, Shelf, Site, compose
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import PlacedFile, Snapshot

DIGEST = "ab" * 32
OTHER = "cd" * 32
SITE = Site(DataFolder(Path("/data")), cores=8)
HERE = Shelf(present={DIGEST: Path("/data/a")})

MODELS = f"""
[models.big]
runtime = "llamacpp"
sources = ["file:/big"]
sha256 = "{OTHER}"
[models.small]
runtime = "llamacpp"
sources = ["file:/small"]
sha256 = "{DIGEST}"
[models.cloud]
runtime = "remote"
url = "https://host/v1"
key_env = "CLOUD_KEY"
[models.parrot]
runtime = "echo"
"""


def composed(
    text: str = MODELS,
    *,
    shelf: Shelf = HERE,
    previous: Snapshot | None = None,
    now_s: int = 100,
) -> Snapshot:
    loaded = load_text(text.encode(), {})
    keys = {"hash": ("t", "k")} if loaded.config.tenants else {}
    return compose(loaded, keys, shelf, SITE, previous, now_s * 1_000_000_000)


def test_every_model_has_a_plan_of_its_own() -> None:
    plans = composed().plans
    assert {name: plan.targets[0].kind for name, plan in plans.items()} == {
        "big": "llamacpp",
        "small": "llamacpp",
        "cloud": "remote",
        "parrot": "echo",
    }
    assert all(plan.timeout_s == 300 and plan.created == 100 for plan in plans.values())


def test_a_model_whose_file_is_missing_is_fetched_and_not_run() -> None:
    snapshot = composed()
    assert snapshot.plans["big"].targets[0].state == "fetching"
    assert [one.model for one in snapshot.deployments] == ["small", "parrot"]


def test_a_model_whose_file_cannot_be_had_says_why() -> None:
    snapshot = composed(shelf=Shelf(failed={"big": "no route to host"}))
    target = snapshot.plans["big"].targets[0]
    assert (target.state, target.reason) == ("failed", "no route to host")


def test_a_deployment_has_all_that_a_replica_needs() -> None:
    snapshot = composed()
    deployment = snapshot.deployments[0]
    target = snapshot.plans["small"].targets[0]
    assert deployment.files == {GGUF: PlacedFile(path="/data/a", sha256=DIGEST)}
    assert (deployment.socket,) == target.sockets
    assert deployment.revision == target.revision
    assert msgspec.json.decode(deployment.spec)["runtime"] == "llamacpp"


def test_language_models_share_the_cores_those_still_to_come_included() -> None:
    assert composed().deployments[0].threads == 4
    asked = MODELS.replace('"file:/small"]', '"file:/small"]\nthreads = 3')
    assert composed(asked).deployments[0].threads == 3


SHARED = """
[models.a]
runtime = "python"
files = {}
replicas = 3
[models.b]
runtime = "python"
files = {}
replicas = 2
keep = "on-demand"
[models.c]
runtime = "python"
files = {}
keep = "on-demand"
[models.parrot]
runtime = "echo"
replicas = 9
"""


def test_replicas_share_the_cores_with_those_on_demand_by_turns() -> None:
    loaded = load_text(SHARED.encode(), {}).config.models
    assert threads_of(loaded["a"], loaded, 10) == 2
    assert threads_of(loaded["c"], loaded, 10) == 2
    assert threads_of(loaded["parrot"], loaded, 10) == 1
    alone = {"a": loaded["a"]}
    assert threads_of(loaded["a"], alone, 10) == 3


def test_what_only_the_gateway_reads_restarts_no_replica() -> None:
    before = composed().deployments
    after = composed(MODELS.replace('"file:/small"]', '"file:/x"]\ntimeout_s = 9')).deployments
    assert before == after
    assert composed(MODELS.replace('"file:/small"]', '"file:/x"]\nslots = 9')).deployments != before


def test_what_the_replica_reads_reaches_it() -> None:
    text = '[models.m]\nruntime = "echo"\nqueue_timeout_s = 3\nslots = 2\n'
    [deployment] = composed(text).deployments
    spec = msgspec.json.decode(deployment.spec)
    assert (spec["queue_timeout_s"], spec["slots"]) == (3, 2)


def test_secrets_are_references() -> None:
    target = composed().plans["cloud"].targets[0]
    assert (target.key_env, target.upstream_model) == ("CLOUD_KEY", "cloud")


def test_a_route_tries_its_models_in_order() -> None:
    text = MODELS + '[routes.best]\nmodels = ["cloud", "small"]\nattempts = 2\ntimeout_s = 9\n'
    plan = composed(text).plans["best"]
    assert [target.model for target in plan.targets] == ["cloud", "small"]
    assert (plan.attempts, plan.timeout_s) == (2, 9)


def test_a_route_never_bypasses_its_models_guard() -> None:
    text = (
        '[models.m]\nruntime = "echo"\nguard = "g"\n[guards.g]\nkind = "personal_data"\n'
        '[routes.r]\nmodels = ["m"]\n'
    )
    snapshot = composed(text)
    assert snapshot.plans["r"].guard == snapshot.plans["m"].guard == "g"
    assert snapshot.guards["g"].on_error == "refuse"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        pytest.param("", "timeout_s = 9\n", True, id="a time limit"),
        pytest.param("", "slots = 9\n", True, id="slots"),
        pytest.param("", "context = 9\n", False, id="another revision"),
        pytest.param("", 'guard = "g"\n', False, id="a guard"),
    ],
)
def test_identity_changes_with_the_meaning_alone(before: str, after: str, same: bool) -> None:
    guard = '[guards.g]\nkind = "personal_data"\n'
    model = '[models.m]\nruntime = "echo"\n'
    one = composed(guard + model + before).plans["m"]
    two = composed(guard + model + after).plans["m"]
    assert (one.identity == two.identity) is same


def test_keys_are_principals() -> None:
    text = (
        '[tenants.t.limits]\nconcurrency = 5\n[tenants.t.keys.k]\nkey_env = "K"\nadmin = true\n'
        'models = ["m"]\nlimits = { requests_per_minute = 7 }\n[models.m]\nruntime = "echo"\n'
    )
    snapshot = composed(text)
    principal = snapshot.keys["hash"]
    assert (principal.tenant, principal.key, principal.admin) == ("t", "k", True)
    assert principal.models == ("m",)
    assert principal.limits.requests_per_minute == 7
    assert snapshot.tenant_limits["t"].concurrency == 5


def test_nothing_new_is_the_same_snapshot() -> None:
    first = composed()
    assert composed(previous=first, now_s=200) is first


def test_something_new_has_the_next_number_and_keeps_what_it_can() -> None:
    first = composed()
    second = composed(previous=first, now_s=200, shelf=Shelf())
    assert second.number == first.number + 1
    assert second.plans["cloud"].created == 100


def test_what_was_published_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    first = Publisher(path).publish(composed())
    publisher = Publisher(path)
    assert publisher.current == first
    assert composed(previous=publisher.current, now_s=200) is publisher.current
    second = publisher.publish(composed(previous=publisher.current, shelf=Shelf()))
    assert second.number == first.number + 1
    assert [found.name for found in tmp_path.iterdir()] == ["snapshot.json"]


def test_a_lost_number_is_never_given_again(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text("{")
    publisher = Publisher(path)
    assert publisher.current is None
    first = publisher.publish(composed())
    assert first.number > 1_000_000_000
    assert publisher.publish(composed(previous=first, shelf=Shelf())).number == first.number + 1


def test_objectives_reach_the_plan_and_restart_no_replica() -> None:
    slo = "[models.small.slo]\np95_ms = 200\nttft_p95_ms = 50\n"
    routes = '[routes.a]\nmodels = ["small"]\n[routes.b]\nmodels = ["small"]\nslo = {p95_ms = 9}\n'
    after = composed(MODELS + "\n" + slo + routes)
    plans = after.plans
    assert (plans["small"].p95_ms, plans["small"].ttft_p95_ms) == (200, 50)
    assert (plans["a"].p95_ms, plans["a"].ttft_p95_ms) == (200, 50)
    assert (plans["b"].p95_ms, plans["b"].ttft_p95_ms) == (9, 0)
    assert after.deployments == composed().deployments
