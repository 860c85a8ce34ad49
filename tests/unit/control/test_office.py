"""Which configuration is in force, and that taking one is all or nothing."""

from pathlib import Path

import pytest

from tests.unit.control.installation import ONE, TWO, Installation
from tiffin.control.applied import life_of
from tiffin.control.changing import changed
from tiffin.control.observed import Observed
from tiffin.control.publish import Publisher
from tiffin.errors import ConfigInvalid, ModelNotFound, Unavailable
from tiffin.types.paths import one_before


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "data")


def test_the_file_is_published(site: Installation) -> None:
    site.opened()
    assert site.published == ["one"]


def test_what_is_applied_is_published_and_told(site: Installation) -> None:
    site.opened()
    applied = site.apply(TWO)
    assert site.published == ["two"]
    assert applied.number == 2
    assert applied.changed == [
        "models.one",
        "models.two",
        "server.port",
        "server.request_timeout_s",
    ]
    assert applied.restart == ["server.port"]


def test_it_outlives_control_but_not_the_server(site: Installation) -> None:
    site.opened(life="1")
    site.apply(TWO)
    site.opened(life="1")
    assert site.published == ["two"]
    site.opened(life="2")
    assert site.published == ["one"]


def test_without_a_file_it_stays_until_the_next(site: Installation) -> None:
    site.opened(life="1", given=False)
    site.apply(TWO)
    site.opened(life="2", given=False)
    site.apply(ONE)
    assert site.folder.applied.read_bytes() == ONE
    assert one_before(site.folder.applied).read_bytes() == TWO
    site.opened(life="3", given=False)
    assert site.published == ["one"]


def test_reading_again_takes_the_file_for_good(site: Installation) -> None:
    site.opened()
    site.apply(TWO)
    site.file.write_bytes(ONE + b"queue = 3\n")
    site.load_again()
    assert site.published == ["one"]
    site.opened()
    assert site.published == ["one"]


@pytest.mark.parametrize(
    "text",
    [
        b"[models.x",
        b"[models.x]\nruntime = 'ech'",
        b"[tenants.t.keys.k]\nkey_env = 'TIFFIN_TEST_NO_SUCH_VARIABLE'",
        b"[models.x]\nruntime='llamacpp'\nsources=['file:/x']\nsha256='" + b"a" * 64 + b"'",
    ],
    ids=["syntax", "type", "key", "source"],
)
def test_what_cannot_be_used_changes_nothing(site: Installation, text: bytes) -> None:
    office = site.opened()
    with pytest.raises(ConfigInvalid):
        site.apply(text)
    assert site.published == ["one"]
    assert not site.folder.applied.exists()
    assert office.fault == ""


def test_what_cannot_be_kept_changes_nothing(site: Installation) -> None:
    site.opened()
    site.folder.applied.with_name("applied.toml.tmp").mkdir()
    with pytest.raises(Unavailable, match="can't be kept"):
        site.apply(TWO)
    assert site.published == ["one"]


def test_a_file_that_broke_leaves_the_last_snapshot(site: Installation) -> None:
    site.opened()
    site.file.write_bytes(b"broken")
    office = site.opened(life="2")
    assert site.published == ["one"]
    assert "can't be used" in office.fault
    site.file.write_bytes(ONE)
    site.load_again()
    assert office.fault == ""


async def test_a_file_that_broke_is_refused_when_it_is_read_again(site: Installation) -> None:
    office = site.opened()
    site.file.write_bytes(b"broken")
    with pytest.raises(ConfigInvalid):
        await site.changing.load_again("somebody")
    assert site.published == ["one"]
    assert "refused" in office.fault


def test_nothing_to_serve_is_no_start(site: Installation) -> None:
    site.file.write_bytes(b"broken")
    with pytest.raises(ConfigInvalid):
        site.opened()


def test_a_snapshot_that_cannot_be_written_is_written_later(site: Installation) -> None:
    blocked = site.folder.snapshot.with_name("snapshot.json.tmp")
    blocked.mkdir()
    office = site.opened()
    assert site.published == []
    with pytest.raises(Unavailable):
        office.refresh()
    blocked.rmdir()
    office.refresh()
    assert site.published == ["one"]


