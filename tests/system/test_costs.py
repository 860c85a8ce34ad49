"""Costs of a real server: on its answers, in its accounts, and in a statement that adds up."""

import json
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from tests.system.conftest import Serve
from tests.system.server import TIFFIN, Server, until

pytestmark = pytest.mark.xdist_group("costs")

PRICED = """
[models.echo]
runtime = "echo"
slots = 2
token_ms = 5.0

[models.kept]
runtime = "echo"
cache = { ttl_s = 60.0 }

[[prices.machines]]
name = "node"
terms = "reserved"
hourly = "36"
since = "2026-01-01"

[[prices.models]]
model = "kept"
input = "1"
output = "10"
since = "2026-01-01"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose models are ready."""
    server = Server(tmp_path_factory.mktemp("costs"), PRICED)
    try:
        server.start()
        for model in ("echo", "kept"):
            server.until_answers(model)
        yield server
    finally:
        server.close()


def cost_of(told: str) -> Decimal:
    """An amount that was told with its currency."""
    amount, currency = told.split()
    assert currency == "INR"
    return Decimal(amount)


def statement(server: Server, **asked: str) -> Any:
    """What control says was spent."""
    found = server.http.get("/admin/v1/costs/statement", params=asked)
    assert found.status_code == 200, found.text
    return found.json()


def test_answers_tell_their_cost_and_the_statement_adds_up(server: Server) -> None:
    whole = server.chat("echo", "one two three")
    assert cost_of(whole.headers["x-tiffin-cost"]) > 0
    *_, usage, done = server.stream("echo", "one two three", stream_options={"include_usage": True})
    told = json.loads(usage)["usage"]
    assert done == "[DONE]"
    assert cost_of(told["tiffin"]["cost"]) > 0

    first = server.chat("kept", "four five")
    used = first.json()["usage"]
    price = Decimal(used["prompt_tokens"]) + 10 * Decimal(used["completion_tokens"])
    assert cost_of(first.headers["x-tiffin-cost"]) == price / 10**6
    again = until(
        lambda: (
            hit
            if (hit := server.chat("kept", "four five")).headers["x-tiffin-cache"] == "hit"
            else None
        )
    )
    assert again.headers["x-tiffin-cost"] == "0 INR"

    # The client leaves in the middle.
    next(events := server.stream("echo", "word " * 200))
    next(events)
    events.close()  # type: ignore[attr-defined]

    def entered() -> bool:
        return any(entry["outcome"] == "cancelled" for entry in server.accounts())

    until(entered)
    (cut,) = [entry for entry in server.accounts() if entry["outcome"] == "cancelled"]
    assert cut["prompt_tokens"] >= 200
    assert cut["device_ns"] > 0
    assert cut["cost_pico"] > 0
    assert not cut["measured"]

    # What the supervisor runs is written down every few seconds.
    page = until(lambda: _with_load(statement(server, by="line,tenant")))
    assert sum(Decimal(row["amount"]) for row in page["data"]) == Decimal(page["total"])
    lines = {row["line"]: Decimal(row["amount"]) for row in page["data"]}
    assert min(lines[name] for name in ("requests", "cancelled", "load", "idle")) > 0
    rows = statement(server, tenant="tests", by="line", model="kept")["data"]
    (mine,) = [row for row in rows if row["line"] == "requests"]
    assert mine["requests"] == mine["successful"] >= 2


def _with_load(page: Any) -> Any:
    return page if any(row["line"] == "load" for row in page["data"]) else None


def test_the_command_line_shows_and_takes(server: Server) -> None:
    def tiffin(*words: str) -> "subprocess.CompletedProcess[str]":
        given = [str(TIFFIN), "cost", *words, "--data", str(server.folder.root)]
        return subprocess.run(
            given, capture_output=True, text=True, timeout=30, check=False, cwd=server.folder.root
        )

    shown = tiffin("statement")
    assert shown.returncode == 0, shown.stderr
    assert "successful requests" in shown.stdout
    rates = tiffin("rates")
    assert "device_second 0.00" in rates.stdout
    assert "input 1, output 10" in rates.stdout
    assert tiffin("statement", "--csv").stdout.startswith("tenant,line,requests,")
    path = server.folder.root / "costs.parquet"
    wrote = tiffin("statement", "--by", "line,day", "--parquet", str(path))
    assert f"rows to {path}" in wrote.stdout, wrote.stderr
    table = parquet.read_table(path)
    assert sum(table["amount"].to_pylist()) == Decimal(table.schema.metadata[b"total"].decode())
    nowhere = tiffin("statement", "--parquet", "/nowhere/x.parquet")
    assert (nowhere.returncode, "can't be written: No such file" in nowhere.stderr) == (1, True)
    refused = tiffin("statement", "--by", "colour")
    assert (refused.returncode, "there is no group 'colour'" in refused.stderr) == (1, True)
    invoice = server.folder.root / "april.csv"
    invoice.write_text(
        "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd\n9,INR,2026-04-01,2026-05-01\n"
    )
    assert "1 lines taken in" in tiffin("import", str(invoice)).stdout
    assert "left as it was" in tiffin("import", str(invoice)).stdout
    assert "no FOCUS invoice" in tiffin("import", str(server.config)).stderr


