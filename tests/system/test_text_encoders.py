"""Vectors and rankings through the whole of Tiffin: `openai` unmodified, real models."""

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from openai import AsyncOpenAI, OpenAI

from tests.real_models import model_file, model_files
from tests.system.server import KEY, Server, until
from tests.system.text_fake import Fake, serving
from tiffin.app.pairs import sample_pairs
from tiffin.cli.calibrating_cache import calibrate
from tiffin.cli.connect import Address
from tiffin.config.models import OnnxModel
from tiffin.control.catalogue.starter import CHAT_TINY, STARTER_MODELS

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("text encoders")]

ELSEWHERE = """
[models.elsewhere]
runtime = "remote"
url = "{url}"
model = "their-embedder"

[routes.cached]
models = ["elsewhere"]
cache = {{ ttl_s = 60.0 }}

[models.parrot]
runtime = "echo"
token_ms = 0.0

[models.parrot.cache]
ttl_s = 60.0
semantic = {{ embedder = "embed", thresholds = {{ en = 0.9 }}, wait_ms = 10_000.0 }}

[models.gguf]
runtime = "llamacpp"
task = "embed"
pooling = "mean"
context = 256
sources = ["file:{file}"]
sha256 = "{sha256}"

[guards.personal]
kind = "personal_data"

[routes.guarded]
models = ["embed"]
guard = "personal"
"""
RELATED = ["A cat sat on the mat.", "A kitten rests on a rug."]
UNRELATED = "Shares fell after the bank raised its interest rate."
MARK = "x-tiffin-cache"
QUESTION = "What is the capital of France?"
PASSAGES = [
    "Bananas are rich in potassium.",
    "Paris has been the capital of France since the tenth century.",
    "France exports wine and cheese.",
]


def section(name: str) -> str:
    """A starter model with its already fetched files."""
    model = STARTER_MODELS[name]
    assert isinstance(model, OnnxModel)
    text = (
        f'\n[models.{name}]\nruntime = "onnx"\ntask = "{model.task}"\npooling = "{model.pooling}"\n'
    )
    for known_as, path in model_files(name).items():
        digest = model.files[known_as].sha256
        text += f'\n[models.{name}.files."{known_as}"]\nsources = ["file:{path}"]\n'
        text += f'sha256 = "{digest}"\n'
    return text


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Fake]:
    with serving() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, elsewhere: Fake) -> Iterator[Server]:
    models = (
        section("embed")
        + section("rerank")
        + ELSEWHERE.format(url=elsewhere.url, file=model_file("chat-tiny"), sha256=CHAT_TINY.sha256)
    )
    server = Server(tmp_path_factory.mktemp("texts"), models)
    try:
        server.start()
        for name in ("embed", "rerank", "gguf"):
            server.until_ready(name, within_s=60)
            until(lambda name=name: tokenizes(server, name), 20, server.explain)  # type: ignore[misc]
        yield server
    finally:
        server.close()


def tokenizes(server: Server, name: str) -> bool:
    return server.http.post("/tokenize", json={"model": name, "prompt": "a"}).status_code == 200


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0) as client:
        yield client


class Alone:
    """The same model in this process, by onnxruntime and tokenizers alone."""

    def __init__(self, name: str) -> None:
        import onnxruntime  # type: ignore[import-untyped]
        from tokenizers import Tokenizer

        files = model_files(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(files["model.onnx"]), options)
        self._tokenizer = Tokenizer.from_file(str(files["tokenizer.json"]))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def ids(self, text: str, second: str | None = None) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, second).ids
        return found

    def output(self, text: str, second: str | None = None) -> NDArray[np.float32]:
        read = self._tokenizer.encode(text, second)
        ids = np.array([read.ids])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        given: NDArray[np.float32] = self._session.run(
            None, {**feed, "token_type_ids": np.array([read.type_ids])}
        )[0]
        return given

    def vector(self, text: str) -> NDArray[np.float32]:
        first: NDArray[np.float32] = self.output(text)[0, 0]
        return first / np.linalg.norm(first)


