"""Tenants and keys through the front door: real gateway, real control, kills in between."""

import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.system.conftest import ECHO, Serve
from tests.system.server import TIFFIN, Server, body, until
from tiffin.app.ring_follower import RingFollower
from tiffin.gateway.keyring import Keyring
from tiffin.types.paths import audit_file, keyring_file

pytestmark = pytest.mark.xdist_group("tenancy")

T = "/admin/v1/tenants"

MODELS = (
    ECHO
    + """
[models.other]
runtime = "echo"

[models.far]
runtime = "remote"
url = "http://127.0.0.1:9/v1"
region = "us"
"""
)


class Office:
    """A server, a tenant of one test's own, and what the admin API does."""

    def __init__(self, server: Server, tenant: str = "acme") -> None:
        self.server = server
        self.tenant = tenant
        self.done("POST", T, name=tenant)

    @property
    def path(self) -> str:
        """Where the tenant is."""
        return f"{T}/{self.tenant}"

    def ask(self, method: str, path: str, key: str = "", **content: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.server.http.request(
            method, path, json=content if method in ("POST", "PATCH") else None, headers=headers
        )

    def done(self, method: str, path: str, key: str = "", **content: Any) -> Any:
        answer = self.ask(method, path, key, **content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def key(self, name: str, **scope: Any) -> str:
        """A key that was just made, once the gateway knows it."""
        secret = str(self.done("POST", f"{self.path}/keys", name=name, **scope)["secret"])
        self.until_status(secret, 200)
        return secret

    def chat(self, key: str, model: str = "echo", **more: Any) -> httpx.Response:
        return self.ask("POST", "/v1/chat/completions", key, **body(model, "hello", **more))

    def until_status(self, key: str, status: int) -> float:
        """Wait until a key is answered so; how many seconds that took."""
        start = time.monotonic()
        until(lambda: self.ask("GET", "/v1/models", key).status_code == status)
        return time.monotonic() - start

    def error(self, answer: httpx.Response) -> tuple[int, str]:
        return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tenancy"), MODELS)
    try:
        server.start()
        server.until_answers("echo")
        yield server
    finally:
        server.close()


NAMES = (f"acme-{number}" for number in count())


@pytest.fixture
def office(server: Server) -> Office:
    return Office(server, next(NAMES))


@pytest.fixture
def alone(serve: Serve) -> Office:
    """On a server of one test's own."""
    server = serve(MODELS)
    server.until_answers("echo")
    return Office(server)


def test_a_change_is_in_force_within_a_second(office: Office) -> None:
    secret = office.done("POST", f"{office.path}/keys", name="web")["secret"]
    assert office.until_status(secret, 200) < 1.0
    assert office.chat(secret).status_code == 200
    office.done("DELETE", f"{office.path}/keys/web")
    assert office.until_status(secret, 401) < 1.0
    assert office.error(office.chat(secret)) == (401, "invalid_api_key")


def test_a_rotated_key_has_two_secrets_for_a_while(office: Office) -> None:
    old = office.key("web")
    new = office.done("POST", f"{office.path}/keys/web/rotate", overlap_s=3.0)["secret"]
    office.until_status(new, 200)
    assert office.chat(old).status_code == 200
    office.until_status(old, 401)
    assert office.error(office.chat(old)) == (401, "key_expired")
    assert office.chat(new).status_code == 200


def test_scopes_are_held_to(office: Office) -> None:
    narrow = office.key("narrow", models=["echo"], endpoints=["chat"], tools=False)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert office.chat(narrow).status_code == 200
    assert office.error(office.chat(narrow, "other")) == (404, "model_not_found")
    assert office.error(office.chat(narrow, tools=tools)) == (403, "out_of_scope")
    prompt = office.ask("POST", "/v1/completions", narrow, model="echo", prompt="x")
    assert office.error(prompt) == (403, "out_of_scope")
    at_home = office.key("at-home", region="in")
    assert office.error(office.chat(at_home, "far")) == (403, "residency_denied")
    secret = office.key("secret", data_class="confidential")
    assert office.chat(secret).status_code == 200
    assert office.error(office.chat(secret, "far")) == (403, "residency_denied")
    listed = office.done("GET", "/v1/models", secret)["data"]
    assert [one["id"] for one in listed] == ["echo", "other"]
    refused = until(lambda: [e for e in office.server.accounts() if e["key"] == "at-home"])
    assert [(e["outcome"], e["error"]) for e in refused] == [("refused", "residency_denied")]


def test_a_suspended_tenant_waits_outside(office: Office) -> None:
    secret = office.key("web")
    office.done("PATCH", office.path, suspended=True)
    office.until_status(secret, 403)
    assert office.error(office.chat(secret)) == (403, "tenant_suspended")
    office.done("PATCH", office.path, suspended=False)
    office.until_status(secret, 200)


def test_a_tenant_s_admin_has_their_tenant_and_nothing_else(office: Office) -> None:
    boss = office.key("boss", role="tenant-admin")
    looker = office.key("looker", role="viewer")
    user = office.key("user")
    assert office.error(office.ask("GET", T, user)) == (403, "permission_denied")
    assert [one["name"] for one in office.done("GET", T, boss)["data"]] == [office.tenant]
    assert office.error(office.ask("GET", f"{T}/tests", boss)) == (404, "not_found")
    assert office.error(office.ask("GET", f"{T}/tests/keys", looker)) == (404, "not_found")
    assert office.ask("POST", f"{office.path}/keys", boss, name="mine").status_code == 200
    assert office.ask("POST", f"{office.path}/keys", looker, name="no").status_code == 403
    for path in ("/admin/v1/status", "/admin/v1/config", "/admin/v1/accounts/totals"):
        assert office.error(office.ask("GET", path, boss)) == (403, "permission_denied")
    office.chat(user)
    until(lambda: any(one["key"] == "user" for one in office.server.accounts()))
    own = office.done("GET", "/admin/v1/accounts", looker)["data"]
    assert {one["tenant"] for one in own} == {office.tenant}
    assert office.ask("GET", "/admin/v1/accounts?tenant=tests", looker).status_code == 404


def test_a_key_that_is_revoked_while_its_request_comes_changes_nothing(office: Office) -> None:
    boss = office.key("slow", role="tenant-admin", models=["echo"])

    def slowly() -> Iterator[bytes]:
        yield b'{"name":'
        office.done("DELETE", f"{office.path}/keys/slow")
        office.until_status(boss, 401)
        yield b'"late"}'

    answer = office.server.http.post(
        f"{office.path}/keys", content=slowly(), headers={"authorization": f"Bearer {boss}"}
    )
    assert answer.status_code == 401
    assert office.ask("GET", f"{office.path}/keys/late").status_code == 404


def test_keys_hold_while_control_is_down_and_after_a_new_start(alone: Office) -> None:
    secret = alone.key("web")
    server = alone.server
    pid = server.kill("control", signal.SIGSTOP)
    try:
        assert alone.chat(secret).status_code == 200
        server.kill("gateway")
        until(lambda: server.find("gateway"))
        until(lambda: _answers(alone, secret))
    finally:
        server.until_ready("control")
        subprocess.run(["kill", "-CONT", str(pid)], check=True)
    assert server.stop() == 0
    server.start()
    server.until_answers("echo")
    assert alone.chat(secret).status_code == 200


def _answers(office: Office, secret: str) -> bool:
    try:
        return office.chat(secret).status_code == 200
    except httpx.TransportError:
        return False


def test_the_command_line_does_it_and_verifies_what_was_done(alone: Office) -> None:
    data = str(alone.server.folder.root)

    def tiffin(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(TIFFIN), *words, "--data", data]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert tiffin("tenants", "create", "shop", "--limits", "concurrency = 2").returncode == 0
    assert tiffin("projects", "create", "shop", "search").returncode == 0
    made = tiffin("keys", "create", "shop", "web", "--project", "search", "--expires", "1d")
    secret = made.stdout.strip()
    assert secret.startswith("sk-tiffin-")
    alone.until_status(secret, 200)
    assert "until" in tiffin("keys", "list", "shop").stdout
    again = tiffin("keys", "rotate", "shop", "web", "--overlap", "0").stdout.strip()
    alone.until_status(again, 200)
    alone.until_status(secret, 401)
    assert "concurrency=2" in tiffin("tenants", "list").stdout
    assert tiffin("keys", "revoke", "shop", "web").returncode == 0
    assert tiffin("keys", "revoke", "tests", "main").returncode == 1
    assert "key.rotate" in tiffin("audit", "list").stdout
    assert tiffin("audit", "verify").stdout.startswith("intact")
    log = audit_file(alone.server.folder)
    log.write_bytes(log.read_bytes().replace(b"key.revoke", b"key.create"))
    verdict = tiffin("audit", "verify")
    assert verdict.returncode == 1
    assert "this line was changed" in verdict.stdout


def test_what_the_gateway_follows_is_what_control_wrote(office: Office) -> None:
    office.key("web")
    keyring = Keyring()
    follower = RingFollower(keyring_file(office.server.folder), keyring)
    while follower.step():
        pass
    follower.close()
    here = [one for one in keyring.keys.values() if one.tenant == office.tenant]
    assert [one.key for one in here] == ["web"]
