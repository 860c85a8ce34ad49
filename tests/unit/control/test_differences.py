"""What two configurations have that the other hasn't, and what of it is tighter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.control.differences import Change, Leaves, compared, differences, tighter

TENANT = "[tenants.a.limits]\n"
RATE = "requests_per_minute = 9\n"
PRICED = "[[prices.machines]]\nname = 'n'\nhourly = '3'\nsince = '2026-01-01'\n"
SOFT = PRICED + "[tenants.a.budgets.b]\namount = '5'\n"
KEY = "[tenants.a.keys.k]\nkey_sha256 = '" + 64 * "0" + "'\n"


def config(text: str) -> Config:
    return load_text(text.encode(), {}).config


def found(before: str, after: str) -> list[Change]:
    """What differs; leaving out what is the same makes no difference to it."""
    was, now = config(before), config(after)
    changes, less = compared(was, now)
    assert changes == differences(Leaves(was), Leaves(now))
    assert less == tighter(Leaves(was), Leaves(now))
    return changes


def bounds(before: str, after: str) -> list[str]:
    return compared(config(before), config(after))[1]


def test_settings_are_told_with_what_they_are_and_would_be() -> None:
    before = "[server]\nport = 1\n[models.one]\nruntime = 'echo'\nslots = 2\n"
    after = "[models.two]\nruntime = 'echo'\n[server]\nport = 2\n"
    assert found(before, after) == [
        Change(path="server.port", kind="changed", was=1, now=2),
        Change(path="models.one.runtime", kind="removed", was="echo"),
        Change(path="models.one.slots", kind="removed", was=2),
        Change(path="models.two.runtime", kind="added", now="echo"),
    ]


def test_an_empty_section_counts_as_one() -> None:
    assert found("[tenants.a]", "[tenants.b]") == [
        Change(path="tenants.a", kind="removed", was={}),
        Change(path="tenants.b", kind="added", now={}),
    ]


def test_another_kind_of_model_is_told_by_its_runtime() -> None:
    remote = "[models.m]\nruntime = 'remote'\nurl = 'http://h/v1'\n"
    assert found("[models.m]\nruntime = 'echo'\n", remote) == [
        Change(path="models.m.queue", kind="changed", was=64, now=256),
        Change(path="models.m.runtime", kind="changed", was="echo", now="remote"),
        Change(path="models.m.tools", kind="changed", was=False, now=True),
        Change(path="models.m.url", kind="added", now="http://h/v1"),
    ]


def test_secrets_are_not_told() -> None:
    before = "[tenants.a.keys.k]\nkey_command = ['/bin/get', '--token=one']\n"
    [change] = found(before, before.replace("one", "two"))
    assert (change.was, change.now) == (["/bin/get", "***"], ["/bin/get", "***"])


def test_limits_are_told_as_in_a_file() -> None:
    rule = 'rules = [{ of = "tokens", amount = 5, per = "day" }]\n'
    [change] = found(TENANT, TENANT + rule)
    assert change.now == [{"of": "tokens", "amount": 5.0, "per": "day"}]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("[server]\nmax_in_flight = 9\n", "[server]\nmax_in_flight = 8\n", "server.max_in_flight"),
        (TENANT, TENANT + "concurrency = 3\n", "tenants.a.limits.concurrency"),
        (
            TENANT + "concurrency = 4\n",
            TENANT + "concurrency = 3\n",
            "tenants.a.limits.concurrency",
        ),
        (
            TENANT,
            TENANT + "per_request = { images = 0 }\n",
            "tenants.a.limits.per_request.images",
        ),
        (
            TENANT + "per_request = { images = 2 }\n",
            TENANT + "per_request = { images = 1 }\n",
            "tenants.a.limits.per_request.images",
        ),
        (KEY, KEY + "endpoints = ['chat']\n", "tenants.a.keys.k.endpoints"),
        (KEY, "[tenants.a]\n", "tenants.a.keys.k"),
        (
            TENANT + 'rules = [{ of = "tokens", amount = 5, per = "day" }]\n',
            TENANT + 'rules = [{ of = "tokens", amount = 4, per = "day" }]\n',
            "tenants.a.limits.rules",
        ),
        (SOFT, SOFT + "hard = true\n", "tenants.a.budgets.b.hard"),
        (PRICED + KEY, SOFT + "hard = true\n" + KEY, "tenants.a.budgets.b.hard"),
        (
            SOFT + "hard = true\n",
            SOFT.replace("5", "4.5") + "hard = true\n",
            "tenants.a.budgets.b.amount",
        ),
    ],
    ids=[
        "server",
        "first",
        "less",
        "cap",
        "lower cap",
        "scope",
        "gone",
        "rule",
        "hard",
        "new",
        "amount",
    ],
)
def test_what_lets_less_through_is_tighter_and_the_way_back_is_not(
    before: str, after: str, path: str
) -> None:
    assert bounds(before, after) == [path]
    assert bounds(after, before) == []


def test_a_budget_that_refuses_nothing_is_not_tighter() -> None:
    assert bounds(PRICED + KEY, SOFT + KEY) == []
    assert bounds(PRICED, SOFT + "hard = true\n") == []  # of nobody who was there


def test_a_shadow_is_not_tighter() -> None:
    rule = 'rules = [{ of = "tokens", amount = 5, per = "day", shadow = true }]\n'
    assert bounds(TENANT, TENANT + rule) == []


@given(st.integers(0, 9), st.integers(0, 9))
def test_of_two_rates_one_is_tighter_unless_they_are_equal(one: int, other: int) -> None:
    texts = [f"{TENANT}requests_per_minute = {rate}\n" for rate in (one, other)]
    there, back = bounds(*texts), bounds(*reversed(texts))
    assert len(there) + len(back) == (one != other)
