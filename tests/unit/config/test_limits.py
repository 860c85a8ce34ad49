"""Limits that make no sense, or can't be enforced, stop the start and say what to mend."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.errors import ConfigInvalid

BASE = f"""
[tenants.shop]
[tenants.shop.keys.web]
key_sha256 = "{"0" * 64}"
[tenants.shop.projects.app.keys.app]
key_sha256 = "{"1" * 64}"
[models.chat]
runtime = "echo"
"""
PRICES = """
[[prices.models]]
model = "chat"
input = "1"
since = "2026-01-01"
"""


def rules(*lines: str, where: str = "tenants.shop") -> str:
    """Each line as a rule of a section."""
    head = f"[[{where}.limits.rules]]\n"
    return "".join(head + line.replace("; ", "\n") + "\n" for line in lines)


def load(text: str, prices: str = PRICES) -> Config:
    return load_text((BASE + prices + text).encode(), {}).config


def test_every_kind_of_limit_at_every_level_is_understood() -> None:
    config = load(
        rules(
            'of = "tokens"; amount = 1000; per = "minute"; burst = 10; models = ["chat"]',
            'of = "money"; amount = 0.25; per = "month"',
            'of = "concurrency"; amount = 2; each = "end_user"; shadow = true',
        )
        + rules('of = "pages"; amount = 5; per = "day"', where="tenants.shop.keys.web")
    )
    assert len(config.tenants["shop"].limits.rules) == 3
    assert config.tenants["shop"].keys["web"].limits.rules[0].of == "pages"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('of = "tokens"; amount = 5', "rules[0].per: missing, expected second, minute"),
        (
            'of = "tokens"; amount = 0.5; per = "day"',
            "rules[0].amount: found 0.5, expected a whole",
        ),
        ('of = "tokens"; amount = 0; per = "day"', "rules[0].amount: found 0, expected a number"),
        ('of = "tokens"; amount = 1; per = "year"', "rules[0].per: found"),
        ('of = "cats"; amount = 1; per = "day"', "rules[0].of: found"),
        ('of = "tokens"; amount = 1; per = "day"; burst = 5', "rules[0].burst: only a rate"),
        ('of = "concurrency"; amount = 1; per = "day"', "rules[0].per: concurrency has no time"),
        ('of = "money"; amount = 1e-13; per = "day"', "rules[0].amount: 1e-13 isn't a whole"),
        ('of = "requests"; amount = 1; per = "day"; each = "key"; models = ["cat"]', "no model or"),
        ('of = "requests"; amount = 1; per = "day"; each = "tenant"', "rules[0].each: found"),
        (
            'of = "tokens"; amount = 1; per = "day"; without_store = "local"',
            'rules[0].without_store: found "local", and there is no store',
        ),
    ],
)
def test_what_makes_no_sense_is_told_by_its_place(line: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load(rules(line))
    assert message in str(refused.value)


def test_the_same_twice_is_refused_and_a_shadow_beside_is_not() -> None:
    one, other = 'of = "tokens"; amount = 5; per = "day"', 'of = "tokens"; amount = 6; per = "day"'
    with pytest.raises(ConfigInvalid, match=r"rules\[1\]: says of the same what"):
        load(rules(one, other))
    load(rules(one, other + "; shadow = true"))
    short = "[tenants.shop.limits]\nrequests_per_minute = 5\n"
    line = 'of = "requests"; amount = 5; per = "minute"'
    with pytest.raises(ConfigInvalid, match="requests_per_minute says; leave one"):
        load(short + rules(line))


def test_a_key_has_no_keys_and_money_needs_prices() -> None:
    line = 'of = "tokens"; amount = 5; per = "day"; each = "key"'
    with pytest.raises(ConfigInvalid, match='of a key it can be "end_user"'):
        load(rules(line, where="tenants.shop.projects.app.keys.app"))
    with pytest.raises(ConfigInvalid, match="money can't be counted"):
        load(rules('of = "money"; amount = 5; per = "day"'), prices="")


CLOUD = """
[models.cloud]
runtime = "remote"
url = "http://127.0.0.1:9/v1"
[routes.best]
models = ["chat", "cloud"]
"""
MONEY = 'of = "money"; amount = 5; per = "day"'


@pytest.mark.parametrize("where", ["tenants.shop", "tenants.shop.projects.app.keys.app"])
@pytest.mark.parametrize("models", ["", '; models = ["best"]'], ids=["all", "a route"])
def test_money_isnt_counted_of_what_has_no_price(where: str, models: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load(CLOUD + rules(MONEY + models, where=where))
    assert "rules[0].of: money can't be counted of" in str(refused.value)
    assert "[[prices.models]]" in str(refused.value)


def test_money_is_counted_where_what_has_no_price_isnt_used_or_is_said_to_be_free() -> None:
    load(CLOUD + rules(MONEY + '; models = ["chat"]'))
    load(CLOUD + rules(MONEY), PRICES + '[[prices.models]]\nmodel="cloud"\nsince="2026-01-01"\n')
    only = '[tenants.shop.keys.two]\nkey_sha256 = "%s"\nmodels = ["chat"]\n' % ("2" * 64)
    load(CLOUD + only + rules(MONEY, where="tenants.shop.keys.two"))


@pytest.mark.parametrize(
    ("devices", "accelerators", "counts"),
    [('"auto"', 0, True), ('"auto"', 1, True), ('"cpu"', 1, False), ('["cuda:0"]', 0, False)],
)
def test_a_machine_that_a_model_computes_on_gives_it_a_price(
    devices: str, accelerators: int, counts: bool
) -> None:
    node = f"""
[[prices.machines]]
name = "node"
hourly = "9"
accelerators = {accelerators}
since = "2026-01-01"
"""
    text = f'[models.own]\nruntime = "echo"\ndevices = {devices}\n' + rules(MONEY)
    if counts:
        load(text, PRICES + node)
        return
    with pytest.raises(ConfigInvalid, match="money can't be counted of own"):
        load(text, PRICES + node)
