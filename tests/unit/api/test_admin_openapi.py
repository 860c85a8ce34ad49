"""The document of control's pages: all of them, by the types that they answer with."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.unit.api.test_admin import Pages
from tiffin.api.admin_openapi import Told, document


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[tuple[Pages, Any]]:
    pages = Pages(tmp_path)
    status, tree = await pages.ask("GET", "/admin/openapi.json")
    assert status == 200
    yield pages, tree
    pages.accounts.close()


async def test_every_page_is_in_it_once_and_says_what_it_does(told: tuple[Pages, Any]) -> None:
    pages, tree = told
    shown = {(m.upper(), path) for path, page in tree["paths"].items() for m in page}
    assert shown == set(pages.api.endpoints()) - {("GET", "/metrics")}
    operations = [one for page in tree["paths"].values() for one in page.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert all(one["summary"] for one in operations)


async def test_answers_are_what_the_document_says(told: tuple[Pages, Any]) -> None:
    pages, tree = told
    for path in ("/admin/v1/status", "/admin/v1/config", "/admin/v1/accounts/totals"):
        _, answer = await pages.ask("GET", path)
        content = tree["paths"][path]["get"]["responses"]["200"]["content"]
        schema = {**content["application/json"]["schema"], "components": tree["components"]}
        jsonschema_rs.validate(schema, answer)


async def test_parameters_and_bodies_are_told(told: tuple[Pages, Any]) -> None:
    _, tree = told
    accounts = tree["paths"]["/admin/v1/accounts"]["get"]
    assert {"limit", "before", "tenant"} <= {one["name"] for one in accounts["parameters"]}
    load = tree["paths"]["/admin/v1/models/{model}/load"]["post"]
    assert [one["in"] for one in load["parameters"]] == ["path"]
    config = tree["paths"]["/admin/v1/config"]["post"]["requestBody"]["content"]
    assert set(config) == {"application/toml", "application/json"}
    assert "404" in load["responses"]


def test_a_page_of_which_nothing_is_told_is_shown_all_the_same() -> None:
    endpoints = [("GET", "/admin/v1/new"), ("GET", "/admin/v1/old"), ("GET", "/metrics")]
    tree = msgspec.json.decode(document(endpoints, {endpoints[1]: Told("Text")}))
    assert set(tree["paths"]) == {"/admin/v1/new", "/admin/v1/old"}
