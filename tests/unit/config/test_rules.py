"""Rules between settings."""

import sys

import pytest

from tiffin.config.load import load_text
from tiffin.config.models import RemoteModel
from tiffin.config.policy import effective
from tiffin.config.schema import Config
from tiffin.errors import ConfigInvalid

DIGEST = "ab" * 32
ECHO = "[models.m]\nruntime='echo'\n[models.n]\nruntime='echo'\n"
REMOTE = "[models.r]\nruntime='remote'\n"
FILE = f"[models.f]\nruntime='llamacpp'\nsha256='{DIGEST}'\n"


def config(text: str) -> Config:
    return load_text(text.encode(), {}).config


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[server]\nport=1\ngrpc_port=1", "server.grpc_port"),
        ("[server.vault]\nkey_env='A'\nkey_file='/a'", "server.vault"),
        ("[server.vault.previous]\nkey_file='a'", "server.vault.previous.key_file"),
        ("[server.idempotency]\nmax_bytes=99", "server.idempotency.max_bytes"),
        ("[server.idempotency]\nmax_tenant_bytes=99", "server.idempotency.max_tenant_bytes"),
        ("[tenants.t.keys.k]", "tenants.t.keys.k"),
        ("[tenants.t.keys.k]\nkey_env='A'\nkey_file='/a'", "tenants.t.keys.k"),
        ("[tenants.t.keys.k]\nkey_sha256='xyz'", "tenants.t.keys.k.key_sha256"),
        ("[tenants.t.keys.k]\nkey_file='here'", "tenants.t.keys.k.key_file"),
        ("[tenants.t.keys.k]\nkey_env='A'\nmodels=['q']", "tenants.t.keys.k.models"),
        ("[tenants.t.limits]\nconcurrency=-1", "tenants.t.limits.concurrency"),
        ("[tenants.t.limits]\nburst=3", "tenants.t.limits.burst"),
        (ECHO + "guard='g'", "models.n.guard"),
        (ECHO + "cache.semantic.embedder='o'", "models.n.cache.semantic.embedder"),
        (ECHO + "cache.semantic.embedder='m'", "models.n.cache.semantic.embedder"),
        (ECHO + "cache.semantic.thresholds.en=0.9", "models.n.cache.semantic.embedder"),
        (
            ECHO + "[routes.r]\nmodels=['m']\n[routes.r.cache.semantic.thresholds]\nfr=0.9",
            "routes.r.cache.semantic.embedder",
        ),
        (
            REMOTE + "url='http://h'\n[routes.s]\nmodels=['r']\n[routes.s.cache.semantic]\n"
            "embedder='r'\nthresholds={fr=0.9}",
            "routes.s.cache.semantic.thresholds.fr",
        ),
        (ECHO + "[routes.m]\nmodels=['n']", "routes.m"),
        (ECHO + "[routes.r]\nmodels=[]", "routes.r.models"),
        (ECHO + "[routes.r]\nmodels=['m','m']", "routes.r.models"),
        (ECHO + "[routes.r]\nmodels=['o']", "routes.r.models"),
        (ECHO + "[routes.r]\nmodels=['m']\nguard='g'", "routes.r.guard"),
        (
            ECHO + "guard='g'\n[guards.g]\nkind='personal_data'\n[routes.r]\nmodels=['m','n']",
            "routes.r.guard",
        ),
        (REMOTE, "models.r.url"),
        (REMOTE + "profile='vllm'", "models.r.url"),
        (REMOTE + "profile='opneai'", "models.r.profile"),
        (REMOTE + "url='http://h'\nprotocol='oip'\nprofile='vllm'", "models.r.profile"),
        (REMOTE + "url='http://h'\napi_version='1'", "models.r.api_version"),
        (REMOTE + "url='http://h'\nprofile='azure'\napi_version='1&a=b'", "models.r.api_version"),
        (REMOTE + "url='ftp://host/v1'", "models.r.url"),
        (REMOTE + "url='https:///v1'", "models.r.url"),
        (REMOTE + "url='https://a..b/v1'", "models.r.url"),
        (REMOTE + f"url='https://{'a' * 64}.com/v1'", "models.r.url"),
        (REMOTE + r"url='https://evil.com\.example.com/v1'", "models.r.url"),
        (REMOTE + "url='https://[::1/v1'", "models.r.url"),
        (REMOTE + "url='https://host:99999/v1'", "models.r.url"),
        (REMOTE + "url='https://me:pw@host/v1'", "models.r.url"),
        (REMOTE + "url='https://host/v 1'", "models.r.url"),
        (REMOTE + "url='https://hóst/v1'", "models.r.url"),
        (REMOTE + 'url="https://host/v1\\r\\nx: y"', "models.r.url"),
        (REMOTE + "url='https://host/v1'\nkey_env='A'\nkey_file='/a'", "models.r"),
        (FILE + "sources=[]", "models.f.sources"),
        (FILE + "sources=['ftp://x']", "models.f.sources[0]"),
        (FILE + "sources=['model.gguf']", "models.f.sources[0]"),
    ],
)
def test_a_broken_rule_is_named_by_its_path(text: str, where: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        config(text)
    assert refused.value.where == where


def test_a_port_for_grpc_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigInvalid, match=r"tiffin\[grpc\]"):
        config("[server]\ngrpc_port=9000")


