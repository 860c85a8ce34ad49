"""Budgets of a real server: refused where they are hard, alerted of, told to whom they belong."""

import json
import signal
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.conftest import Serve
from tests.system.receiver import KEY, Receiver
from tests.system.server import TIFFIN, Server, body, until
from tiffin.types.paths import alerts_file

# Each answer of the echo model costs one unit.
BUDGETS = """
[models.echo]
runtime = "echo"

[[prices.models]]
model = "echo"
request = "1"
since = "2026-01-01"

[tenants.acme.budgets.small]
amount = "4"
hard = true
per = "month"
thresholds = [50, 100]

[tenants.acme.projects.search.budgets.day]
amount = "2"
per = "day"
thresholds = [100]

[tenants.acme.projects.search.keys.web]
key_file = "{folder}/web"

[tenants.acme.keys.boss]
key_file = "{folder}/boss"
role = "viewer"

[tenants.other.keys.looker]
key_file = "{folder}/looker"
role = "tenant-admin"

[alerts.ops]
url = "{url}"
key_file = "{folder}/signs"
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def server(make_server: Serve, receiver: Receiver, tmp_path: Path) -> Server:
    for name in ("web", "boss", "looker"):
        (tmp_path / name).write_text(f"sk-{name}-of-tests")
    (tmp_path / "signs").write_text(KEY)
    made = make_server(BUDGETS.format(folder=tmp_path, url=receiver.url)).start()
    made.until_answers("echo")
    return made


def ask(server: Server, path: str, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{key}-of-tests"} if key else {}
    return server.http.get(path, headers=headers)


def chat(server: Server) -> httpx.Response:
    headers = {"authorization": "Bearer sk-web-of-tests"}
    return server.http.post("/v1/chat/completions", json=body("echo", "hi"), headers=headers)


def budget(server: Server, name: str) -> dict[str, Any]:
    found = ask(server, "/admin/v1/budgets").json()["data"]
    return next(one for one in found if one["name"] == name)


def spent(server: Server, name: str, amount: str) -> dict[str, Any]:
    """A budget, once so much is spent of it."""
    return until(lambda: one if (one := budget(server, name))["spent"] == amount else None)


def test_a_hard_budget_is_held_to_and_its_thresholds_are_told_once(
    server: Server, receiver: Receiver
) -> None:
    receiver.answers = [500, 0, 307]
    assert [chat(server).status_code for _ in range(4)] == [200] * 4
    refused = chat(server)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    small = spent(server, "small", "4")
    assert (small["state"], small["left"], small["percent"]) == ("exhausted", "0", 100.0)
    assert (small["passed"], small["currency"]) == ([50, 100], "INR")
    until(lambda: budget(server, "small")["reserved"] == "0")
    assert small["forecast"]["outlook"] == "exhausted"
    day = budget(server, "day")
    assert (day["project"], day["spent"], day["percent"], day["hard"]) == (
        "search",
        "4",
        200,
        False,
    )

    until(lambda: len(receiver.events("budget.threshold")) == 3)
    told = {
        (one["data"]["budget"]["name"], one["data"]["threshold"])
        for one in receiver.events("budget.threshold")
    }
    assert told == {("small", 50), ("small", 100), ("day", 100)}
    # Tried again after a 500, a hang-up and a redirect, which wasn't followed.
    assert len(receiver.heard) == 6
    assert set(receiver.paths) == {"/hook"}
    # A new life of control tells nothing again that was taken.
    until(lambda: not json.loads(alerts_file(server.folder).read_bytes())["waiting"])
    server.kill("control")
    until(lambda: ask(server, "/admin/v1/budgets").status_code == 200)
    spent(server, "small", "4")
    assert len(receiver.heard) == 6


def test_what_waits_is_told_after_control_was_killed(server: Server, receiver: Receiver) -> None:
    with receiver.lock:
        receiver.answers = [-1]
    chat(server)
    chat(server)
    until(lambda: receiver.heard)
    first = receiver.heard[0]
    server.kill("control", signal.SIGKILL)
    until(lambda: first in receiver.taken)
    assert [one["id"] for one in receiver.heard].count(first["id"]) == 2
    until(lambda: len({one["id"] for one in receiver.taken}) == 2)


def test_everybody_sees_their_own(server: Server) -> None:
    chat(server)
    spent(server, "small", "1")
    own = ask(server, "/admin/v1/budgets", "boss").json()["data"]
    assert [one["name"] for one in own] == ["small", "day"]
    assert ask(server, "/admin/v1/budgets", "looker").json()["data"] == []
    assert ask(server, "/admin/v1/budgets?tenant=acme", "looker").status_code == 404
    assert ask(server, "/admin/v1/usage?tenant=acme", "looker").status_code == 404
    assert ask(server, "/admin/v1/budgets", "web").status_code == 403
    page = ask(server, "/admin/v1/usage?by=project,key,model,day", "boss").json()
    [row] = page["data"]
    assert (row["project"], row["key"], row["model"]) == ("search", "web", "echo")
    assert (row["requests"], row["successful"], row["cost"]) == (1, 1, "1")
    wrong = ask(server, "/admin/v1/usage?by=colour")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "by")


def test_what_the_admin_api_makes_has_budgets_too(server: Server, receiver: Receiver) -> None:
    def sent(method: str, path: str, **content: Any) -> Any:
        return server.http.request(method, f"/admin/v1/tenants{path}", json=content).json()

    wrong = sent("POST", "", name="new", budgets={"b": {"amount": "1", "models": ["no"]}})
    assert wrong["error"]["param"] == "budgets.b.models"
    budgets = {"b": {"amount": "1", "hard": True, "thresholds": [100]}}
    assert sent("POST", "", name="new", budgets=budgets)["budgets"]["b"]["hard"] is True
    secret = sent("POST", "/new/keys", name="k")["secret"]
    headers = {"authorization": f"Bearer {secret}"}

    def asked() -> int:
        content = body("echo", "hi")
        return server.http.post("/v1/chat/completions", json=content, headers=headers).status_code

    assert until(lambda: status if (status := asked()) != 401 else 0) == 200
    assert asked() == 429
    until(lambda: receiver.events("budget.threshold"))
    assert budget(server, "b")["tenant"] == "new"
    sent("PATCH", "/new", budgets={"b": {"amount": "2.5", "hard": True}})
    until(lambda: asked() == 200)


def test_the_terminal_shows_budgets_and_usage(server: Server) -> None:
    chat(server)
    spent(server, "small", "1")

    def tiffin(*words: str) -> str:
        where = ["--data", str(server.folder.root)]
        done = subprocess.run([TIFFIN, *words, *where], capture_output=True, text=True, check=True)
        return done.stdout

    lines = tiffin("budgets").splitlines()
    assert lines[1].split()[:5] == ["acme:", "small", "(hard)", "month", "1.0000"]
    assert "not enough history" in lines[1]
    assert json.loads(tiffin("budgets", "--tenant", "other", "--json")) == {"data": []}
    head, small, _ = tiffin("budgets", "--csv").splitlines()
    assert dict(zip(head.split(","), small.split(","), strict=True))["left"] == "3"
    table = tiffin("usage", "--tenant", "acme", "--by", "key").splitlines()
    assert table[2].split()[:2] == ["web", "1"]
    row = tiffin("usage", "--tenant", "acme", "--csv").splitlines()[1].split(",")
    assert (row[0], row[1], Decimal(row[-2]), row[-1]) == ("acme", "echo", Decimal(1), "INR")
