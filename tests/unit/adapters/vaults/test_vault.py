"""Content at rest: readable with its tenant's key under its label, and by nothing else."""

import base64
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.vaults.envelope import LOOK_EVERY_S, EnvelopeVault
from tiffin.adapters.vaults.keyring import Keyring
from tiffin.adapters.vaults.masters import Master, Masters, master, own_master
from tiffin.app.masters import masters as masters_of
from tiffin.config.vault import MasterKey, Vault
from tiffin.errors import ConfigInvalid, NotFound, Unavailable
from tiffin.ports.vault import Label
from tiffin.testing.clock import FakeClock

LABEL = Label("acme", "idempotency", "one")
SECRET = b"what nobody else may read"


class Safe:
    """Keyrings and vaults of one folder, with master keys that a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.masters = [master(secrets.token_hex(32), "test")]

    def keyring(self) -> Keyring:
        return Keyring(self.folder, Masters(lambda: list(self.masters)))

    def vault(self) -> EnvelopeVault:
        return EnvelopeVault(self.keyring(), self.clock.monotonic)


@pytest.fixture
def safe(tmp_path: Path) -> Safe:
    return Safe(tmp_path / "vault")


def test_what_was_sealed_opens_in_any_process_with_the_master_key(safe: Safe) -> None:
    sealed = safe.vault().seal(LABEL, SECRET)
    assert safe.vault().open(LABEL, sealed) == SECRET
    assert SECRET not in sealed


@pytest.mark.parametrize(
    "other",
    [
        Label("b", "idempotency", "one"),
        Label("acme", "response", "one"),
        Label("acme", "idempotency", "two"),
        Label("acme", "idempotencyone", ""),
    ],
    ids=["tenant", "purpose", "id", "run together"],
)
def test_under_another_label_it_doesnt_open(safe: Safe, other: Label) -> None:
    vault = safe.vault()
    vault.prepare("b")
    sealed = vault.seal(LABEL, SECRET)
    with pytest.raises(NotFound):
        vault.open(other, sealed)


@given(at=st.integers(0, 2000), bit=st.integers(0, 7))
def test_what_was_changed_anywhere_doesnt_open(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    safe = Safe(tmp_path_factory.mktemp("safe"))
    vault = safe.vault()
    sealed = bytearray(vault.seal(LABEL, SECRET))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises(NotFound):
        vault.open(LABEL, bytes(sealed))
    with pytest.raises(NotFound):
        vault.open(LABEL, bytes(sealed[: at % len(sealed)]))


def test_the_same_content_is_sealed_differently_each_time(safe: Safe) -> None:
    vault = safe.vault()
    assert len({vault.seal(LABEL, SECRET) for _ in range(50)}) == 50


def test_a_tenants_new_key_seals_what_is_new_and_the_old_one_opens_what_is_old(safe: Safe) -> None:
    vault = safe.vault()
    old = vault.seal(LABEL, SECRET)
    safe.keyring().rotate("acme")
    assert vault.ready("acme")
    safe.clock.advance(LOOK_EVERY_S)
    assert not vault.ready("acme")
    vault.prepare("acme")
    new = vault.seal(LABEL, SECRET)
    assert old[1:13] != new[1:13]
    assert vault.open(LABEL, old) == vault.open(LABEL, new) == SECRET


def test_what_another_process_sealed_with_a_newer_key_opens_at_once(safe: Safe) -> None:
    vault = safe.vault()
    vault.seal(LABEL, SECRET)
    safe.keyring().rotate("acme")
    assert vault.open(LABEL, safe.vault().seal(LABEL, SECRET)) == SECRET


def test_a_new_master_key_wraps_all_anew_and_nothing_is_unreadable_meanwhile(safe: Safe) -> None:
    vault, labels = safe.vault(), [Label(f"t{n}", "p", "i") for n in range(5)]
    sealed = {label: vault.seal(label, SECRET) for label in labels}
    old, new = safe.masters[0], master(secrets.token_hex(32), "test")
    safe.masters = [new, old]
    assert [safe.vault().open(label, sealed[label]) for label in labels] == [SECRET] * 5
    assert safe.keyring().rewrap() == 5
    assert safe.keyring().rewrap() == 0
    safe.masters = [new]
    assert [safe.vault().open(label, sealed[label]) for label in labels] == [SECRET] * 5
    safe.masters = [old]
    with pytest.raises(Unavailable, match=new.id):
        safe.vault().open(labels[0], sealed[labels[0]])


def test_a_process_that_runs_finds_a_new_master_key_when_it_needs_it(safe: Safe) -> None:
    vault = safe.vault()
    vault.prepare("acme")
    safe.masters = [master(secrets.token_hex(32), "test"), *safe.masters]
    label = Label("b", "p", "i")
    sealed = safe.vault().seal(label, SECRET)
    assert vault.open(label, sealed) == SECRET


def test_a_process_that_runs_reads_on_when_keys_are_wrapped_by_a_master_key_it_doesnt_know(
    safe: Safe,
) -> None:
    vault = safe.vault()
    sealed = vault.seal(LABEL, SECRET)
    other = Safe(safe.folder)
    other.masters += safe.masters
    assert other.keyring().rewrap() == 1
    safe.clock.advance(LOOK_EVERY_S)
    vault.prepare("acme")
    assert vault.open(LABEL, sealed) == vault.open(LABEL, vault.seal(LABEL, SECRET)) == SECRET
    other.keyring().erase("acme")
    safe.clock.advance(LOOK_EVERY_S)
    with pytest.raises(NotFound):
        vault.open(LABEL, sealed)


def test_an_erased_tenants_content_is_gone_and_it_can_begin_again(safe: Safe) -> None:
    vault, kept = safe.vault(), Label("b", "p", "i")
    sealed, other = vault.seal(LABEL, SECRET), vault.seal(kept, SECRET)
    assert safe.keyring().erase("acme") == 1
    assert safe.keyring().erase("acme") == 0
    with pytest.raises(NotFound, match="destroyed"):
        safe.vault().open(LABEL, sealed)
    safe.clock.advance(LOOK_EVERY_S)
    with pytest.raises(NotFound, match="destroyed"):
        vault.open(LABEL, sealed)
    assert vault.open(LABEL, vault.seal(LABEL, SECRET)) == SECRET
    assert vault.open(kept, other) == SECRET


def test_keys_lie_where_only_we_can_read_and_never_bare(safe: Safe) -> None:
    safe.vault().prepare("acme")
    own_master(safe.folder / "master")
    for path in [safe.folder, *safe.folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    (found,) = safe.keyring().census()["acme"]
    assert found.master == safe.masters[0].id
    assert len(found.wrapped) == 12 + 32 + 16


def test_a_damaged_key_says_whose_it_is_and_stops_nothing_else(safe: Safe) -> None:
    safe.vault().prepare("acme")
    (path,) = safe.folder.rglob("*.json")
    path.write_bytes(path.read_bytes()[:-9] + b"xx" + path.read_bytes()[-7:])
    with pytest.raises(Unavailable, match="'acme'"):
        safe.vault().prepare("acme")
    safe.vault().prepare("b")


def test_our_own_master_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "vault" / "master"
    assert own_master(path) == own_master(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["master"]


@pytest.mark.parametrize("write", [bytes.hex, lambda key: base64.b64encode(key).decode()])
def test_a_master_key_is_hexadecimal_or_base64(write: Callable[[bytes], str]) -> None:
    key = os.urandom(32)
    assert master(write(key), "x").key == key


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, "ab" * 31, base64.b64encode(b"x" * 31)])
def test_what_is_no_master_key_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"server\.vault: .*openssl rand -hex 32"):
        master(str(text), "server.vault")


def test_masters_come_from_where_the_settings_say(tmp_path: Path) -> None:
    new, old = secrets.token_hex(32), secrets.token_hex(32)
    (tmp_path / "new").write_text(new + "\n")
    (tmp_path / "old").write_text(old)
    settings = Vault(
        key_file=str(tmp_path / "new"), previous=MasterKey(key_file=str(tmp_path / "old"))
    )
    found = masters_of(tmp_path / "vault", settings)
    assert [one.key.hex() for one in found] == [new, old]
    assert not (tmp_path / "vault").exists()
    own: list[Master] = masters_of(tmp_path / "vault", Vault())
    assert own[0] == masters_of(tmp_path / "vault", settings)[2]
    with pytest.raises(ConfigInvalid, match=r"server\.vault"):
        masters_of(tmp_path, Vault(key_env="TIFFIN_TEST_NO_SUCH_KEY"))


def test_a_key_that_there_is_no_room_for_leaves_nothing_behind(
    safe: Safe, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe.keyring().rotate("acme")
    before = set(safe.folder.rglob("*"))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(3):
            with pytest.raises(Unavailable, match="No space left"):
                safe.keyring().rotate("acme")
    assert set(safe.folder.rglob("*")) == before


def test_erasing_that_was_interrupted_is_finished_by_the_next(
    safe: Safe, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in ("acme", "other"):
        safe.keyring().rotate(tenant)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        safe.keyring().rotate("acme")
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", killed)
            with pytest.raises(KeyboardInterrupt):
                safe.keyring().erase("acme")
    assert list(safe.keyring().census()) == ["other"]
    assert safe.keyring().erase("acme") == 3
    [left] = safe.folder.rglob("*.json")
    assert list(safe.keyring().census()) == ["other"]
    assert left.parent.parent == safe.folder


def test_wrapping_anew_removes_what_the_dead_left_and_nothing_that_is_being_written(
    safe: Safe,
) -> None:
    safe.keyring().rotate("acme")
    [key] = safe.folder.rglob("*.json")
    old, new = key.with_suffix(".old.tmp"), key.with_suffix(".new.tmp")
    erased = key.parent.with_name(key.parent.name + ".00.erased")
    erased.mkdir()
    for path in (old, new, erased / "one.json"):
        path.touch()
    os.utime(old, (0, 0))
    safe.keyring().rewrap()
    assert {path for path in safe.folder.rglob("*") if path.is_file()} == {key, new}
    assert not erased.exists()
