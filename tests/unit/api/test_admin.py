"""Control's pages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.control.installation import ONE, TWO, Installation
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.api.admin import AdminApi, Desk
from tiffin.api.caches import CachePages
from tiffin.app.alerting import Alerting
from tiffin.app.money import Money
from tiffin.app.tenancy import Tenancy
from tiffin.control.publish import Publisher
from tiffin.control.report import JournalStatus, report
from tiffin.control.standing import LimitsPage
from tiffin.errors import Unavailable
from tiffin.gateway.cache.memory import MemoryCacheStore
from tiffin.ports.accounts import Batch, Closing, Opening, Position
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, json_of


class Pages:
    """The API over an installation without processes."""

    def __init__(self, root: Path) -> None:
        self.site = Installation(root / "data")
        self.office = self.site.opened()
        self.accounts = SqliteAccounts(self.site.folder.database)
        self.tenancy = Tenancy(self.site.folder, self.office, FakeClock())
        publisher = Publisher(self.site.folder.snapshot)
        self.money = Money(
            self.site.folder.database, self.office, publisher, FakeClock(), lambda: None
        )
        self.alerting = Alerting(
            self.site.folder, self.office, self.money, FakeClock(), Meter("control", "")
        )
        self.scraped: list[str] = []
        self.api = AdminApi(
            Desk(
                report=lambda: report(
                    self.site.folder,
                    self.office,
                    Publisher(self.site.folder.snapshot).current,
                    [],
                    [],
                    JournalStatus(behind_s=0.0, bytes=0),
                ),
                config=lambda: self.office.loaded,
                changing=self.site.changing,
                load=self.office.load,
                unload=self.office.unload,
                restart=self.office.restart,
                limits=lambda: LimitsPage(currency="INR", data=[]),
                metrics=self.metrics,
                accounts=self.accounts,
                gate=self.tenancy.gate(),
                tenancy=self.tenancy.pages(),
                costs=self.money.pages(),
                budgets=self.alerting.pages(),
                caches=CachePages(MemoryCacheStore(), FakeClock()),
            )
        )

    async def metrics(self) -> tuple[str, str]:
        return "text/plain", "up 1\n"

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        path, _, query = path.partition("?")
        exchange = FakeExchange(method.encode(), path.encode(), body=body)
        exchange.query = query.encode()
        await answered(self.api, exchange)
        return exchange.status, json_of(exchange) if path != "/metrics" else exchange.sent.decode()


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[Pages]:
    pages = Pages(tmp_path)
    yield pages
    pages.accounts.close()


async def test_metrics_are_text(pages: Pages) -> None:
    assert await pages.ask("GET", "/metrics") == (200, "up 1\n")


async def test_status_tells_of_models(pages: Pages) -> None:
    status, body = await pages.ask("GET", "/admin/v1/status")
    assert status == 200
    assert [model["name"] for model in body["models"]] == ["one"]
    assert body["snapshot"] == 1


async def test_the_configuration_is_shown_whole(pages: Pages) -> None:
    status, body = await pages.ask("GET", "/admin/v1/config")
    assert status == 200
    assert body["config"]["server"]["port"] == 8080
    assert len(body["sha256"]) == 64


@pytest.mark.parametrize(
    "body",
    [
        TWO,
        msgspec.json.encode({"toml": TWO.decode()}),
        b'\n {"toml": "%b"}' % TWO.replace(b"\n", b"\\n"),
    ],
    ids=["toml", "json", "json after space"],
)
async def test_a_configuration_is_applied(pages: Pages, body: bytes) -> None:
    status, answer = await pages.ask("POST", "/admin/v1/config", body)
    assert status == 200
    assert answer["number"] == 2
    assert answer["restart"] == ["server.port"]
    assert pages.site.published == ["two"]


async def test_one_that_is_wrong_is_refused_with_its_place(pages: Pages) -> None:
    status, answer = await pages.ask("POST", "/admin/v1/config", b"[models.x]\nruntime='y'")
    assert status == 400
    assert answer["error"]["param"] == "models.x.runtime"
    assert answer["error"]["code"] == "config_invalid"
    assert pages.site.published == ["one"]


async def test_json_without_a_text_is_refused(pages: Pages) -> None:
    status, answer = await pages.ask("POST", "/admin/v1/config", b'{"x":1}')
    assert (status, answer["error"]["code"]) == (400, "malformed_body")


async def test_one_is_looked_at_without_being_taken(pages: Pages) -> None:
    status, answer = await pages.ask("POST", "/admin/v1/config/preview", TWO)
    assert status == 200
    assert [move["what"] for move in answer["models"]] == ["stops", "starts"]
    assert pages.site.published == ["one"]


async def test_earlier_ones_are_listed_without_their_text_and_taken_again(pages: Pages) -> None:
    await pages.ask("POST", "/admin/v1/config", TWO)
    _, page = await pages.ask("GET", "/admin/v1/config/history")
    assert [(one["number"], one["in_force"]) for one in page["data"]] == [(2, True), (1, False)]
    assert "toml" not in page["data"][0]
    status, _ = await pages.ask("POST", "/admin/v1/config", b'{"number": 1}')
    assert (status, pages.site.published) == (200, ["one"])


@pytest.mark.parametrize("body", [b"{}", b'{"number": 1, "toml": ""}'], ids=["neither", "both"])
async def test_a_body_says_which_one_it_means(pages: Pages, body: bytes) -> None:
    status, answer = await pages.ask("POST", "/admin/v1/config/preview", body)
    assert (status, answer["error"]["code"]) == (400, "malformed_body")


async def test_the_file_is_read_again(pages: Pages) -> None:
    pages.site.file.write_bytes(TWO + ONE)
    status, answer = await pages.ask("POST", "/admin/v1/reload")
    assert (status, answer["number"]) == (200, 2)
    assert pages.site.published == ["one", "two"]


async def test_accounts_are_listed_page_by_page(pages: Pages) -> None:
    pairs = [
        (
            Opening(id=f"req_{n}", at_ns=1, tenant="t", key="k", endpoint="chat"),
            Closing(id=f"req_{n}", at_ns=2, outcome="ok" if n else "failed"),
        )
        for n in range(5)
    ]
    await pages.accounts.absorb(Batch("ep", Position(), settled=pairs))
    status, page = await pages.ask("GET", "/admin/v1/accounts?limit=2&tenant=t")
    assert status == 200
    assert [entry["id"] for entry in page["data"]] == ["req_4", "req_3"]
    assert page["has_more"] is True
    assert page["data"][0]["attempts"] == []
    last = page["data"][-1]["seq"]
    status, page = await pages.ask("GET", f"/admin/v1/accounts?limit=3&before={last}")
    assert [entry["id"] for entry in page["data"]] == ["req_2", "req_1", "req_0"]
    assert page["has_more"] is False
    status, page = await pages.ask("GET", "/admin/v1/accounts/totals")
    assert [(total["outcome"], total["requests"]) for total in page["data"]] == [
        ("failed", 1),
        ("ok", 4),
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=00000000001", "limit"),
        ("before=" + "0" * 40 + "1", "before"),
        ("limit=x", "limit"),
        ("limit=%D9%A3", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("before=-1", "before"),
        ("after=-1", "after"),
        ("slower_ms=1.5", "slower_ms"),
        ("tenat=x", "tenat"),
    ],
)
async def test_a_wrong_query_names_its_parameter(pages: Pages, query: str, param: str) -> None:
    status, body = await pages.ask("GET", f"/admin/v1/accounts?{query}")
    assert status == 400
    assert body["error"]["param"] == param


async def test_without_a_database_only_accounts_are_away(pages: Pages) -> None:
    pages.site.folder.database.write_bytes(b"no database, no database, no database" * 100)
    status, body = await pages.ask("GET", "/admin/v1/accounts")
    assert (status, body["error"]["code"]) == (503, Unavailable.slug)
    assert (await pages.ask("GET", "/admin/v1/status"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/admin/v2", 404),
        ("POST", "/admin/v1/status", 405),
        ("GET", "/admin/v1/reload", 405),
        ("GET", "/admin/v1/models/one/load", 405),
        ("POST", "/admin/v1/models/one/start", 404),
        ("POST", "/admin/v1/models/two/load", 404),
    ],
)
async def test_what_there_is_not_is_said(pages: Pages, method: str, path: str, status: int) -> None:
    assert (await pages.ask(method, path))[0] == status


async def test_a_model_is_unloaded_and_loaded(pages: Pages) -> None:
    status, told = await pages.ask("POST", "/admin/v1/models/%6fne/unload")
    assert (status, told["model"], told["loaded"]) == (200, "one", False)
    _, report = await pages.ask("GET", "/admin/v1/status")
    assert report["models"][0]["state"] == "unloaded"
    assert report["models"][0]["reason"].startswith("by this machine at ")
    assert report["degraded"] == []
    status, told = await pages.ask("POST", "/admin/v1/models/one/load")
    assert (status, told["loaded"]) == (200, True)


async def test_a_model_is_told_to_start_anew(pages: Pages) -> None:
    before = (await pages.ask("GET", "/admin/v1/status"))[1]["models"][0]["replica"]
    status, told = await pages.ask("POST", "/admin/v1/models/one/restart")
    assert (status, told["model"], told["number"]) == (200, "one", 2)
    assert (await pages.ask("GET", "/admin/v1/status"))[1]["models"][0]["replica"] != before
    assert (await pages.ask("POST", "/admin/v1/models/none/restart"))[0] == 404


async def test_a_defect_fails_one_request(pages: Pages) -> None:
    pages.office.loaded = 3  # type: ignore[assignment]
    status, body = await pages.ask("GET", "/admin/v1/config")
    assert (status, body["error"]["code"]) == (500, "internal_error")
