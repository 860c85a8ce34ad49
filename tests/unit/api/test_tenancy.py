"""Tenants, projects, keys and the audit log over the admin API, and who may do what there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.control.installation import Installation
from tiffin.api.gate import narrow
from tiffin.app.ring_follower import RingFollower
from tiffin.app.tenancy import Tenancy
from tiffin.config.secrets import hashed
from tiffin.control.publish import Publisher
from tiffin.control.tenants.caller import Caller
from tiffin.dialects.openai.errors import error_response
from tiffin.errors import ConfigInvalid, NotFound, TiffinError
from tiffin.gateway.keyring import Keyring
from tiffin.ports.exchange import Exchange
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.paths import audit_file, keyring_file
from tiffin.types.snapshot import Principal, Snapshot

FILE = b"""
[models.one]
runtime = 'echo'
[tenants.shop.keys.web]
key_sha256 = '%b'
[tenants.shop.projects.search.keys.nightly]
key_sha256 = '%b'
""" % (b"1" * 64, b"2" * 64)
HERE = ("", "", "")
BOSS = ("acme", "boss", "tenant-admin")
LOOKER = ("acme", "looker", "viewer")
STRANGER = ("shop", "web", "tenant-admin")
AUDITOR = ("ops", "books", "auditor")
T = "/admin/v1/tenants"
DAY_S = 86_400


class Site:
    """The pages over an installation whose file has the tenant `shop`, and a gateway's keyring."""

    def __init__(self, root: Path) -> None:
        self.installation = Installation(root / "data")
        self.installation.file.write_bytes(FILE)
        self.clock = FakeClock()
        self.keyring = Keyring()
        self.ring = RingFollower(keyring_file(self.installation.folder), self.keyring)
        self.start()

    def start(self) -> None:
        self.office = self.installation.control()
        self.tenancy = Tenancy(self.installation.folder, self.office, self.clock)
        self.tenancy.open()
        self.office.open()
        self.pages, self.gate = self.tenancy.pages(), self.tenancy.gate()

    async def handler(self, exchange: Exchange) -> None:
        try:
            await self.gate(exchange, self.pages)
        except TiffinError as error:
            exchange.respond(*error_response(error))

    async def ask(
        self, method: str, path: str, by: tuple[str, str, str] = HERE, **body: Any
    ) -> tuple[int, Any]:
        names = (b"x-tiffin-tenant", b"x-tiffin-key", b"x-tiffin-role")
        headers = list(zip(names, (one.encode() for one in by), strict=True)) if by[0] else []
        path, _, query = path.partition("?")
        content = msgspec.json.encode(body) if body else b""
        exchange = FakeExchange(method.encode(), path.encode(), headers=headers, body=content)
        exchange.query = query.encode()
        await answered(self.handler, exchange)
        return exchange.status, json_of(exchange)

    async def done(self, method: str, path: str, by: Any = HERE, **body: Any) -> Any:
        status, answer = await self.ask(method, path, by, **body)
        assert status == 200, answer
        return answer

    def whose(self, secret: str) -> Principal | None:
        """What a gateway knows of a key now."""
        while self.ring.step():
            pass
        return self.keyring.keys.get(hashed(secret))

    @property
    def snapshot(self) -> Snapshot:
        current = Publisher(self.installation.folder.snapshot).current
        assert current is not None
        return current


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def acme(site: Site) -> Site:
    await site.done("POST", T, name="acme")
    return site


async def boss(site: Site, **scope: Any) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/keys", name="boss", role="tenant-admin", **scope)


async def test_a_tenant_and_its_key_are_made_and_in_force(site: Site) -> None:
    made = await site.done("POST", T, name="acme", limits={"concurrency": 3}, weight=2.0)
    assert made["source"] == "api"
    assert made["made_by"] == "this machine"
    answer = await site.done("POST", f"{T}/acme/keys", name="web", models=["one"])
    assert answer["secret"].startswith("sk-tiffin-")
    assert answer["secret"].startswith(answer["key"]["begins"])
    assert site.whose(answer["secret"]) == Principal(tenant="acme", key="web", models=("one",))
    assert site.snapshot.tenants["acme"].weight == 2.0
    assert site.snapshot.tenant_limits["acme"].concurrency == 3


