"""What a fresh installation serves, and its key."""

import stat
from pathlib import Path

import pytest

from tiffin.app.starter import configuration, ensure_key, folder_of, starter_config
from tiffin.config.secrets import hashed, key_hashes
from tiffin.control.catalogue.starter import STARTER_MODELS
from tiffin.errors import ConfigInvalid
from tiffin.types.paths import DataFolder


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


def test_the_starter_serves_its_models_for_one_admin_key(folder: DataFolder) -> None:
    loaded = starter_config(folder, {})
    assert set(loaded.config.models) == set(STARTER_MODELS)
    key = ensure_key(folder, {})
    assert key_hashes(loaded.config, {}) == {hashed(key): ("starter", "main")}
    assert loaded.config.tenants["starter"].keys["main"].admin


def test_the_environment_can_change_the_starter(tmp_path: Path) -> None:
    environ = {"TIFFIN__MODELS__CHAT_TINY__SLOTS": "2", "TIFFIN__SERVER__DATA": str(tmp_path)}
    config = configuration(None, None, environ).config
    assert folder_of(config) == DataFolder(tmp_path)
    assert config.tenants["starter"].keys["main"].key_file == str(tmp_path / "key")


def test_a_file_is_used_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "tiffin.toml"
    path.write_text("[server]\nport = 1\n")
    assert configuration(path, None, {}).config.models == {}


def test_a_key_is_made_once_and_private(folder: DataFolder) -> None:
    key = ensure_key(folder, {})
    assert key.startswith("sk-tiffin-")
    assert ensure_key(folder, {}) == key
    assert stat.S_IMODE(folder.key.stat().st_mode) == 0o600
    assert [path.name for path in folder.root.iterdir()] == ["key"]


def test_the_environment_decides_the_key(folder: DataFolder) -> None:
    ensure_key(folder, {})
    assert ensure_key(folder, {"TIFFIN_API_KEY": "sk-mine-123"}) == "sk-mine-123"
    assert folder.key.read_text() == "sk-mine-123\n"
    assert stat.S_IMODE(folder.key.stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["short", "with a space in it", "schlüssel-123"])
def test_a_key_that_no_header_can_carry_is_refused(folder: DataFolder, key: str) -> None:
    with pytest.raises(ConfigInvalid, match="TIFFIN_API_KEY"):
        ensure_key(folder, {"TIFFIN_API_KEY": key})


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match="can't be used"):
        ensure_key(DataFolder(tmp_path / "file"), {})