@pytest.fixture(scope="module")
def embedder() -> Alone:
    return Alone("embed")


def vectors(answer: Any) -> NDArray[np.float32]:
    return np.array([row.embedding for row in answer.data], np.float32)


def test_related_texts_are_nearer_than_others(client: OpenAI) -> None:
    answer = client.embeddings.create(model="embed", input=[*RELATED, UNRELATED])
    one, other, far = vectors(answer)
    assert one @ other > one @ far + 0.1
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20
    assert [row.index for row in answer.data] == [0, 1, 2]


def test_a_gguf_file_gives_vectors_alone_and_among_others(client: OpenAI) -> None:
    create = client.embeddings.create
    [alone] = vectors(create(model="gguf", input=RELATED[0]))
    answer = create(model="gguf", input=[*RELATED, UNRELATED])
    one, other, far = vectors(answer)
    assert one @ other > one @ far
    np.testing.assert_allclose(alone, one, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors(answer), axis=1), 1, atol=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        create(model="gguf", input="a", dimensions=8)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="gguf", messages=[{"role": "user", "content": "a"}])


def test_every_way_to_ask_gives_what_onnxruntime_gives(client: OpenAI, embedder: Alone) -> None:
    expected = embedder.vector(RELATED[0])
    create = client.embeddings.create
    ids = embedder.ids(RELATED[0])
    answers = [
        create(model="embed", input=RELATED[0]),  # base64, as this client asks by itself
        create(model="embed", input=RELATED[0], encoding_format="float"),
        create(model="embed", input=ids),
        create(model="embed", input=[ids, ids]),
        create(model="embed", input=RELATED * 20, dimensions=384),
    ]
    for answer in answers:
        np.testing.assert_allclose(vectors(answer)[0], expected, atol=1e-4)
    assert [len(answer.data) for answer in answers] == [1, 1, 1, 2, 40]
    assert answers[0].usage.prompt_tokens == len(ids)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"dimensions": 128}, "dimensions", "unsupported_parameter"),
        ({"input": ["fine", ""]}, "input[1]", "invalid_value"),
        ({"input": [[101, 30522]]}, "input", "invalid_value"),
        ({"input": ["fine", "word " * 600]}, "input[1]", "context_length_exceeded"),
        ({"extra_body": {"truncate": 1}}, "truncate", "unknown_parameter"),
        ({"model": "rerank"}, None, None),
    ],
    ids=str,
)
def test_what_can_t_be_is_refused_by_name(
    client: OpenAI, fields: dict[str, Any], param: str | None, code: str | None
) -> None:
    wanted: dict[str, Any] = {"model": "embed", "input": "fine", **fields}
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(**wanted)
    assert code in (None, caught.value.code)
    assert param in (None, caught.value.param)


def test_documents_are_ranked_by_what_answers(server: Server) -> None:
    asked = {
        "model": "rerank",
        "query": QUESTION,
        "documents": [*PASSAGES[:2], {"text": PASSAGES[2]}],
    }
    reply = server.http.post("/v1/rerank", json=asked)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert [row["index"] for row in told["results"]] == [1, 2, 0]
    alone = Alone("rerank")
    for row in told["results"]:
        logit = float(alone.output(QUESTION, PASSAGES[row["index"]])[0, 0])
        assert row["relevance_score"] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-4)
    tokens = sum(len(alone.ids(QUESTION, passage)) for passage in PASSAGES)
    assert told["usage"]["total_tokens"] == tokens
    best = server.http.post("/v1/rerank", json={**asked, "top_n": 1, "return_documents": True})
    [row] = best.json()["results"]
    assert row["document"] == {"text": PASSAGES[1]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["a", "word " * 600]}, "documents[1]"),
        ({"max_chunks_per_doc": 1}, "max_chunks_per_doc"),
        ({"model": "embed"}, None),
    ],
    ids=str,
)
def test_a_ranking_that_can_t_be_is_refused_by_name(
    server: Server, fields: dict[str, Any], param: str | None
) -> None:
    asked = {"model": "rerank", "query": "q", "documents": ["a"], **fields}
    reply = server.http.post("/v1/rerank", json=asked)
    assert reply.status_code == 400, reply.text
    assert param in (None, reply.json()["error"]["param"])