async def test_nothing_that_is_kept_has_the_secret(site: Site) -> None:
    await acme(site)
    secret = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    folder = site.installation.folder.root
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert secret.encode() not in kept
    assert hashed(secret).encode() in kept
    shown = await site.done("GET", f"{T}/acme/keys/web")
    assert secret not in str(shown)


async def test_what_was_made_is_there_after_another_start(site: Site) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/projects", name="search", limits={"concurrency": 1})
    secret = (await site.done("POST", f"{T}/acme/keys", name="web", project="search"))["secret"]
    site.start()
    assert (await site.done("GET", f"{T}/acme/keys/web"))["project"] == "search"
    assert site.snapshot.tenants["acme"].projects["search"].concurrency == 1
    assert site.whose(secret) is not None


async def test_rotation_keeps_the_old_secret_for_a_while_and_no_older(site: Site) -> None:
    await acme(site)
    path = f"{T}/acme/keys/web"
    first = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    second = (await site.done("POST", f"{path}/rotate", overlap_s=DAY_S))["secret"]
    old, new = site.whose(first), site.whose(second)
    assert old is not None
    assert new is not None
    assert old.expires_ns == site.clock.now_ns() + DAY_S * 10**9
    assert new.expires_ns == 0
    third = await site.done("POST", f"{path}/rotate", overlap_s=60)
    assert site.whose(first) is None
    assert site.whose(second) is not None
    assert third["key"]["earlier_begins"] == second[:16]
    last = (await site.done("POST", f"{path}/rotate", overlap_s=0))["secret"]
    assert [site.whose(one) is None for one in (second, third["secret"], last)] == [
        True,
        True,
        False,
    ]


async def test_the_newest_secret_is_the_newest_whatever_the_clock_says(site: Site) -> None:
    await acme(site)
    path = f"{T}/acme/keys/web"
    first = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    site.clock.advance(-60)
    made = await site.done("POST", f"{path}/rotate", overlap_s=DAY_S)
    assert made["key"]["earlier_begins"] == first[:16]
    shown = await site.done("GET", path)
    assert (shown["begins"], shown["expires"]) == (made["secret"][:16], None)


async def test_a_rotated_key_that_ends_sooner_isn_t_prolonged(site: Site) -> None:
    await acme(site)
    made = await site.done("POST", f"{T}/acme/keys", name="web", expires="2023-11-14T23:00:00Z")
    await site.done("POST", f"{T}/acme/keys/web/rotate", overlap_s=30 * DAY_S)
    old = site.whose(made["secret"])
    assert old is not None
    assert old.expires_ns == 1_700_002_800 * 10**9


async def test_changes_hold_for_the_old_secret_too_but_not_its_end(site: Site) -> None:
    await acme(site)
    path = f"{T}/acme/keys/web"
    first = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    await site.done("POST", f"{path}/rotate", overlap_s=60)
    before = site.whose(first)
    await site.done("PATCH", path, endpoints=["chat"], tools=False, expires=None)
    after = site.whose(first)
    assert before is not None
    assert after is not None
    assert (after.endpoints, after.tools) == (("chat",), False)
    assert after.expires_ns == before.expires_ns


async def test_a_revoked_key_is_gone_and_its_name_is_free(site: Site) -> None:
    await acme(site)
    secret = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    assert site.whose(secret)
    await site.done("DELETE", f"{T}/acme/keys/web")
    assert site.whose(secret) is None
    assert (await site.ask("GET", f"{T}/acme/keys/web"))[0] == 404
    await site.done("POST", f"{T}/acme/keys", name="web")


