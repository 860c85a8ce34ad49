"""What a kind of server is sent: where it expects it, in its words, and nothing that it refuses."""

from typing import Any

import msgspec
import pytest

from tests.unit.dialects.test_parameters import ROOTS
from tiffin.dialects.openai.embeddings import read_embedding
from tiffin.dialects.openai.parameters import NEUTRAL, unsupported_by
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.errors import UnsupportedParameter
from tiffin.testing.exchange import FakeExchange
from tiffin.types.profiles import LABELS, PLAIN, PROFILES
from tiffin.types.snapshot import Plan, Target

EXCHANGE = FakeExchange(b"POST", b"/")
CHAT = TextEndpoint("chat", b"/v1/chat/completions")
LABELLED = {
    "user": "u",
    "metadata": {"a": "b"},
    "safety_identifier": "s",
    "prompt_cache_key": "p",
    "messages": [{"role": "user", "content": "hi", "name": "Asha"}],
}


def target(profile: str) -> Target:
    return Target(model="m", revision="r", kind="remote", profile=profile, upstream_model="theirs")


def sent(profile: str, **fields: Any) -> dict[str, Any]:
    """The body that a server of this profile gets for a chat with these fields."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    asked = CHAT.read(EXCHANGE, msgspec.json.encode(body))
    forward = asked.forward(target(profile))
    assert forward.path == b"/chat/completions"
    found: dict[str, Any] = msgspec.json.decode(forward.body)
    assert found.get("model") == ("theirs" if PROFILES[profile].names_model else None)
    return found


@pytest.mark.parametrize("name", PROFILES)
def test_every_name_that_a_profile_refuses_is_a_field(name: str) -> None:
    for refused in PROFILES[name].unsupported:
        root, _, field = refused.rpartition(".")
        assert field in ROOTS[root]
    assert PROFILES[name].unsent <= LABELS


@pytest.mark.parametrize("name", PROFILES)
def test_labels_are_left_out_where_they_would_be_refused(name: str) -> None:
    found = sent(name, **LABELLED)
    kept = {label for label in LABELS if label in found}
    kept |= {"messages.name"} if "name" in found["messages"][0] else set()
    assert kept == LABELS - PROFILES[name].unsent


@pytest.mark.parametrize("given", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("name", PROFILES)
def test_the_limit_of_an_answer_has_the_name_that_is_known(name: str, given: str) -> None:
    found = sent(name, **{given: 7})
    limits = {key: value for key, value in found.items() if key.startswith("max_")}
    assert limits == {PROFILES[name].limit_name or given: 7}


@pytest.mark.parametrize("name", PROFILES)
def test_usage_is_asked_of_a_stream_where_that_may_be_asked(name: str) -> None:
    asks = PROFILES[name].asks_usage
    assert sent(name, stream=True).get("stream_options") == (
        {"include_usage": True} if asks else None
    )
    assert "stream_options" not in sent(name)


@pytest.mark.parametrize("name", ["mistral", "openai"])
def test_vectors_are_asked_for_without_labels_too(name: str) -> None:
    asked = read_embedding(EXCHANGE, b'{"model":"m","input":"a","user":"u"}')
    found = msgspec.json.decode(asked.forward(target(name)).body)
    assert found.get("user") == (None if PROFILES[name].unsent else "u")


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_server_cannot_do_is_refused_by_name(name: str) -> None:
    values: dict[str, Any] = {
        "n": 2,
        "logprobs": True,
        "logit_bias": {"1": 5},
        "seed": 3,
        "verbosity": "low",
        "frequency_penalty": 1,
    }
    for field, value in values.items():
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], field: value}
        asked = CHAT.read(EXCHANGE, msgspec.json.encode(body))
        plan = Plan(name="m", identity="", targets=(target(name),))
        if field in PROFILES[name].unsupported:
            with pytest.raises(UnsupportedParameter, match=field) as refused:
                asked.check(plan)
            assert refused.value.param == field
        else:
            asked.check(plan)


def test_a_route_refuses_what_any_of_its_servers_cannot_do() -> None:
    both = unsupported_by(
        (
            target("openai"),
            target("groq"),
        )
    )
    assert both >= PROFILES["groq"].unsupported
    assert NEUTRAL["tool_choice"] == ("auto",)


@pytest.mark.parametrize(
    ("name", "path", "below", "found"),
    [
        ("vllm", b"/chat/completions", "/v1", b"/v1/chat/completions"),
        ("vllm", b"/tokenize", "/v1", b"/tokenize"),
        ("vllm", b"/tokenize", "/team/v1", b"/team/tokenize"),
        ("", b"/v2/models/a/infer", "", b"/v2/models/a/infer"),
        ("cohere", b"/rerank", "/compatibility/v1", b"/v2/rerank"),
        ("cohere", b"/rerank", "/proxy", b"/proxy/v2/rerank"),
        (
            "cohere",
            b"/chat/completions",
            "/compatibility/v1",
            b"/compatibility/v1/chat/completions",
        ),
        ("jina", b"/rerank", "/v1", b"/v1/rerank"),
        (
            "azure",
            b"/chat/completions",
            "",
            b"/openai/deployments/a%2Fb/chat/completions?api-version=2024-10-21",
        ),
        (
            "azure",
            b"/embeddings",
            "/x",
            b"/x/openai/deployments/a%2Fb/embeddings?api-version=2024-10-21",
        ),
    ],
)
def test_each_server_is_asked_where_it_answers(
    name: str, path: bytes, below: str, found: bytes
) -> None:
    profile = PROFILES.get(name, PLAIN)
    assert profile.place(path, below=below, model="a/b", version="") == found


def test_a_named_version_is_asked_for() -> None:
    place = PROFILES["azure"].place(b"/embeddings", below="", model="d", version="2025-01-01")
    assert place.endswith(b"?api-version=2025-01-01")