async def test_many_at_once_each_get_their_own_and_bad_ones_their_own_error(
    server: Server, embedder: Alone
) -> None:
    texts = [f"Order {number}: " + "tea and biscuits " * (number * 7 % 23) for number in range(64)]
    base_url = f"{server.status().address}/v1"

    async with AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0) as several:

        async def ask(number: int) -> Any:
            text: Any = texts[number] if number % 8 else ["fine", "x " * 700]
            return await several.embeddings.create(model="embed", input=text)

        answers = await asyncio.gather(*map(ask, range(64)), return_exceptions=True)
    for number, answer in enumerate(answers):
        if number % 8 == 0:
            assert isinstance(answer, openai.BadRequestError)
            assert answer.param == "input[1]"
        else:
            np.testing.assert_allclose(
                vectors(answer)[0], embedder.vector(texts[number]), atol=1e-4
            )


def test_what_leaves_is_not_computed(server: Server) -> None:
    def count(family: str) -> float:
        lines = server.http.get("/metrics").text.splitlines()
        ours = (line for line in lines if line.startswith(family + "{") and '"embed"' in line)
        return sum(float(line.split()[-1]) for line in ours)

    before = count("nv_inference_exec_count")
    long = ["many words " * 200] * 400  # of which each takes more than 20 ms
    with pytest.raises(httpx.ReadTimeout):
        server.http.post("/v1/embeddings", json={"model": "embed", "input": long}, timeout=1.0)
    until(lambda: any(row["outcome"] == "cancelled" for row in server.accounts()), 10)
    assert server.http.post("/v1/embeddings", json={"model": "embed", "input": "a"}).is_success
    until(lambda: count("nv_inference_exec_count") > before, 5)
    until(lambda: not count("nv_inference_pending_request_count"), 2)
    until(lambda: not count("tiffin_batches_running"), 2)
    assert count("nv_inference_exec_count") - before < 60


def test_tokens_and_tensors_of_the_same_model(server: Server, embedder: Alone) -> None:
    post = server.http.post
    tokens = post("/tokenize", json={"model": "embed", "prompt": "hello world"}).json()
    assert tokens == {"tokens": [101, 7592, 2088, 102], "count": 4, "max_model_len": 512}
    said = post("/detokenize", json={"model": "embed", "tokens": [7592, 2088]}).json()
    assert said == {"prompt": "hello world"}
    row = {"datatype": "INT64", "shape": [1, 4]}
    feed = {"input_ids": tokens["tokens"], "attention_mask": [1] * 4, "token_type_ids": [0] * 4}
    inputs = [{"name": name, "data": data, **row} for name, data in feed.items()]
    [output] = post("/v2/models/embed/infer", json={"inputs": inputs}).json()["outputs"]
    hidden = np.array(output["data"]).reshape(output["shape"])
    np.testing.assert_allclose(hidden, embedder.output("hello world"), atol=1e-5)


def test_the_account_has_tokens_and_times(server: Server) -> None:
    reply = server.http.post("/v1/embeddings", json={"model": "embed", "input": "hello world"})
    number = reply.headers["x-request-id"]

    def account() -> dict[str, Any] | None:
        return next((row for row in server.accounts() if row["id"] == number), None)

    row = until(account, 10)
    assert (row["endpoint"], row["outcome"]) == ("embeddings", "ok")
    assert row["prompt_tokens"] == 4
    assert row["device_ns"] > 0


def test_somebody_elses_vectors_and_rankings(
    server: Server, client: OpenAI, elsewhere: Fake
) -> None:
    answer = client.embeddings.create(model="elsewhere", input=["four", "sixsix"], dimensions=2)
    assert [row.embedding for row in answer.data] == [[4.0, 0.5], [6.0, 0.5]]
    assert answer.usage.total_tokens == 21
    path, asked = elsewhere.seen[-1]
    assert (path, asked["model"], asked["dimensions"]) == ("/v1/embeddings", "their-embedder", 2)
    body = {"model": "elsewhere", "query": "q", "documents": ["a", "bbb"], "max_chunks_per_doc": 2}
    ranked = server.http.post("/v1/rerank", json=body)
    assert [row["index"] for row in ranked.json()["results"]] == [1, 0]
    assert elsewhere.seen[-1] == ("/v1/rerank", {**body, "model": "their-embedder"})


