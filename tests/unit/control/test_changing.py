"""Taking configurations: looked at before, whole or not at all, and taken back."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.unit.control.installation import ONE, TWO, Installation
from tiffin.config.load import load_text
from tiffin.config.schema import Config, Server, Telemetry
from tiffin.control.changing import AT_START, only_at_start
from tiffin.control.history import MOST
from tiffin.control.preview import Move, Planned, moves
from tiffin.control.publish import Publisher
from tiffin.errors import ConfigInvalid, Unavailable
from tiffin.types.paths import history, one_before
from tiffin.types.snapshot import Target
from tiffin.types.tls import Tls

REMOTE = b"[models.r]\nruntime = 'remote'\nurl = 'http://h/v1'\nkey_command = ['/bin/cat', '%s']\n"


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "data")


def by_whom(site: Installation) -> list[tuple[int, str, bool]]:
    return [(one.number, one.by, one.in_force) for one in site.changing.history()]


async def test_a_preview_changes_nothing_and_says_what_would(site: Installation) -> None:
    office = site.opened()
    preview = await site.changing.preview(TWO)
    assert [change.path for change in preview.changes] == [
        "server.port",
        "server.request_timeout_s",
        "models.one.runtime",
        "models.two.runtime",
    ]
    assert preview.models == [Move(model="one", what="stops"), Move(model="two", what="starts")]
    assert preview.tighter == ["server.request_timeout_s"]
    assert preview.restart == ["server.port"]
    assert site.published == ["one"]
    assert not site.folder.applied.exists()
    assert len(by_whom(site)) == 1
    assert office.fault == ""
    assert site.apply(TWO).config_hash == preview.config_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE, []),
        (ONE + b"slots = 2\n", [Move(model="one", what="rolls")]),
        (ONE + b"replicas = 2\n", [Move(model="one", what="scales", why="1 → 2 replicas")]),
        (ONE + b"timeout_s = 2\n", []),
    ],
    ids=["same", "settings", "replicas", "around"],
)
async def test_what_becomes_of_models_is_told(
    site: Installation, text: bytes, expected: list[Move]
) -> None:
    site.opened()
    assert (await site.changing.preview(text)).models == expected


def test_a_model_whose_files_are_not_here_starts_later() -> None:
    planned = Planned(Target(model="m", revision="r", kind="llm", state="fetching"))
    [move] = moves({}, {"m": planned})
    assert (move.model, move.what) == ("m", "fetches")


async def test_a_preview_of_what_cannot_be_taken_says_why(site: Installation) -> None:
    site.opened()
    with pytest.raises(ConfigInvalid, match="exit code 1"):
        await site.changing.preview(b"[tenants.t.keys.k]\nkey_command = ['/bin/false']")


async def test_the_one_before_comes_back_and_the_one_before_that(site: Installation) -> None:
    site.opened()
    site.apply(TWO, "alice")
    await site.changing.apply(0, "bob")
    assert site.published == ["one"]
    await site.changing.apply(0, "bob")
    assert site.published == ["two"]
    await site.changing.apply(1, "carol")
    assert site.published == ["one"]
    assert by_whom(site) == [
        (5, "carol", True),
        (4, "bob", False),
        (3, "bob", False),
        (2, "alice", False),
        (1, AT_START, False),
    ]
    site.opened()
    assert site.published == ["one"], "it outlives control"
    assert len(by_whom(site)) == 5


async def test_the_starters_configuration_comes_back_too(site: Installation) -> None:
    site.opened(given=False)
    site.apply(TWO)
    await site.changing.apply(0, "bob")
    assert site.published == []
    assert not site.folder.applied.exists()
    assert one_before(site.folder.applied).read_bytes() == TWO


async def test_what_is_not_kept_cannot_come_back(site: Installation) -> None:
    site.opened()
    with pytest.raises(ConfigInvalid, match="no configuration before this one"):
        await site.changing.apply(0, "bob")
    with pytest.raises(ConfigInvalid, match="no configuration 7 is kept; there are: 1"):
        await site.changing.preview(7)


def test_only_the_last_are_kept_and_only_their_owner_reads_them(site: Installation) -> None:
    site.opened()
    for slots in range(1, 2 * MOST):
        site.apply(ONE + b"slots = %d\n" % slots)
        site.apply(ONE + b"slots = %d\n" % slots)
    kept = sorted(history(site.folder).iterdir())
    assert len(kept) == MOST
    assert kept[-1].stem == f"{2 * MOST:06d}"
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    kept[0].write_text("{")
    assert len(site.changing.history()) == MOST - 1


@pytest.mark.parametrize(
    "blocked",
    [
        "snapshot.json.tmp",
        "history/000003.json.tmp",
        "applied.toml.tmp",
        "run/applied.for.tmp",
        "applied.previous.toml",
    ],
)
def test_where_a_later_step_fails_nothing_has_changed(site: Installation, blocked: str) -> None:
    office = site.opened()
    site.apply(TWO)
    (site.folder.root / blocked / "full").mkdir(parents=True)
    before = Publisher(site.folder.snapshot).current
    with pytest.raises(Unavailable):
        site.apply(ONE + b"slots = 7\n")
    assert Publisher(site.folder.snapshot).current == before
    assert site.folder.applied.read_bytes() == TWO
    assert sorted(office.config.models) == ["two"]
    assert [number for number, _, _ in by_whom(site)] == [2, 1]
    shutil.rmtree(site.folder.root / blocked)
    site.opened()
    assert site.published == ["two"]


def test_a_first_one_that_fails_leaves_none_behind(site: Installation) -> None:
    site.opened()
    site.folder.snapshot.with_name("snapshot.json.tmp").mkdir()
    with pytest.raises(Unavailable):
        site.apply(TWO)
    assert not site.folder.applied.exists()
    assert not (site.folder.run / "applied.for").exists()


def remote(site: Installation) -> tuple[str, int]:
    """The key that a gateway reads for the remote model, and the number that goes with it."""
    snapshot = Publisher(site.folder.snapshot).current
    assert snapshot is not None
    [target] = snapshot.plans["r"].targets
    path = Path(target.key_file)
    assert path.stat().st_mode & 0o077 == 0
    return path.read_text(), target.key_mark


async def test_keys_that_programs_print_are_renewed_and_kept_where_they_fail(
    site: Installation, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sk-1")
    site.opened()
    site.apply(REMOTE % bytes(secret))
    before, mark = remote(site)
    secret.write_text("sk-2")
    assert await site.changing.renew() == 1
    after, other_mark = remote(site)
    assert (before, after) == ("sk-1", "sk-2")
    assert mark != other_mark, "gateways see that it is another one"
    secret.unlink()
    with pytest.raises(ConfigInvalid, match=r"models\.r: /bin/cat failed"):
        await site.changing.renew()
    assert remote(site) == (after, other_mark)
    site.apply(ONE)
    assert list(site.folder.run.glob("*.key")) == []
    assert await site.changing.renew() == 0


async def test_one_change_comes_after_the_other(site: Installation) -> None:
    site.opened()
    wanted = [ONE + b"slots = %d\n" % slots for slots in range(1, 6)]
    done = await asyncio.gather(*(site.changing.apply(text, "many") for text in wanted))
    assert [one.number for one in done] == [2, 3, 4, 5, 6]
    assert site.folder.applied.read_bytes() == wanted[-1]


def test_certificates_are_followed_but_not_tls_itself() -> None:
    plain, one = Server(), Server(tls=Tls(certificate="/one", key_file="/k"))
    two = Config(server=Server(tls=Tls(certificate="/two", key_file="/k")))
    assert only_at_start(two, (one, Telemetry())) == []
    assert "server.tls.certificate" in only_at_start(two, (plain, Telemetry()))
    assert load_text(b"", {}).config.server == plain


async def test_certificates_that_are_gone_refuse_a_change_but_not_a_start(
    site: Installation,
) -> None:
    tls = b"[server.tls]\ncertificate = '/no/such'\nkey_file = '/no/such'\n"
    site.file.write_bytes(ONE + tls)
    assert site.opened().fault == ""
    assert site.published == ["one"]
    with pytest.raises(ConfigInvalid, match="No such file"):
        await site.changing.apply(TWO.replace(b"[server]", tls + b"[server]"), "bob")
