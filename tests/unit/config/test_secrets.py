"""Secrets by reference."""

import os
from pathlib import Path

import pytest

from tiffin.config.load import load_text
from tiffin.config.remote import RemoteModel, UpstreamKey
from tiffin.config.schema import Config
from tiffin.config.secrets import (
    MAX_FILE_BYTES,
    hashed,
    key_hashes,
    read_secret,
    unset_variables,
    upstream_keys,
)
from tiffin.errors import ConfigInvalid


def config(text: str) -> Config:
    return load_text(text.encode(), {}).config


def test_a_secret_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" sk-file \n")
    assert read_secret(env="K", environ={"K": " sk-env\n"}) == "sk-env"
    assert read_secret(file=str(file)) == "sk-file"
    assert read_secret() == ""


def test_a_reference_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigInvalid, match="variable K isn't set"):
        read_secret(env="K", environ={})
    with pytest.raises(ConfigInvalid, match="missing can't be read"):
        read_secret(file=str(tmp_path / "missing"))
    with pytest.raises(ConfigInvalid, match="empty is empty"):
        read_secret(file=str(tmp_path / "empty"))


def test_what_would_be_waited_for_or_never_end_is_no_key_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(ConfigInvalid, match=f"{path} can't be read: it is no regular file"):
            read_secret(file=path)
    with pytest.raises(ConfigInvalid, match="long can't be read: it is longer than"):
        read_secret(file=str(tmp_path / "long"))


def test_keys_are_known_by_their_hashes() -> None:
    got = key_hashes(
        config(
            f"[tenants.a.keys.one]\nkey_env='ONE'\n[tenants.b.keys.two]\nkey_sha256='{hashed('2')}'"
        ),
        {"ONE": "1"},
    )
    assert got == {hashed("1"): ("a", "one"), hashed("2"): ("b", "two")}


def test_one_key_has_one_owner() -> None:
    twice = config("[tenants.a.keys.one]\nkey_env='ONE'\n[tenants.b.keys.two]\nkey_env='TWO'")
    with pytest.raises(ConfigInvalid, match=r"same key as tenants\.a\.keys\.one") as refused:
        key_hashes(twice, {"ONE": "same", "TWO": "same"})
    assert refused.value.where == "tenants.b.keys.two"


def test_an_upstreams_key_must_be_there() -> None:
    remote = config("[models.m]\nruntime='remote'\nurl='https://host/v1'\nkey_env='CLOUD'")
    assert upstream_keys(remote, {"CLOUD": "sk"}) == {"m": "sk"}
    with pytest.raises(ConfigInvalid, match="CLOUD isn't set") as refused:
        upstream_keys(remote, {})
    assert refused.value.where == "models.m"


def test_a_key_that_cannot_be_read_is_named_by_its_path() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        key_hashes(config("[tenants.a.keys.one]\nkey_env='ONE'"), {})
    assert refused.value.where == "tenants.a.keys.one"


def test_variables_that_are_not_set_are_named() -> None:
    config = load_text(
        b"""
        [tenants.a.keys.k]
        key_env = "GIVEN"
        [tenants.a.keys.l]
        key_env = "NOT_GIVEN"
        [models.cloud]
        runtime = "remote"
        url = "https://host/v1"
        key_env = "NEITHER"
        """,
        {},
    ).config
    assert list(unset_variables(config, {"GIVEN": "sk-12345678"})) == [
        ("tenants.a.keys.l.key_env", "NOT_GIVEN"),
        ("models.cloud.key_env", "NEITHER"),
    ]


def test_several_keys_of_a_model_are_read_each_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("sk-2\n")
    keys = [UpstreamKey(key_env="ONE"), UpstreamKey(key_file=str(tmp_path / "two"))]
    found = Config(models={"m": RemoteModel(url="https://x/v1", keys=keys)})
    assert upstream_keys(found, {"ONE": "sk-1"}) == {"m#0": "sk-1", "m#1": "sk-2"}
    assert list(unset_variables(found, {})) == [("models.m.keys[0].key_env", "ONE")]
    with pytest.raises(ConfigInvalid, match=r"models\.m\.keys\[0\]"):
        upstream_keys(found, {})
