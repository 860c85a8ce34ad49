"""The environment over the file."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.models import EchoModel
from tiffin.config.schema import Config
from tiffin.errors import ConfigInvalid

FILE = b"""
[models.chat-tiny]
runtime = "echo"
[tenants.t.keys.k]
key_env = "K"
"""


def with_environ(**environ: str) -> Config:
    return load_text(FILE, environ).config


def test_a_variable_wins_over_the_file() -> None:
    assert with_environ(TIFFIN__SERVER__PORT="9000").server.port == 9000


def test_a_variable_is_typed_as_its_setting_is() -> None:
    config = with_environ(
        TIFFIN__SERVER__HOST="0.0.0.0",
        TIFFIN__SERVER__DRAIN_S="2.5",
        TIFFIN__TENANTS__T__KEYS__K__ADMIN="true",
        TIFFIN__TENANTS__T__KEYS__K__MODELS="chat-tiny",
        TIFFIN__TENANTS__T__LIMITS__CONCURRENCY="7",
    )
    assert config.server.host == "0.0.0.0"
    assert config.server.drain_s == 2.5
    tenant = config.tenants["t"]
    assert tenant.keys["k"].admin is True
    assert tenant.keys["k"].models == ["chat-tiny"]
    assert tenant.limits.concurrency == 7


def test_a_text_stays_a_text_whatever_it_looks_like() -> None:
    assert with_environ(TIFFIN__SERVER__HOST="1").server.host == "1"


def test_names_of_the_file_are_found_without_case_and_dashes() -> None:
    model = with_environ(TIFFIN__MODELS__CHAT_TINY__SLOTS="2").models["chat-tiny"]
    assert isinstance(model, EchoModel)
    assert model.slots == 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TIFFIN__SERVER__PRT", "1", "did you mean port"),
        ("TIFFIN__SERVER__PORT", "many", 'found "many", expected an integer'),
        ("TIFFIN__SERVER__PORT", "", "expected an integer"),
        ("TIFFIN__SERVER", "1", "expected a section"),
        ("TIFFIN__SERVER__PORT__X", "1", "server.port"),
        ("TIFFIN__MODELS__NONE__SLOTS", "1", "no such setting: models.none"),
        ("TIFFIN__MODELS__CHAT_TINY__SLOTS", "0", "from 1"),
        ("TIFFIN__", "1", "no such setting"),
    ],
)
def test_a_variable_that_leads_nowhere_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as refused:
        with_environ(**{name: value})
    assert refused.value.where == name


def test_other_variables_are_nobodys_business() -> None:
    assert with_environ(TIFFIN_API_KEY="x", PATH="y") == with_environ()