def test_a_request_is_explained_by_the_id_that_its_client_got(server: Server) -> None:
    identifier = server.chat("kept", "word " * 30).headers["x-request-id"]
    command = [str(TIFFIN), "requests", "show", identifier, "--data", str(server.folder.root)]

    def shown() -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout

    told = until(shown)
    assert f"request  {identifier}" in told
    assert "by tests/main for chat" in told
    assert "try 1    kept: answered (200)" in told


PLANS = """
[[prices.plans]]
tenant = "tests"
request = "0.001"
since = "2026-01-01"

[[prices.plans]]
tenant = "zen"
monthly = "100"
since = "2026-01-01"
"""
APRIL = (
    "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ServiceCategory,ServiceName\n"
    "26000.25,INR,2026-04-01,2026-05-01,Compute,Instances\n"
    "5,INR,2026-04-01,2026-05-01,Storage,Disks\n"
)


def test_plans_and_invoices_are_told_by_the_command_line(serve: Serve) -> None:
    server = serve(PRICED + PLANS)
    server.until_answers("echo")
    server.chat("echo", "word " * 300)

    def tiffin(*words: str) -> str:
        given = [str(TIFFIN), "cost", *words, "--data", str(server.folder.root)]
        done = subprocess.run(
            given, capture_output=True, text=True, timeout=60, check=False, cwd=server.folder.root
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def flagged() -> str:
        told = tiffin("statement", "--by", "tenant")
        return told if "! it costs more than it brings" in told else ""

    told = until(flagged)
    (mine,) = [line for line in told.splitlines() if line.startswith("plan of tests")]
    assert mine.endswith("! it costs more than it brings")
    (other,) = [line for line in told.splitlines() if line.startswith("plan of zen")]
    assert "!" not in other
    assert "plan of zen" not in tiffin("statement", "--tenant", "tests")

    month = ("statement", "--since", "2026-04-01", "--until", "2026-05-01", "--by", "line")
    before = json.loads(tiffin(*month, "--json"))
    # Thirty days at 36 an hour.
    assert (before["total"], [item["kind"] for item in before["bill"]]) == ("25920", ["machines"])
    invoice = server.folder.root / "april.csv"
    invoice.write_text(APRIL)
    assert "2 lines taken in" in tiffin("import", str(invoice))
    after = json.loads(tiffin(*month, "--json"))
    variances = {i["name"]: i["amount"] for i in after["bill"] if i["kind"] == "variance"}
    assert variances == {"machines": "80.25", "storage": "5"}
    assert after["total"] == after["shown"] == "26005.25"
    assert "variance: machines" in tiffin(*month)


def test_without_prices_the_command_says_how_to_give_them(serve: Serve) -> None:
    server = serve('[models.echo]\nruntime = "echo"\n')
    server.until_answers("echo")
    given = [str(TIFFIN), "cost", "statement", "--data", str(server.folder.root)]
    done = subprocess.run(
        given, capture_output=True, text=True, timeout=60, check=False, cwd=server.folder.root
    )
    assert done.returncode == 0, done.stderr
    assert "[[prices.machines]]" in done.stderr
    assert "docs/howto/costs.md" in done.stderr
    assert statement(server)["priced"] is False


def test_what_a_killed_gateway_lost_is_a_line_and_all_adds_up(serve: Serve) -> None:
    server = serve(PRICED)
    server.until_answers("echo")
    next(events := server.stream("echo", "word " * 400))
    before = server.until_ready("gateway").pid
    server.kill("gateway")
    events.close()  # type: ignore[attr-defined]
    server.until_ready("gateway", after_pid=before)
    server.until_answers("echo")

    def lost() -> Any:
        page = statement(server, by="line")
        return page if any(row["line"] == "lost" for row in page["data"]) else None

    page = until(lost)
    assert sum(Decimal(row["amount"]) for row in page["data"]) == Decimal(page["total"])
    entries = server.accounts()
    counted = statement(server, by="line")["data"]
    assert sum(row["requests"] for row in counted) >= len(entries)
    assert [row["requests"] for row in counted if row["line"] == "lost"] == [1]