async def test_what_is_in_the_file_is_only_shown(site: Site) -> None:
    shown = await site.done("GET", f"{T}/shop/keys/nightly")
    assert (shown["source"], shown["project"]) == ("file", "search")
    for method, path, body in (
        ("PATCH", f"{T}/shop", {"weight": 2.0}),
        ("DELETE", f"{T}/shop", {}),
        ("PATCH", f"{T}/shop/projects/search", {"limits": {}}),
        ("DELETE", f"{T}/shop/projects/search", {}),
        ("PATCH", f"{T}/shop/keys/web", {"tools": False}),
        ("POST", f"{T}/shop/keys/web/rotate", {"overlap_s": 0}),
        ("DELETE", f"{T}/shop/keys/nightly", {}),
    ):
        status, answer = await site.ask(method, path, **body)
        assert status == 409, path
        assert "is in the configuration" in answer["error"]["message"]


async def test_a_tenant_of_the_file_can_have_keys_of_the_api(site: Site) -> None:
    secret = (await site.done("POST", f"{T}/shop/keys", name="more", project="search"))["secret"]
    found = site.whose(secret)
    assert found is not None
    assert found.project == "search"
    names = [one["name"] for one in (await site.done("GET", f"{T}/shop/keys"))["data"]]
    assert names == ["more", "nightly", "web"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"[tenants.acme]\n", "tenants.acme"),
        (b"[tenants.shop.keys.more]\nkey_sha256='" + b"3" * 64 + b"'\n", "tenants.shop.keys.more"),
        (b"[tenants.shop.projects.mine]\n", "tenants.shop.projects.mine"),
    ],
)
async def test_a_configuration_can_t_say_what_the_api_has_made(
    site: Site, text: bytes, where: str
) -> None:
    await acme(site)
    await site.done("POST", f"{T}/shop/keys", name="more")
    await site.done("POST", f"{T}/shop/projects", name="mine")
    with pytest.raises(ConfigInvalid) as refused:
        await site.installation.changing.preview(FILE + text)
    assert refused.value.where == where
    site.installation.file.write_bytes(FILE + text)
    before = site.snapshot
    site.start()
    assert where in site.office.fault
    assert site.snapshot == before


async def test_names_are_taken_once(site: Site) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/keys", name="web")
    await site.done("POST", f"{T}/acme/projects", name="p")
    for path, name in ((T, "acme"), (T, "shop"), (f"{T}/acme/keys", "web")):
        assert (await site.ask("POST", path, name=name))[0] == 409
    assert (await site.ask("POST", f"{T}/shop/keys", name="nightly"))[0] == 409
    assert (await site.ask("POST", f"{T}/acme/projects", name="p"))[0] == 409


async def test_a_closed_tenant_is_gone_with_its_keys_and_its_name_stays_taken(site: Site) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/keys", name="web")
    await site.done("DELETE", f"{T}/acme")
    assert "acme" not in site.snapshot.tenants
    assert (await site.ask("GET", f"{T}/acme"))[0] == 404
    assert [one["name"] for one in (await site.done("GET", T))["data"]] == ["shop"]
    status, answer = await site.ask("POST", T, name="acme")
    assert status == 409
    assert "closed" in answer["error"]["message"]


async def test_a_suspended_tenant_is_in_the_snapshot_as_that(site: Site) -> None:
    await acme(site)
    await site.done("PATCH", f"{T}/acme", suspended=True)
    assert site.snapshot.tenants["acme"].suspended
    await site.done("PATCH", f"{T}/acme", suspended=False)
    assert not site.snapshot.tenants["acme"].suspended


