"""Several gateways and the store that they need."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.errors import ConfigInvalid


def config(text: str) -> Config:
    return load_text(text.encode(), {}).config


STORE = "[server.limit_store]\nurl = 'valkey://127.0.0.1:6379'\n"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("[server]\ngateways=2", "server.limit_store.url", "server.gateways is 2"),
        ("[server]\ngateways=0", "server.gateways", "0"),
        ("[server]\ngateways=17", "server.gateways", "17"),
        ("[server.limit_store]\nprefix='x'", "server.limit_store.url", "missing"),
        ("[server.limit_store]\nurl='http://h'", "server.limit_store.url", "valkey://"),
        ("[server.limit_store]\nurl='redis://u:p@h'", "server.limit_store.url", "no user"),
        (STORE + "key_env='A'\nkey_file='/a'", "server.limit_store", "one of"),
    ],
)
def test_several_gateways_need_a_store_that_can_be_reached(
    text: str, where: str, message: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        config(text)
    assert refused.value.where == where
    assert message in str(refused.value)


def test_with_a_store_limits_say_what_they_do_without_it() -> None:
    rule = "[[tenants.t.limits.rules]]\nof='tokens'\namount=1\nper='day'\nwithout_store='refuse'\n"
    got = config("[server]\ngateways=16\n" + STORE + "key_env='A'\n" + rule)
    assert got.server.gateways == 16
    assert got.server.limit_store.key_env == "A"
