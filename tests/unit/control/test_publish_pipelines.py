"""A pipeline's deployment knows its peers, follows their revisions, waits for their files."""

from pathlib import Path

from tiffin.config.load import load_text
from tiffin.control.publish import Shelf, Site, compose
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import Deployment, Snapshot

DIGEST, OTHER = "ab" * 32, "cd" * 32
SITE = Site(DataFolder(Path("/data")), cores=8)
HERE = {DIGEST: Path("/data/a"), OTHER: Path("/data/b")}

MODELS = """
[models.score]
runtime = "onnx"
queue = 7
[models.score.files."model.onnx"]
sources = ["file:/score"]
sha256 = "{digest}"

[models.review]
runtime = "pipeline"
outputs = {{ y = "a.y" }}
[[models.review.steps]]
name = "a"
model = "score"
inputs = {{ x = "request.x" }}

[models.outer]
runtime = "pipeline"
outputs = {{ y = "a.y" }}
[[models.outer.steps]]
name = "a"
model = "review"
inputs = {{ x = "request.x" }}
"""


def composed(digest: str = DIGEST, *, shelf: Shelf | None = None, text: str = MODELS) -> Snapshot:
    loaded = load_text(text.format(digest=digest).encode(), {})
    return compose(loaded, {}, shelf or Shelf(present=HERE), SITE, None, 1)


def deployments(snapshot: Snapshot) -> dict[str, Deployment]:
    return {one.model: one for one in snapshot.deployments}


def test_a_pipeline_knows_the_revisions_of_the_models_that_it_calls() -> None:
    found = deployments(composed())
    assert found["review"].peers == {"score": found["score"].revision}
    assert found["outer"].peers == {"review": found["review"].revision}
    assert found["score"].peers == {}


def test_a_changed_model_gives_every_pipeline_above_it_a_new_revision() -> None:
    before, after = deployments(composed()), deployments(composed(OTHER))
    for name in ("score", "review", "outer"):
        assert before[name].revision != after[name].revision


def test_how_much_a_model_gets_is_nothing_to_its_pipelines() -> None:
    before = deployments(composed())
    after = deployments(composed(text=MODELS.replace("queue = 7", "queue = 8")))
    assert before["review"] == after["review"]
    assert before["score"] != after["score"]


def test_a_pipeline_waits_for_its_models_files_and_says_for_which() -> None:
    fetching = composed(shelf=Shelf())
    assert fetching.plans["outer"].targets[0].state == "fetching"
    assert fetching.deployments == ()
    failed = composed(shelf=Shelf(failed={"score": "no route to host"}))
    target = failed.plans["outer"].targets[0]
    assert target.state == "failed"
    assert target.reason == "it calls review: it calls score: no route to host"


def test_what_reads_documents_serves_them() -> None:
    targets = {name: plan.targets[0] for name, plan in composed().plans.items()}
    assert (targets["review"].serves, targets["review"].protocol) == (("infer",), "oip")
    outputs = ", ".join(f'{name} = "a.y"' for name in ("text", "confidence", "box", "page", "size"))
    reading = MODELS.replace('y = "a.y" }}\n[[models.outer', outputs + " }}\n[[models.outer")
    [target] = composed(text=reading).plans["outer"].targets
    assert target.serves == ("document", "infer")
