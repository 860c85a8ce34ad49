"""Kinds of upstreams by their profiles, through the whole of Tiffin with `openai` unmodified."""

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from tests.system.server import KEY, Server
from tests.system.upstream_fake import Answer, Upstream, serving

pytestmark = pytest.mark.xdist_group("profiles")

SECRET = "sk-theirs"
MODELS = """
[models.{name}]
runtime = "remote"
profile = "{name}"
url = "{url}"
model = "big one"
key_file = "{key}"
"""
# Where each is asked, and what carries the key.
BELOW = {"cohere": "/compatibility/v1"}
RANKED = {"cohere": "/v2/rerank", "jina": "/v1/rerank"}
ASKED = {
    "openai": ("/v1/chat/completions", "authorization", f"Bearer {SECRET}"),
    "azure": (
        "/v1/openai/deployments/big%20one/chat/completions?api-version=2024-10-21",
        "api-key",
        SECRET,
    ),
    "vllm": ("/v1/chat/completions", "authorization", f"Bearer {SECRET}"),
    "groq": ("/v1/chat/completions", "authorization", f"Bearer {SECRET}"),
    "mistral": ("/v1/chat/completions", "authorization", f"Bearer {SECRET}"),
    "sarvam": ("/v1/chat/completions", "api-subscription-key", SECRET),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("profiles")
    key = folder / "theirs"
    key.write_text(SECRET)
    models = [
        MODELS.format(name=name, url=f"{upstream.address}{BELOW.get(name, '/v1')}", key=key)
        for name in [*ASKED, *RANKED]
    ]
    server = Server(folder, "".join(models))
    try:
        server.start()
        server.until_answers("sarvam")
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ASKED)
def test_each_kind_is_asked_as_it_expects(
    client: OpenAI, upstream: Upstream, name: str, stream: bool
) -> None:
    upstream.seen.clear()
    path, header, value = ASKED[name]
    answer = client.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": "hello", "name": "asha"}],
        max_tokens=5,
        user="asha",
        stream=stream,
    )
    if isinstance(answer, openai.Stream):
        said = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
    else:
        said = answer.choices[0].message.content or ""
    assert said == "Namaste."
    [asked] = upstream.seen
    assert asked.path == path
    assert asked.headers[header] == value
    assert KEY not in str(asked.headers)
    assert asked.told["model"] == "big one"
    strict = name in ("groq", "mistral", "sarvam")
    assert ("user" in asked.told, "name" in asked.told["messages"][0]) == (not strict, not strict)


def test_what_the_kind_cannot_do_is_refused_before_it_is_asked(
    client: OpenAI, upstream: Upstream
) -> None:
    upstream.seen.clear()
    with pytest.raises(openai.BadRequestError, match="logprobs") as refused:
        client.chat.completions.create(
            model="groq", messages=[{"role": "user", "content": "hello"}], logprobs=True
        )
    assert refused.value.param == "logprobs"
    with pytest.raises(openai.BadRequestError, match="doesn't do embedding"):
        client.embeddings.create(model="groq", input="hello")
    assert upstream.seen == []


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize("name", RANKED)
def test_documents_are_ranked_elsewhere(
    server: Server, upstream: Upstream, name: str, path: str
) -> None:
    upstream.seen.clear()
    told = {"id": "r", "results": [{"index": 1, "relevance_score": 0.9}]}
    upstream.answers[RANKED[name]] = Answer(told=told)
    asked = {"model": name, "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}
    answer = server.http.post(path, json=asked)
    assert (answer.status_code, answer.json()) == (200, told)
    [seen] = upstream.seen
    assert seen.path == RANKED[name]
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert (seen.told["model"], seen.told["documents"]) == ("big one", ["a", "b"])


def test_a_rankers_own_word_for_what_is_wrong_is_passed_on(
    server: Server, upstream: Upstream
) -> None:
    upstream.answers["/v2/rerank"] = Answer(status=400, told={"message": "too many documents"})
    answer = server.http.post(
        "/v2/rerank", json={"model": "cohere", "query": "q", "documents": ["a"]}
    )
    assert answer.status_code == 400
    assert "too many documents" in answer.text


def test_tokens_are_counted_at_the_root_of_a_vllm(server: Server, upstream: Upstream) -> None:
    upstream.seen.clear()
    server.http.post("/tokenize", json={"model": "vllm", "prompt": "hello"})
    assert [asked.path for asked in upstream.seen] == ["/tokenize"]
