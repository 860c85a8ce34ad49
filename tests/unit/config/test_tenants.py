"""Tenants, projects and keys in the configuration, and what a snapshot has of them."""

from datetime import UTC, datetime

import pytest

from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.config.tenants import moment_of, nanoseconds
from tiffin.control.tenants.published import principals, residency, tenant_limits, terms
from tiffin.control.tenants.registry import Made
from tiffin.errors import ConfigInvalid
from tiffin.types.keyring import MadeProject, MadeTenant
from tiffin.types.snapshot import Limits

TEXT = """
[server]
region = "in"
[tenants.shop]
weight = 2.0
[tenants.shop.limits]
concurrency = 9
[tenants.shop.keys.web]
key_env = "WEB"
[tenants.shop.projects.search.limits]
concurrency = 3
[tenants.shop.projects.search.keys.nightly]
key_env = "NIGHTLY"
role = "viewer"
endpoints = ["chat"]
tools = false
data_class = "internal"
region = "in"
expires = 2027-01-31T18:00:00+05:30
"""


def config(text: str) -> Config:
    return load_text(text.encode(), {}).config


def test_a_key_s_principal_has_all_that_its_section_says() -> None:
    found = principals(config(TEXT), {"d": ("shop", "nightly"), "e": ("shop", "web")})
    nightly = found["d"]
    assert (nightly.project, nightly.role, nightly.admin) == ("search", "viewer", False)
    assert (nightly.endpoints, nightly.tools) == (("chat",), False)
    assert (nightly.data_class, nightly.region) == ("internal", "in")
    assert moment_of(nightly.expires_ns) == datetime(2027, 1, 31, 12, 30, tzinfo=UTC)
    assert (found["e"].project, found["e"].expires_ns) == ("", 0)


def test_moments_are_nanoseconds_and_back() -> None:
    moment = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
    assert moment_of(nanoseconds(moment)) == moment
    assert (nanoseconds(None), moment_of(0)) == (0, None)


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("expires = 2027-01-31", "expires", "with a zone"),
        ("expires = 2027-01-31T00:00:00", "expires", "with a zone"),
        ('role = "boss"', "role", "tenant-admin"),
        ('admin = true\nrole = "viewer"', "role", "admin = true"),
        ('endpoints = ["chatt"]', "endpoints[0]", "chat"),
        ('data_class = "secret"', "data_class", "restricted"),
        ('region = "In dia"', "region", "lower-case"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(text: str, where: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said) as refused:
        config(f'[tenants.a.keys.k]\nkey_env = "K"\n{text}\n')
    assert refused.value.where == f"tenants.a.keys.k.{where}"


def test_a_key_s_name_is_its_own_in_the_whole_tenant() -> None:
    text = '[tenants.a.keys.k]\nkey_env = "K"\n[tenants.a.projects.p.keys.k]\nkey_env = "L"\n'
    with pytest.raises(ConfigInvalid, match="has this name") as refused:
        config(text)
    assert refused.value.where == "tenants.a.projects.p.keys.k"


def test_tenants_of_both_owners_are_published_without_those_that_were_closed() -> None:
    made = Made(
        {
            "acme": MadeTenant(name="acme", weight=3.0, limits=Limits(concurrency=1)),
            "late": MadeTenant(name="late", suspended=True),
            "gone": MadeTenant(name="gone", closed=True),
        },
        {("shop", "mine"): MadeProject(tenant="shop", name="mine", limits=Limits(concurrency=2))},
    )
    found = terms(config(TEXT), made)
    assert {name: one.weight for name, one in found.items()} == {
        "shop": 2.0,
        "acme": 3.0,
        "late": 1.0,
    }
    assert found["late"].suspended
    assert {n: one.concurrency for n, one in found["shop"].projects.items()} == {
        "mine": 2,
        "search": 3,
    }
    limits = tenant_limits(config(TEXT), made)
    assert {name: one.concurrency for name, one in limits.items()} == {
        "shop": 9,
        "acme": 1,
        "late": 0,
    }


def test_a_model_is_where_it_says_and_what_runs_here_is_here() -> None:
    text = (
        '[server]\nregion = "in"\n[models.e]\nruntime = "echo"\n'
        '[models.r]\nruntime = "remote"\nurl = "https://x.example"\nregion = "us"\n'
        'data_class = "internal"\n'
    )
    assert residency("e", config(text)) == ("in", "restricted")
    assert residency("r", config(text)) == ("us", "internal")
