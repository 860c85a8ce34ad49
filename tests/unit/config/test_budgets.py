"""Budgets and alerts in the configuration: what is refused, and what a hard one is to gateways."""

from pathlib import Path
from typing import Any

import pytest

from tiffin.config.load import Loaded, load_text
from tiffin.config.policy import effective
from tiffin.config.secrets import alert_keys, commands_of, unset_variables
from tiffin.control.publish import Shelf, Site, compose
from tiffin.errors import ConfigInvalid
from tiffin.types.limits import Rule
from tiffin.types.paths import DataFolder

PRICED = """
[models.echo]
runtime = "echo"

[[prices.models]]
model = "echo"
request = "1"
since = "2026-01-01"
"""
ALERT = '[alerts.ops]\nurl = "https://hooks.example.com/x"\nkey_env = "SIGNS"\n'


def loaded(text: str, before: str = PRICED) -> Loaded:
    return load_text((before + text).encode(), {})


def refused(text: str, before: str = PRICED) -> str:
    with pytest.raises(ConfigInvalid) as failure:
        loaded(text, before)
    return str(failure.value)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ('amount = "0"', "amount: expected more than 0"),
        ('amount = "1,5"', "a decimal number in quotes"),
        ("amount = 5", "a decimal number in quotes"),
        ('amount = "5"\ncurrency = "USD"', 'found "USD"; money is counted in the currency of'),
        ('amount = "5"\nthresholds = [50, 50]', "a threshold stands here twice"),
        ('amount = "5"\nthresholds = [0]', "thresholds[0]"),
        ('amount = "5"\nmodels = ["ecko"]', 'no model or route "ecko"; did you mean echo?'),
        ('amount = "5"\nper = "hour"', 'expected one of "day", "month"'),
        ('amount = "123456789012.123456"\nhard = true', "no more than 15 digits"),
    ],
)
def test_what_cant_be_meant_is_refused_by_name(budget: str, said: str) -> None:
    text = f"[tenants.t.budgets.b]\n{budget}\n"
    assert said in refused(text)
    assert "tenants.t.budgets.b" in refused(text)


def test_money_without_prices_cant_be_counted() -> None:
    text = '[tenants.t.budgets.b]\namount = "5"\n'
    assert "[prices] gives nothing a price" in refused(text, PRICED.partition("[[")[0])


def test_a_budget_that_covers_a_model_without_a_price_says_so() -> None:
    more = '[models.cloud]\nruntime = "remote"\nurl = "http://127.0.0.1:9/v1"\n'
    budget = '[tenants.t.budgets.b]\namount = "5"\nhard = true\n'
    assert "tenants.t.budgets.b: money can't be counted of cloud: add" in refused(more + budget)
    loaded(more + budget + 'models = ["echo"]\n')
    free = '[[prices.models]]\nmodel = "cloud"\nsince = "2026-01-01"\n'
    loaded(more + budget + free)


def test_two_that_refuse_by_the_same_are_refused() -> None:
    rule = '[[tenants.t.limits.rules]]\nof = "money"\namount = 3\nper = "day"\n'
    hard = '[tenants.t.budgets.{}]\namount = "5"\nper = "day"\nhard = {}\n'
    message = refused(rule + hard.format("a", "true"))
    assert "tenants.t.budgets.a: refuses by the same as tenants.t.limits.rules[0]" in message
    assert "tenants.t.budgets.a" in refused(hard.format("a", "true") + hard.format("b", "true"))
    assert loaded(rule + hard.format("a", "false") + hard.format("b", "false"))


def test_a_hard_budget_is_a_limit_that_gateways_hold_to(tmp_path: Path) -> None:
    given = loaded("""
[tenants.t.budgets.hard]
amount = "100.25"
hard = true

[tenants.t.budgets.soft]
amount = "50"

[tenants.t.projects.p.budgets.day]
amount = "3"
per = "day"
hard = true
models = ["echo"]

[tenants.t.projects.p.keys.k]
key_env = "K"
budgets = { mine = { amount = "2", hard = true } }
""")
    keys = {"0" * 64: ("t", "k")}
    snapshot = compose(given, keys, Shelf(), Site(DataFolder(tmp_path), 2), None, 0)
    assert snapshot.tenant_limits["t"].rules == (Rule(of="money", per="month", amount=100.25),)
    day = Rule(of="money", per="day", amount=3, models=("echo",))
    assert snapshot.tenants["t"].projects["p"].rules == (day,)
    assert snapshot.keys["0" * 64].limits.rules == (Rule(of="money", per="month", amount=2),)
    assert "tenants.t: 100.25 INR per month" in list(effective(given.config))


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        ('url = "https://h.example.com/"', "expected exactly one of key_env, key_file"),
        ('url = "ftp://h.example.com/"\nkey_env = "K"', "expected an address such as"),
        ('url = "https://u:p@h.example.com/"\nkey_env = "K"', "without user, password"),
        ('url = "https://h.example.com/?token=x"\nkey_env = "K"', "and query"),
        ('url = "https://h.example.com/"\nkey_env = "K"\nevents = []', "expected at least one"),
        ('url = "https://h.example.com/"\nkey_env = "K"\nevents = ["rain"]', "budget.threshold"),
        ('url = "https://h.example.com/"\nkey_file = "k"', "expected an absolute path"),
        (
            'url = "https://h.example.com/"\nkey_env = "K"\nevents = ["model.failed"]\n'
            'tenants = ["t"]',
            "only budgets and keys are a tenant's",
        ),
    ],
)
def test_an_alert_that_cant_be_sent_is_refused(alert: str, said: str) -> None:
    assert said in refused(f"[alerts.ops]\n{alert}\n")


def test_an_alerts_host_must_be_allowed() -> None:
    assert "alerts.ops.url: its host isn't in egress.allow" in refused(
        ALERT + '[egress]\nallow = ["other.example.com"]\n'
    )
    assert loaded(ALERT + '[egress]\nallow = ["*.example.com"]\n')


def test_an_alerts_key_is_a_reference() -> None:
    config: Any = loaded(ALERT).config
    assert alert_keys(config, {"SIGNS": "s"}) == {"ops": "s"}
    with pytest.raises(ConfigInvalid, match=r"alerts.ops: the environment variable SIGNS"):
        alert_keys(config, {})
    assert ("alerts.ops.key_env", "SIGNS") in list(unset_variables(config, {}))
    by_program = ALERT.replace('key_env = "SIGNS"', 'key_command = ["/bin/echo", "k"]')
    config = loaded(by_program).config
    assert commands_of(config) == [("/bin/echo", "k")]
    assert alert_keys(config, {}) == {"ops": "k"}
