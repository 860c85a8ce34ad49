"""LiteLLM configurations become ours: what maps is right, what doesn't is said, no secret is."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapters.importers.litellm_files import BARE, SELF_HOSTED, STARTUP
from tiffin.adapters.importers.litellm.report import Fate
from tiffin.adapters.importers.litellm.translate import Translated, translate
from tiffin.adapters.importers.yaml_file import parsed
from tiffin.cli.toml_text import toml_text
from tiffin.config.load import load_text
from tiffin.config.policy import effective
from tiffin.config.remote import RemoteModel
from tiffin.config.schema import Config
from tiffin.errors import ConfigInvalid

NOW = datetime(2026, 12, 3, 9, tzinfo=UTC)
DIGEST = sha256(b"sk-virtual-one").hexdigest()


def moved(text: str, keys: Any = None, **environ: str) -> Translated:
    return translate(parsed(text.encode(), "config.yaml"), keys, environ, NOW)


def config_of(found: Translated) -> Config:
    """The configuration as `tiffin check` reads it."""
    return load_text(toml_text(found.tree).encode(), {}).config


def told(found: Translated, fate: Fate) -> str:
    return "\n".join(f"{one.where}: {one.text}" for one in found.report.notes if one.fate is fate)


def test_a_start_ups_file_maps_with_its_fallbacks_limits_and_prices() -> None:
    found = moved(STARTUP)
    config = config_of(found)
    assert {name: list(route.models) for name, route in config.routes.items()} == {
        "gpt-4o": ["gpt-4o-1", "gpt-4o-2", "groq-llama-70b"],
        "gpt-4": ["gpt-4o-1", "gpt-4o-2", "groq-llama-70b"],
    }
    first, second = found.tree["models"]["gpt-4o-1"], found.tree["models"]["gpt-4o-2"]
    assert first == {
        "runtime": "remote",
        "profile": "azure",
        "url": "https://acme-eu.openai.azure.com",
        "model": "gpt-4o-eu",
        "api_version": "2024-10-21",
        "key_env": "AZURE_EU_KEY",
        "attempts": 3,
    }
    assert second == {
        "runtime": "remote",
        "profile": "openai",
        "model": "gpt-4o",
        "key_env": "GPT_4O_2_API_KEY",
        "total_timeout_s": 30.0,
        "first_byte_timeout_s": 5.0,
        "max_concurrency": 20,
        "attempts": 3,
    }
    assert found.tree["models"]["groq-llama-70b"]["key_env"] == "GROQ_API_KEY"
    assert (config.server.request_timeout_s, config.server.max_in_flight) == (120, 500)
    policy = list(effective(config))
    names = "gpt-4o, gpt-4, gpt-4o-1, gpt-4o-2"
    assert f"tenants.litellm: 1000 requests per minute, to {names}" in policy
    assert f"tenants.litellm: 150000 tokens per minute, to {names}" in policy
    assert "tenants.litellm: 100 USD per month" in policy
    prices = {one.model: (one.input, one.output) for one in config.prices.models}
    assert prices["gpt-4o-1"] == prices["gpt-4o-2"] == ("2.5", "10")
    assert prices["groq-llama-70b"] == ("0.6", "0.8")


def test_what_does_not_map_is_said_with_the_reason_and_what_is_left_to_do() -> None:
    found = moved(STARTUP)
    dropped, left = told(found, Fate.DROPPED), told(found, Fate.TO_DO)
    for one in (
        "'claude' isn't mapped: bedrock isn't spoken here",
        "model_list[4]: names with *",
        "litellm_settings.context_window_fallbacks: a prompt that is too long",
        "fallbacks of gpt-4o: there is no 'claude' here",
        "model_group_alias.old: there is no group 'gone' here",
        "litellm_settings.drop_params",
        "litellm_settings.success_callback",
        "router_settings.routing_strategy",
        "general_settings.database_url: no database",
        "general_settings.something_new: there is nothing here that does it",
        "environment_variables.LANGFUSE_SECRET_KEY",
    ):
        assert one in dropped
    for one in (
        "model_list[1].litellm_params.api_key: put the key that stands there into the variable"
        " GPT_4O_2_API_KEY",
        "clients must ask for 'groq-llama-70b' instead",
        "environment_variables.AZURE_EU_KEY: set it",
        "virtual keys are in LiteLLM's database",
    ):
        assert one in left


def test_engines_of_ones_own_map_to_their_profiles_and_addresses() -> None:
    found = moved(SELF_HOSTED, SECOND="http://10.0.0.6:8000/v1")
    config = config_of(found)
    models = found.tree["models"]
    assert list(config.routes["qwen"].models) == ["qwen-2", "qwen-1", "local"]
    assert (models["qwen-1"]["profile"], models["qwen-1"]["model"]) == (
        "vllm",
        "Qwen/Qwen2.5-7B-Instruct",
    )
    assert models["qwen-2"]["url"] == "http://10.0.0.6:8000/v1"
    assert "profile" not in models["qwen-2"]
    assert models["local"]["url"] == "http://127.0.0.1:11434/v1"
    assert "key_env" not in models["local"]
    assert models["embed-1"]["url"].endswith(".invalid/v1")
    assert config.routes["qwen"].timeout_s == 90
    assert {route.cache.ttl_s for route in config.routes.values()} == {3600}
    assert "give [models.embed-1] its address" in told(found, Fate.TO_DO)
    assert "by meaning it isn't" in told(found, Fate.DIFFERENT)
    assert "no endpoint here does image_generation" in told(found, Fate.DROPPED)
    assert "litellm_params.rpm: expected a number" in told(found, Fate.DROPPED)


def test_a_variable_that_is_not_set_leaves_an_address_to_give() -> None:
    found = moved(SELF_HOSTED)
    config_of(found)
    assert "give [models.qwen-2] its address" in told(found, Fate.TO_DO)


def test_a_master_key_is_taken_by_its_hash_only_where_that_keeps_it() -> None:
    keys = moved(BARE).tree["tenants"]["litellm"]["keys"]
    digest = sha256(b"sk-a-master-key-that-is-long-enough-0123").hexdigest()
    assert keys == {"master": {"key_sha256": digest, "admin": True}}
    short = moved(SELF_HOSTED)
    assert short.tree["tenants"]["litellm"]["keys"]["master"]["key_env"] == "LITELLM_MASTER_KEY"
    none = moved(BARE.partition("general")[0])
    assert none.tree["tenants"]["litellm"]["keys"]["master"]["key_env"] == "TIFFIN_API_KEY"
    assert none.tree["models"]["gpt-4o-mini"]["profile"] == "openai"


KEYS: dict[str, Any] = {
    "keys": [
        {
            "token": DIGEST,
            "key_alias": "web shop",
            "team_id": "team-7",
            "models": ["gpt-4o", "claude"],
            "rpm_limit": 60,
            "tpm_limit": 9000,
            "max_parallel_requests": 4,
            "max_budget": 25.5,
            "budget_duration": "30d",
            "expires": "2027-05-01T00:00:00Z",
            "spend": 3.2,
            "metadata": {"note": "hidden-note"},
        },
        {"token": sha256(b"two").hexdigest(), "key_alias": "all", "models": []},
        {"token": sha256(b"3").hexdigest(), "key_alias": "blocked", "blocked": True},
        {"token": sha256(b"4").hexdigest(), "key_alias": "old", "expires": "2020-01-01T00:00:00"},
        {"token": sha256(b"5").hexdigest(), "key_alias": "only", "models": ["claude"]},
        {"token": sha256(b"6").hexdigest(), "key_alias": "shut", "rpm_limit": 0},
        {"token": "sk-in-clear-0123456789", "key_alias": "web shop"},
        {"token": "odd", "key_alias": "odd"},
    ]
}


def test_virtual_keys_keep_their_hashes_bounds_and_teams_and_get_no_more_rights() -> None:
    found = moved(STARTUP, KEYS)
    config = config_of(found)
    tenant = config.tenants["litellm"]
    assert {name for _, name, _ in tenant.every_key()} == {
        "master",
        "web-shop",
        "all",
        "web-shop-2",
    }
    web = tenant.projects["team-7"].keys["web-shop"]
    assert (web.key_sha256, web.models) == (DIGEST, ["gpt-4o"])
    assert (web.limits.requests_per_minute, web.limits.concurrency) == (60, 4)
    assert web.expires == datetime(2027, 5, 1, tzinfo=UTC)
    assert (web.budgets["imported"].amount, web.budgets["imported"].hard) == ("25.5", True)
    dropped = told(found, Fate.DROPPED)
    for name in ("blocked", "old", "only", "shut", "odd"):
        assert f"the key '{name}'" in dropped


def test_one_without_a_model_that_maps_is_refused_with_the_reasons() -> None:
    with pytest.raises(ConfigInvalid, match="bedrock isn't spoken here"):
        moved("model_list: [{model_name: a, litellm_params: {model: bedrock/x}}]")
    with pytest.raises(ConfigInvalid, match="none of its models"):
        moved("just text")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
secret = st.just("hidden-" + 30 * "x")
params = st.fixed_dictionaries(
    {"model": st.sampled_from(["gpt-4o", "groq/x", "openai/a/b", "azure/d", "bedrock/y", "z/*"])},
    optional={
        "api_key": secret,
        "api_base": anything | st.just("http://127.0.0.1:1/v1") | st.just("http://u:hidden-x@h/v1"),
        "rpm": anything,
        "timeout": anything,
        "stream_timeout": st.floats(0, 1e12),
        "input_cost_per_token": anything,
        "order": anything,
        "api_version": anything,
        "extra_headers": st.fixed_dictionaries({"authorization": secret}),
    },
)
entry = st.fixed_dictionaries(
    {"model_name": st.sampled_from(["a", "b", "a-1", "x/y", "*"]), "litellm_params": params},
    optional={"model_info": anything},
)
files = st.fixed_dictionaries(
    {"model_list": st.lists(entry, max_size=5)},
    optional={
        "litellm_settings": st.fixed_dictionaries(
            {},
            optional={
                "fallbacks": anything | st.just([{"a": ["b", "a", "x/y"]}, {"b": ["a"]}]),
                "num_retries": anything,
                "cache": st.booleans(),
                "cache_params": st.fixed_dictionaries({"password": secret}),
                "max_budget": anything,
                "request_timeout": anything,
            },
        ),
        "router_settings": anything | st.just({"model_group_alias": {"z": "a", "a": "b"}}),
        "general_settings": st.fixed_dictionaries({"master_key": secret}),
        "environment_variables": st.fixed_dictionaries({"KEY": secret}),
        "more": anything,
    },
)


@given(files)
def test_whatever_stands_in_it_the_outcome_is_valid_or_refused_and_says_no_secret(
    tree: dict[str, Any],
) -> None:
    try:
        found = translate(tree, None, {}, NOW)
    except ConfigInvalid as refusal:
        said = str(refusal)
    else:
        config_of(found)
        said = json.dumps(found.tree) + "\n".join(found.report.lines())
    assert "hidden-" not in said


@pytest.mark.parametrize(
    ("model", "mode", "profile", "variable"),
    [
        ("cohere/rerank-v3.5", "rerank", "cohere", "COHERE_API_KEY"),
        ("cohere_chat/command-a-03-2025", "chat", "cohere", "COHERE_API_KEY"),
        ("jina_ai/jina-reranker-v2-base-multilingual", "rerank", "jina", "JINA_AI_API_KEY"),
    ],
)
def test_rankers_map(model: str, mode: str, profile: str, variable: str) -> None:
    entry = {"model_name": "m", "litellm_params": {"model": model}, "model_info": {"mode": mode}}
    found = moved(json.dumps({"model_list": [entry]}))
    assert config_of(found).models.keys() == {"m"}
    assert found.tree["models"]["m"] == {
        "runtime": "remote",
        "profile": profile,
        "model": model.partition("/")[2],
        "key_env": variable,
    }


def signed(**params: str) -> Translated:
    return moved(json.dumps({"model_list": [{"model_name": "m", "litellm_params": params}]}))


def test_endpoints_of_clouds_map_with_their_regions() -> None:
    found = signed(
        model="sagemaker_chat/chats",
        aws_region_name="ap-south-1",
        aws_access_key_id="os.environ/AWS_ACCESS_KEY_ID",
        aws_secret_access_key="os.environ/AWS_SECRET_ACCESS_KEY",
    )
    assert found.tree["models"]["m"] == {
        "runtime": "remote",
        "profile": "sagemaker",
        "url": "https://runtime.sagemaker.ap-south-1.amazonaws.com",
        "model": "chats",
    }
    found = signed(
        model="vertex_ai/gemini-2.5-flash",
        vertex_project="acme",
        vertex_location="asia-south1",
        vertex_credentials="/etc/account.json",
    )
    assert found.tree["models"]["m"] == {
        "runtime": "remote",
        "profile": "vertex",
        "url": "https://asia-south1-aiplatform.googleapis.com/v1/projects/acme/locations"
        "/asia-south1/endpoints/openapi",
        "model": "google/gemini-2.5-flash",
        "key_file": "/etc/account.json",
    }
    assert isinstance(config_of(found).models["m"], RemoteModel)
    found = signed(model="vertex_ai/m/x", vertex_project="a", vertex_location="global")
    assert found.tree["models"]["m"]["url"].startswith("https://aiplatform.googleapis.com/v1/p")


def test_their_keys_get_a_variable_and_what_is_missing_is_said() -> None:
    found = signed(
        model="sagemaker_chat/chats", aws_access_key_id="AKIA1", aws_secret_access_key="shh"
    )
    assert found.tree["models"]["m"]["key_env"] == "M_AWS_KEYS"
    assert config_of(found).models.keys() == {"m"}
    todo = told(found, Fate.TO_DO)
    assert "M_AWS_KEYS" in todo
    assert "its address as url" in todo
    assert "AKIA1" not in toml_text(found.tree) + todo
    found = signed(model="vertex_ai/gemini", vertex_credentials='{"private_key": "shh"}')
    assert found.tree["models"]["m"]["key_env"] == "M_GOOGLE_CREDENTIALS"
    assert "shh" not in toml_text(found.tree) + told(found, Fate.TO_DO)


def test_what_vertex_serves_otherwise_is_not_mapped() -> None:
    with pytest.raises(ConfigInvalid, match="aren't asked by OpenAI's protocol"):
        signed(model="vertex_ai/claude-sonnet-4")