async def test_a_project_with_keys_isn_t_deleted(site: Site) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/projects", name="p")
    await site.done("POST", f"{T}/acme/keys", name="web", project="p")
    status, answer = await site.ask("DELETE", f"{T}/acme/projects/p")
    assert status == 409
    assert "web" in answer["error"]["message"]
    await site.done("DELETE", f"{T}/acme/keys/web")
    await site.done("DELETE", f"{T}/acme/projects/p")
    assert (await site.done("GET", f"{T}/acme/projects"))["data"] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "a b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "k", "region": "in\n"}, "region"),
        ({"name": "k", "limits": {"concurrency": 10**400}}, "limits.concurrency"),
        ({}, "name"),
        ({"name": "k", "role": "boss"}, "role"),
        ({"name": "k", "models": ["none"]}, "models"),
        ({"name": "k", "endpoints": ["chatt"]}, "endpoints[0]"),
        ({"name": "k", "expires": "2001-01-01T00:00:00Z"}, "expires"),
        ({"name": "k", "expires": "2040-01-01T00:00:00"}, "expires"),
        ({"name": "k", "project": "none"}, "project"),
        ({"name": "k", "limits": {"concurrency": -1}}, "limits.concurrency"),
        ({"name": "k", "key": "mine"}, "key"),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_by_name(
    site: Site, body: dict[str, Any], param: str
) -> None:
    await acme(site)
    status, answer = await site.ask("POST", f"{T}/acme/keys", **body)
    assert status in (400, 404)
    assert answer["error"]["param"] == param, answer
    assert not site.keyring.keys


async def test_who_may_do_what(site: Site) -> None:
    await boss(site)
    keys = f"{T}/acme/keys"
    assert (await site.ask("POST", keys, BOSS, name="a"))[0] == 200
    assert (await site.ask("POST", keys, LOOKER, name="b"))[0] == 403
    assert (await site.ask("GET", keys, LOOKER))[0] == 200
    assert (await site.ask("POST", keys, AUDITOR, name="b"))[0] == 403
    assert (await site.ask("GET", keys, AUDITOR))[0] == 200
    assert (await site.ask("PATCH", f"{T}/acme", BOSS, weight=9.0))[0] == 403
    assert (await site.ask("POST", T, BOSS, name="mine"))[0] == 403
    assert (await site.ask("GET", "/admin/v1/audit/verify", BOSS))[0] == 403
    for role in ("auditor", "admin"):
        assert (await site.ask("POST", keys, BOSS, name="c", role=role))[0] == 403


@pytest.mark.parametrize("by", [STRANGER, ("shop", "web", "viewer"), ("acme", "k", "user")])
async def test_anything_of_another_tenant_isn_t_there(site: Site, by: tuple[str, str, str]) -> None:
    await acme(site)
    await site.done("POST", f"{T}/acme/keys", name="web")
    await site.done("POST", f"{T}/acme/projects", name="p")
    answers = set()
    for method, path, body in (
        ("GET", f"{T}/acme", {}),
        ("PATCH", f"{T}/acme", {"weight": "x"}),
        ("DELETE", f"{T}/acme", {}),
        ("GET", f"{T}/acme/projects", {}),
        ("POST", f"{T}/acme/projects", {"name": "a b"}),
        ("GET", f"{T}/acme/projects/p", {}),
        ("DELETE", f"{T}/acme/projects/p", {}),
        ("GET", f"{T}/acme/keys", {}),
        ("POST", f"{T}/acme/keys", {"name": "q"}),
        ("GET", f"{T}/acme/keys/web", {}),
        ("PATCH", f"{T}/acme/keys/web", {"tools": False}),
        ("POST", f"{T}/acme/keys/web/rotate", {}),
        ("DELETE", f"{T}/acme/keys/web", {}),
    ):
        status, answer = await site.ask(method, path, by, **body)
        assert status == 404, (method, path)
        answers.add(answer["error"]["message"])
    nobody = await site.ask("GET", f"{T}/nobody", by)
    assert answers == {nobody[1]["error"]["message"].replace("nobody", "acme")}