def test_what_agrees_is_accepted() -> None:
    got = config(
        ECHO
        + REMOTE
        + "url='https://host:8443/v1'\nkey_env='A'\n"
        + FILE
        + "sources=['hf:a/b/c.gguf','file:/c.gguf']\n"
        + "[guards.g]\nkind='personal_data'\n"
        + "[routes.best]\nmodels=['f','r']\nguard='g'\n"
        + "[tenants.t.keys.k]\nkey_file='~/key'\nmodels=['best','m']\n"
    )
    assert list(got.routes) == ["best"]


def test_an_unknown_profile_is_told_those_that_there_are() -> None:
    with pytest.raises(
        ConfigInvalid, match=r"did you mean openai\?; known: openai, azure, anthropic"
    ):
        config(REMOTE + "url='http://h'\nprofile='opneai'")


def test_a_profile_knows_where_its_server_is_and_that_is_egress_too() -> None:
    model = config(REMOTE + "profile='sarvam'").models["r"]
    assert isinstance(model, RemoteModel)
    assert model.address == "https://api.sarvam.ai/v1"
    with pytest.raises(ConfigInvalid, match=r"egress\.allow"):
        config("[egress]\nallow=['h']\n" + REMOTE + "profile='sarvam'")


HOSTED = REMOTE + "url='https://API.one.example.com./v1'\n"


@pytest.mark.parametrize(
    "allow",
    [
        "api.one.example.com",
        "Api.One.Example.com",
        "api.one.example.com:443",
        "*.example.com",
        "*.one.example.com:443",
    ],
)
def test_a_listed_host_may_be_reached(allow: str) -> None:
    config(f"[egress]\nallow=['elsewhere','{allow}']\n{HOSTED}")


@pytest.mark.parametrize(
    "allow",
    ["", "one.example.com", "api.one.example.com:80", "*.api.one.example.com", "*.xample.com"],
)
def test_a_host_that_is_not_listed_may_not(allow: str) -> None:
    listed = f"'{allow}'" if allow else ""
    with pytest.raises(ConfigInvalid, match=r"egress\.allow") as refused:
        config(f"[egress]\nallow=[{listed}]\n{HOSTED}")
    assert refused.value.where == "models.r.url"


@pytest.mark.parametrize("url", ["http://[::1]:9000/v1", "http://10.0.0.7:9000"])
def test_addresses_are_listed_as_they_are_written(url: str) -> None:
    config(f"[egress]\nallow=['[::1]:9000','10.0.0.7']\n{REMOTE}url='{url}'")


@pytest.mark.parametrize(
    "entry",
    ["https://host", "host/path", "me@host", "a.*.b", "host:port", "a b", "host:70000"],
)
def test_an_entry_that_names_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ConfigInvalid, match="expected") as refused:
        config(f"[egress]\nallow=['{entry}']")
    assert refused.value.where == "egress.allow[0]"


@pytest.mark.parametrize("section", ["", "[egress]\n", "[egress]\nallow=['*']\n"])
def test_without_a_list_a_model_may_be_anywhere(section: str) -> None:
    assert "r" in config(section + HOSTED).models


SAGE = REMOTE + "profile='sagemaker'\nurl='https://runtime.sagemaker.eu-west-1.amazonaws.com'\n"
VERTEX = (
    REMOTE
    + "profile='vertex'\nurl='https://asia-south1-aiplatform.googleapis.com/v1/projects/p"
    + "/locations/asia-south1/endpoints/openapi'\n"
)


@pytest.mark.parametrize(
    ("text", "region"),
    [
        (SAGE, "eu-west-1"),
        (SAGE + "region='eu-west-1'", "eu-west-1"),
        (SAGE + "region='eu'", "eu"),
        (VERTEX, "asia-south1"),
        (REMOTE + "url='https://h'", ""),
    ],
)
def test_some_addresses_say_where_they_compute(text: str, region: str) -> None:
    model = config(text).models["r"]
    assert isinstance(model, RemoteModel)
    assert model.located == region


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (SAGE + "region='ap-south-1'", "models.r.region"),
        (VERTEX + "region='us-central1'", "models.r.region"),
        (VERTEX.replace("ns/asia-south1", "ns/us-central1"), "models.r.url"),
        (REMOTE + "profile='sagemaker'\nurl='http://h'", "models.r.region"),
    ],
)
def test_a_region_that_the_address_contradicts_is_refused(text: str, where: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        config(text)
    assert refused.value.where == where


def test_what_the_tries_of_a_route_come_to_is_told() -> None:
    route = "[routes.q]\nmodels=['m', 'n']\nattempts=4\n"
    told = "routes.q: at most 4 calls for each request, to m, then n"
    assert told in list(effective(config(ECHO + route)))
    hedged = f"{told}; a second beside the first after 800 ms, for no more than 5 % of requests"
    assert hedged in list(effective(config(f"{ECHO}{route}[routes.q.hedge]\nafter_ms=800")))
