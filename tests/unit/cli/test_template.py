"""The template that `tiffin init` writes explains every setting, at its true default."""

import re
import tomllib

import msgspec
import pytest

from tiffin.cli import template
from tiffin.cli.reference import PARTS
from tiffin.config.schema import Config
from tiffin.control.catalogue.starter import STARTER_MODELS

SHOWN_AS_SECTIONS = {
    "server",
    "tls",
    "tenants",
    "models",
    "routes",
    "guards",
    "egress",
    "terms",
    "prices",
    "rates",
    "machines",
    "fixed",
    "credits",
    "plans",
    "telemetry",
    "keys",
    "projects",
    "limits",
    "per_request",
    "rules",
    "budgets",
    "alerts",
    "anomalies",
    "repetition",
    "growth",
    "enumeration",
    "extraction",
    "vault",
    "previous",
    "idempotency",
    "files",
    "decision",
    "steps",
    "semantic",
    "hedge",
    "slo",
    "cache",
    "revisions",
    "limit_store",
}


def at(tree: object, section: str) -> dict[str, object]:
    for name in re.findall(r'"[^"]+"|[^.]+', section):
        assert isinstance(tree, dict)
        tree = tree[name.strip('"')]
        tree = tree[-1] if isinstance(tree, list) else tree
    assert isinstance(tree, dict)
    return tree


def test_the_template_is_a_valid_configuration() -> None:
    config = msgspec.convert(tomllib.loads(template.text()), Config)
    assert set(config.models) == set(STARTER_MODELS)


def test_with_every_setting_switched_on_it_is_still_valid() -> None:
    config = msgspec.convert(template.tree(), Config)
    assert set(config.routes) == {"best"}


@pytest.mark.parametrize(
    ("struct", "heading", "section"), PARTS, ids=[p[1] or "top" for p in PARTS]
)
def test_every_setting_is_explained(
    struct: type[msgspec.Struct], heading: str, section: str
) -> None:
    explained = {item.name for item in template.settings() if item.section == section}
    explained |= {item.name for item in template.settings() if item.section == "models.chat-tiny"}
    fields = {row.name for row in msgspec.structs.fields(struct)}
    assert fields - explained - SHOWN_AS_SECTIONS == set()


@pytest.mark.parametrize(
    ("struct", "heading", "section"), PARTS, ids=[p[1] or "top" for p in PARTS]
)
def test_settings_that_are_switched_off_show_their_defaults(
    struct: type[msgspec.Struct], heading: str, section: str
) -> None:
    lines = template.text().splitlines()
    shown = at(template.tree(), section)
    for row in msgspec.structs.fields(struct):
        switched_off = any(line.startswith(f"#{row.name} = ") for line in lines)
        required = row.default is msgspec.NODEFAULT and row.default_factory is msgspec.NODEFAULT
        off_here = section in ("server", "telemetry", "tenants.starter.limits")
        if switched_off and off_here and row.name in shown and not required:
            assert shown[row.name] == row.default


def test_no_part_of_the_configuration_is_left_out() -> None:
    described = msgspec.json.schema(Config)["$defs"]
    assert set(described) == {struct.__name__ for struct, _, _ in PARTS}