async def test_a_tenant_s_own_see_only_themselves(site: Site) -> None:
    await boss(site)
    await site.done("POST", f"{T}/shop/keys", name="more")
    await site.done("POST", f"{T}/acme/keys", BOSS, name="web")
    assert [one["name"] for one in (await site.done("GET", T, LOOKER))["data"]] == ["acme"]
    told = (await site.done("GET", "/admin/v1/audit", LOOKER))["data"]
    assert {one["what"] for one in told} == {"acme", "acme/boss", "acme/web"}
    assert len((await site.done("GET", "/admin/v1/audit", AUDITOR))["data"]) == 4


async def test_nobody_gives_more_than_they_have(site: Site) -> None:
    scope = {"models": ["one"], "endpoints": ["chat"], "tools": False, "region": "in"}
    await boss(site, **scope)
    await site.done("POST", f"{T}/acme/keys", BOSS, name="ok", **scope)
    for lack, value in (("models", []), ("endpoints", ["infer"]), ("tools", True), ("region", "")):
        status, answer = await site.ask(
            "POST", f"{T}/acme/keys", BOSS, name="no", **{**scope, lack: value}
        )
        assert (status, answer["error"]["param"]) == (403, lack)
    assert (await site.ask("PATCH", f"{T}/acme/keys/boss", BOSS, tools=True))[0] == 403


async def test_a_key_that_was_revoked_while_it_asked_makes_no_other(site: Site) -> None:
    await boss(site, models=["one"])
    await site.done("POST", f"{T}/acme/keys", name="web")
    await site.done("DELETE", f"{T}/acme/keys/boss")
    for method, path, body in (
        ("POST", "", {"name": "late"}),
        ("PATCH", "/web", {"role": "tenant-admin"}),
        ("POST", "/web/rotate", {}),
    ):
        assert (await site.ask(method, f"{T}/acme/keys{path}", BOSS, **body))[0] == 403
    assert len((await site.done("GET", f"{T}/acme/keys"))["data"]) == 1


