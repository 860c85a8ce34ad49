"""`tiffin vault`, on a data folder whose server may or may not run."""

import json
import secrets
from pathlib import Path

import pytest

from tests.unit.cli.test_commands import tiffin
from tiffin.app.vault import open_vault
from tiffin.config.load import load_text
from tiffin.errors import NotFound
from tiffin.ports.vault import Label, Vault
from tiffin.types.paths import DataFolder, vault

LABEL = Label("acme", "idempotency", "one")


class Place:
    """A folder with a configuration and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tiffin.toml"
        self.write("")

    def write(self, more: str) -> None:
        self.config.write_text(f'[server]\ndata = "{self.folder / "data"}"\n{more}')

    def vault(self) -> Vault:
        settings = load_text(self.config.read_bytes(), {}).config.server.vault
        return open_vault(vault(DataFolder(self.folder / "data")), settings)

    def says(self, *words: str, said: str = "") -> str:
        done = tiffin("vault", *words, cwd=self.folder, said=said)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_tenants_key_is_renewed_and_what_is_older_stays_readable(place: Place) -> None:
    sealed = place.vault().seal(LABEL, b"content")
    assert "acme has a new key" in place.says("rotate", "acme")
    told = json.loads(place.says("status", "--json"))
    assert len(told["tenants"]["acme"]) == 2
    assert place.vault().open(LABEL, sealed) == b"content"


def test_another_master_key_wraps_everything_anew(place: Place) -> None:
    sealed = place.vault().seal(LABEL, b"content")
    new = place.folder / "new-master"
    new.write_text(secrets.token_hex(32))
    place.write(f'[server.vault]\nkey_file = "{new}"\n')
    assert "tiffin vault rewrap" in place.says("status")
    assert place.says("rewrap").startswith("1 keys were wrapped")
    assert place.says("rewrap").startswith("0 keys were wrapped")
    (place.folder / "data" / "vault" / "master").unlink()
    assert "rewrap" not in place.says("status")
    assert place.vault().open(LABEL, sealed) == b"content"


def test_erasing_asks_first_and_is_for_ever(place: Place) -> None:
    sealed = place.vault().seal(LABEL, b"content")
    refused = tiffin("vault", "erase", "acme", cwd=place.folder, said="n\n")
    assert refused.returncode != 0
    assert place.vault().open(LABEL, sealed) == b"content"
    assert "1 keys of acme were destroyed" in place.says("erase", "acme", "--yes")
    with pytest.raises(NotFound):
        place.vault().open(LABEL, sealed)
    assert "acme had no keys" in place.says("erase", "acme", "--yes")


def test_a_master_key_that_isnt_there_is_named_by_its_setting(place: Place) -> None:
    place.write('[server.vault]\nkey_file = "/nowhere/master"\n')
    done = tiffin("vault", "status", cwd=place.folder)
    assert done.returncode == 1
    assert "server.vault: the key file /nowhere/master can't be read" in done.stderr
    served = tiffin("serve", "--port", "0", cwd=place.folder)
    assert served.returncode == 1
    assert "server.vault" in served.stderr
