"""The status that an operator sees."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from tests.unit.control.installation import Installation
from tiffin.control.chores import Chore
from tiffin.control.fetch import Download
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.observed import Observed
from tiffin.control.publish import Publisher
from tiffin.control.report import JournalStatus, ModelStatus, Report, report
from tiffin.types.paths import replica_of as socket_name

DIGEST = "ab" * 32
TEXT = f"""
[models.parrot]
runtime = "echo"
[models.cloud]
runtime = "remote"
url = "https://host/v1"
[models.coming]
runtime = "llamacpp"
sources = ["file:/x"]
sha256 = "{DIGEST}"
[routes.best]
models = ["coming", "cloud"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    site = Installation(tmp_path / "data")
    site.file.write_text(TEXT)
    return site


def seen(site: Installation, *chores: Chore) -> Report:
    office = site.opened()
    snapshot = Publisher(site.folder.snapshot).current
    downloads = [Download(name="coming", done_bytes=5, total_bytes=10)]
    journal = JournalStatus(behind_s=0.2, bytes=7)
    return report(site.folder, office, snapshot, downloads, chores, journal)


def model(told: Report, name: str) -> ModelStatus:
    return next(model for model in told.models if model.name == name)


def replica_of(site: Installation, name: str) -> str:
    return model(seen(site), name).replica


def test_models_say_where_they_are(site: Installation) -> None:
    told = seen(site)
    assert {model.name: model.state for model in told.models} == {
        "parrot": "loading",
        "cloud": "ready",
        "coming": "fetching",
    }
    assert (model(told, "coming").done_bytes, model(told, "coming").total_bytes) == (5, 10)
    assert [(route.name, route.models) for route in told.routes] == [("best", ["coming", "cloud"])]
    assert told.degraded == []


def test_a_replica_tells_of_itself(site: Installation) -> None:
    name = replica_of(site, "parrot")
    (site.folder.run / f"{name}.state.json").write_text('{"phase":"ready","load_ms":12}')
    told = model(seen(site), "parrot")
    assert (told.state, told.replica, told.load_ms) == ("ready", name, 12)


def test_a_process_that_will_not_start_is_told_of(site: Installation) -> None:
    process = ProcessStatus(
        name=replica_of(site, "parrot"), role="replica", state=State.FAILED, reason="no such file"
    )
    status = Status(pid=1, address="http://here", started_ns=2, processes=(process,))
    (site.folder.run / "status.json").write_bytes(msgspec.json.encode(status))
    told = seen(site)
    assert model(told, "parrot").state == "failed"
    assert told.degraded == ["model parrot: no such file"]
    assert (told.address, told.processes) == ("http://here", (process,))


def test_chores_that_fail_are_told_of(site: Installation) -> None:
    async def work() -> None:
        return

    told = seen(site, Chore("ingest", work, 1.0, fault="no database"), Chore("trim", work, 1.0))
    assert told.degraded == ["ingest: no database"]


def test_what_is_to_replace_a_model_is_told_of_with_its_fault(site: Installation) -> None:
    site.file.write_text('[models.parrot]\nruntime = "echo"\n')
    office = site.opened()
    name = replica_of(site, "parrot")
    site.observed = Observed(frozenset({name}), frozenset({name}))
    site.file.write_text('[models.parrot]\nruntime = "echo"\nfail_load = "no"\n')
    site.load_again()
    snapshot = Publisher(site.folder.snapshot).current
    assert snapshot is not None
    fresh = socket_name(snapshot.coming["parrot"].sockets[0])
    (site.folder.run / f"{name}.state.json").write_text('{"phase":"ready"}')
    (site.folder.run / f"{fresh}.state.json").write_text('{"phase":"failed","reason":"no"}')
    told = report(site.folder, office, snapshot, [], [], JournalStatus(behind_s=0.0, bytes=0))
    parrot = model(told, "parrot")
    assert (parrot.state, parrot.replica) == ("ready", name)
    assert parrot.coming is not None
    assert (parrot.coming.state, parrot.coming.reason) == ("failed", "no")
    assert told.degraded == ["model parrot: the old one serves, as the new one failed: no"]


def test_a_language_model_says_what_runs_it_and_why(site: Installation) -> None:
    content = b"GGUF"
    digest = hashlib.sha256(content).hexdigest()
    site.file.write_text(
        f'[models.m]\nruntime = "llamacpp"\nengine = "auto"\nsources = ["file:/x"]\n'
        f'sha256 = "{digest}"\n[models.parrot]\nruntime = "echo"\n'
    )
    file = site.folder.artifacts / "sha256" / digest
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    told = seen(site)
    assert model(told, "m").engine == "llamacpp"
    assert model(told, "m").engine_why == "nothing has been measured yet"
    assert model(told, "parrot").engine == model(told, "parrot").engine_why == ""