def test_a_key_that_cannot_be_left_for_gateways_is_left_later(site: Installation) -> None:
    site.file.write_bytes(
        b"[models.cloud]\nruntime = 'remote'\nurl = 'http://h/v1'\n"
        b"key_command = ['/bin/echo', 'a-key']\n"
    )
    blocked = site.folder.run / "upstream-cloud.key.tmp"
    blocked.mkdir()
    office = site.opened()
    assert site.published == []
    assert "cloud" in office.config.models
    blocked.rmdir()
    office.refresh()
    assert site.published == ["cloud"]
    assert (site.folder.run / "upstream-cloud.key").read_text() == "a-key"


def test_two_lives_of_one_number_differ() -> None:
    import os

    assert life_of(os.getpid()) == life_of(os.getpid())
    assert life_of(os.getpid()) != life_of(os.getppid())


def test_changes_are_named_by_path() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": [1]}
    after = {"a": {"b": 1, "c": 3}, "d": [1, 2], "e": {}}
    assert list(changed(before, after)) == ["a.c", "d", "e"]


def state_of(site: Installation, model: str) -> tuple[str, str, int]:
    """The state of a published model's target, its reason, and how many replicas are to run."""
    snapshot = Publisher(site.folder.snapshot).current
    assert snapshot is not None
    target = snapshot.plans[model].targets[0]
    return target.state, target.reason, len(snapshot.deployments)


def test_an_unloaded_model_stays_so_over_restarts_until_it_is_loaded(site: Installation) -> None:
    told = site.opened().unload("one", "we need the memory")
    assert (told.model, told.loaded, told.number) == ("one", False, 2)
    assert state_of(site, "one") == ("unloaded", "we need the memory", 0)
    office = site.opened(life="2")
    assert state_of(site, "one") == ("unloaded", "we need the memory", 0)
    assert office.load("one").loaded
    assert state_of(site, "one") == ("ready-to-run", "", 1)
    assert office.load("one").number == 3  # it ran already


def test_what_is_not_a_model_cannot_be_unloaded(site: Installation) -> None:
    with pytest.raises(ModelNotFound, match="'two'"):
        site.opened().unload("two", "why not")


def test_what_cannot_be_kept_does_not_happen(site: Installation) -> None:
    office = site.opened()
    (site.folder.root / "unloaded.json.tmp").mkdir()
    with pytest.raises(Unavailable, match="can't be kept"):
        office.unload("one", "why not")
    assert state_of(site, "one")[0] == "ready-to-run"


def test_a_broken_note_of_what_is_unloaded_loads_everything(site: Installation) -> None:
    site.folder.unloaded.write_text("{")
    site.opened()
    assert state_of(site, "one")[0] == "ready-to-run"


def test_a_restart_is_counted_on_disk_and_makes_other_replicas(site: Installation) -> None:
    office = site.opened()
    before = Publisher(site.folder.snapshot).current
    assert before is not None
    office.restart("one")
    after = Publisher(site.folder.snapshot).current
    assert after is not None
    assert [one.name for one in after.deployments] != [one.name for one in before.deployments]
    site.opened()
    assert Publisher(site.folder.snapshot).current == after, "it isn't done again"
    with pytest.raises(ModelNotFound):
        office.restart("two")


def test_what_runs_is_published_when_it_changes_and_at_no_other_time(site: Installation) -> None:
    office = site.opened()
    first = Publisher(site.folder.snapshot).current
    assert first is not None
    names = frozenset(one.name for one in first.deployments)
    site.observed = Observed(names, names)
    office.restart("one")
    both = Publisher(site.folder.snapshot).current
    assert both is not None
    assert set(both.coming) == {"one"}
    office.observe()
    assert Publisher(site.folder.snapshot).current == both
    everybody = frozenset(one.name for one in both.deployments)
    site.observed = Observed(everybody, everybody)
    office.observe()
    switched = Publisher(site.folder.snapshot).current
    assert switched is not None
    assert (switched.coming, set(switched.leaving)) == ({}, set(names))