def test_an_answer_that_left_texts_out_is_none(client: OpenAI, elsewhere: Fake) -> None:
    elsewhere.rows = 1
    try:
        with pytest.raises(openai.InternalServerError, match="1 'data' where 2 were asked for"):
            client.embeddings.create(model="elsewhere", input=["a", "b"])
    finally:
        elsewhere.rows = None


def test_the_same_vectors_come_from_the_cache(server: Server, elsewhere: Fake) -> None:
    body = {"model": "cached", "input": "say it again"}
    first = server.http.post("/v1/embeddings", json=body)
    asked = len(elsewhere.seen)
    again = server.http.post("/v1/embeddings", json={**body, "user": "somebody"})
    assert (first.headers["x-tiffin-cache"], again.headers["x-tiffin-cache"]) == ("miss", "hit")
    assert (again.json()["data"], len(elsewhere.seen)) == (first.json()["data"], asked)
    assert again.json()["usage"]["total_tokens"] == 0
    until(lambda: "x-tiffin-cache-inputs" in server.http.post("/v1/embeddings", json=body).headers)
    more = server.http.post("/v1/embeddings", json={**body, "input": ["new", "say it again"]})
    assert (more.headers["x-tiffin-cache"], elsewhere.seen[-1][1]["input"]) == ("partial", ["new"])
    assert more.json()["data"][1]["embedding"] == first.json()["data"][0]["embedding"]


@pytest.mark.parametrize("given", [["fine", "mail a.b@example.com"], [101, 7592, 102]], ids=str)
def test_a_guard_looks_at_texts_and_refuses_token_ids(server: Server, given: Any) -> None:
    reply = server.http.post("/v1/embeddings", json={"model": "guarded", "input": given})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "content_filter")


def test_a_chat_in_other_words_is_answered_by_the_cache_and_its_opposite_is_not(
    server: Server,
) -> None:
    """With a real embedder, to which both are nearly the same."""

    def asked(text: str) -> httpx.Response:
        reply = server.chat("parrot", text)
        assert reply.status_code == 200, reply.text
        return reply

    first = asked("How do I turn on the heater in the kitchen?")
    kept = server.http.get
    until(lambda: "parrot" in kept("/admin/v1/cache").text)
    again = asked("Can you tell me how to switch on the heater in the kitchen?")
    assert (again.headers[MARK], again.json()["choices"]) == ("semantic", first.json()["choices"])
    assert float(again.headers["x-tiffin-cache-similarity"]) > 0.9
    assert asked("How do I turn off the heater in the kitchen?").headers[MARK] == "miss"
    assert asked("How do I turn on 2 heaters in the kitchen?").headers[MARK] == "miss"

    def account() -> dict[str, Any] | None:
        number = again.headers["x-request-id"]
        return next((row for row in server.accounts() if row["id"] == number), None)

    row = until(account, 10)
    assert (row["cache"], row["prompt_tokens"], row["target"]) == ("semantic", 0, "embed")
    assert row["retried_ns"] > 0


def test_calibration_finds_what_is_safe_and_says_what_is_not(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = sample_pairs("en")[::8] + sample_pairs("hi")[::6]
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, pairs)))
    calibrate(Address(url=server.status().address, key=KEY), "embed", path, as_json=True)
    english, hindi = json.loads(capsys.readouterr().out)
    assert (english["language"], english["false_hits"], hindi["false_hits"]) == ("en", 0, 0)
    assert english["recall"] >= 0.5
    assert english["threshold"] > 0.8
    assert english["vectors_alone"] > 10, "no threshold alone would do"
    assert hindi["threshold"] is None, "its embedder is for English"