@pytest.mark.parametrize("expires", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00"])
async def test_no_moment_of_the_past_is_never(site: Site, expires: str) -> None:
    await acme(site)
    assert (await site.ask("POST", f"{T}/acme/keys", name="k", expires=expires))[0] == 400


async def test_a_key_can_be_good_until_the_end_of_time(site: Site) -> None:
    await acme(site)
    late = "9999-12-31T23:59:59-12:00"
    made = await site.done("POST", f"{T}/acme/keys", name="k", expires=late)
    assert made["key"]["expires"] == "9999-12-31T23:59:59Z"
    assert site.whose(made["secret"]) is not None


async def test_every_change_is_in_the_audit_log_before_it_is_made(site: Site) -> None:
    await boss(site)
    made = await site.done("POST", f"{T}/acme/keys", BOSS, name="web")
    await site.done("PATCH", f"{T}/acme/keys/web", BOSS, tools=False)
    await site.done("DELETE", f"{T}/acme/keys/web", BOSS)
    entries = (await site.done("GET", "/admin/v1/audit"))["data"]
    assert [(one["by"], one["action"], one["what"]) for one in entries] == [
        ("this machine", "tenant.create", "acme"),
        ("this machine", "key.create", "acme/boss"),
        ("acme/boss", "key.create", "acme/web"),
        ("acme/boss", "key.change", "acme/web"),
        ("acme/boss", "key.revoke", "acme/web"),
    ]
    assert entries[2]["after"] == entries[3]["before"] != entries[3]["after"]
    assert "after" not in entries[4]
    assert made["secret"].encode() not in audit_file(site.installation.folder).read_bytes()
    assert (await site.done("GET", "/admin/v1/audit/verify"))["intact"]


async def test_what_the_audit_log_doesn_t_take_isn_t_done(site: Site) -> None:
    await acme(site)
    audit_file(site.installation.folder).rename(site.installation.folder.root / "away")
    audit_file(site.installation.folder).mkdir()
    status, _ = await site.ask("POST", f"{T}/acme/keys", name="web")
    assert status == 503
    assert (await site.ask("GET", f"{T}/acme/keys/web"))[0] == 404


async def test_what_the_keyring_doesn_t_take_isn_t_done_and_the_log_says_so(site: Site) -> None:
    await acme(site)
    ring = keyring_file(site.installation.folder)
    ring.rename(ring.with_name("away"))
    ring.mkdir()
    assert (await site.ask("POST", f"{T}/acme/keys", name="web"))[0] == 503
    assert (await site.ask("GET", f"{T}/acme/keys/web"))[0] == 404
    entries = (await site.done("GET", "/admin/v1/audit"))["data"]
    assert entries[-1]["outcome"].startswith("not made")
    ring.rmdir()
    secret = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    assert site.whose(secret)


async def test_what_no_gateway_could_read_isn_t_made(site: Site) -> None:
    model = next(iter(site.office.config.models))
    rule = {"of": "requests", "per": "minute", "amount": 9, "models": [model] * 60_000}
    status, answer = await site.ask("POST", T, name="acme", limits={"rules": [rule]})
    assert (status, "more than 262144 bytes" in answer["error"]["message"]) == (400, True)
    assert (await site.ask("GET", f"{T}/acme"))[0] == 404
    await acme(site)
    secret = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    assert site.whose(secret)


async def test_lists_are_given_in_pages(site: Site) -> None:
    await acme(site)
    for name in ("c", "a", "b"):
        await site.done("POST", f"{T}/acme/keys", name=name)
    first = await site.done("GET", f"{T}/acme/keys?limit=2")
    assert [one["name"] for one in first["data"]] == ["a", "b"]
    assert first["has_more"]
    rest = await site.done("GET", f"{T}/acme/keys?limit=2&after=b")
    assert ([one["name"] for one in rest["data"]], rest["has_more"]) == (["c"], False)
    assert (await site.ask("GET", f"{T}/acme/keys?limit=0"))[0] == 400
    assert (await site.ask("GET", f"{T}/acme/keys?befor=0"))[0] == 400


async def test_paths_and_methods_that_there_aren_t(site: Site) -> None:
    assert (await site.ask("GET", f"{T}/shop/keys/web/more/x"))[0] == 404
    assert (await site.ask("PUT", f"{T}/shop"))[0] == 405


async def test_tending_writes_a_ring_anew_that_is_mostly_past(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiffin.control.tenants.ring_file.SPARE_LINES", 5)
    await acme(site)
    for _ in range(10):
        await site.done("POST", f"{T}/acme/keys", name="web")
        await site.done("DELETE", f"{T}/acme/keys/web")
    secret = (await site.done("POST", f"{T}/acme/keys", name="web"))["secret"]
    await site.tenancy.changes.tend()
    assert len(keyring_file(site.installation.folder).read_bytes().splitlines()) < 12
    assert site.whose(secret)


def test_a_page_of_everybody_s_is_narrowed_to_the_caller_s_tenant() -> None:
    exchange = FakeExchange(b"GET", b"/admin/v1/accounts")
    exchange.query = b"limit=5&model=a%20b"
    narrow(exchange, Caller("acme", "k", "viewer"))
    assert exchange.query == b"limit=5&model=a%20b&tenant=acme"
    exchange.query = b"tenant=shop"
    with pytest.raises(NotFound):
        narrow(exchange, Caller("acme", "k", "viewer"))
    narrow(exchange, Caller("acme", "k", "auditor"))
    assert exchange.query == b"tenant=shop"


async def test_the_same_key_in_two_places_is_refused(site: Site) -> None:
    secret = (await site.done("POST", f"{T}/shop/keys", name="more"))["secret"]
    text = b"[tenants.other.keys.k]\nkey_sha256='%b'\n" % hashed(secret).encode()
    site.installation.file.write_bytes(FILE + text)
    site.start()
    assert "same key as shop/more" in site.office.fault
