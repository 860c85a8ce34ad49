"""A replica of texts on exchanges without a socket: a real tokenizer, a graph of full precision."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.contract.test_tokenizer import WORDS, write
from tests.onnx_graphs import graph, written
from tiffin.app.clock import SystemClock
from tiffin.app.hosted import Surroundings
from tiffin.app.hosted_text_encoder import onnx_encoder_hosted
from tiffin.config.models import OnnxModel
from tiffin.errors import LoadFailed
from tiffin.ports.exchange import Headers
from tiffin.serving.progress import ProgressFile
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.snapshot import Deployment, PlacedFile

PLAIN = ["tea", "bis", "tea tea", "bis tea bis", "tea " * 30, "bis " * 50, "tea bis " * 11]
POISON = "and tea"
"""The tokenizer knows the word, and the graph's table ends before it."""


def averaging() -> bytes:
    """Every token's vector is its row of a table, which ends one word too early."""
    dims: list[int | str | None] = ["n", "l"]
    return graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"], axis=0),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["masks"]),
            helper.make_node("Mul", ["rows", "masks"], ["last_hidden_state"]),
        ],
        dict.fromkeys(("input_ids", "attention_mask"), (TensorProto.INT64, dims)),
        {"last_hidden_state": (TensorProto.FLOAT, [*dims, 3])},
        {"table": TABLE, "last": np.array([2], np.int64)},
    )


TABLE = np.random.default_rng(3).normal(size=(len(WORDS) - 1, 3)).astype(np.float32)
IDS = {word: at for at, word in enumerate(WORDS)}


def expected(text: str) -> list[float]:
    """What the mean of these tokens is."""
    ids = [2, *(IDS[word] for word in text.split()), 3]
    mean = TABLE[ids].mean(axis=0)
    return [float(value) for value in mean / np.linalg.norm(mean)]


class Site:
    """A hosted model of texts, and ways to ask it."""

    def __init__(self, folder: Path, **model: Any) -> None:
        files = {
            "model.onnx": written(folder, averaging()),
            "tokenizer.json": write(folder / "tokenizer.json"),
        }
        settings = OnnxModel(
            **{"files": {}, "task": "embed", "max_tokens": 64, "max_batch": 8, **model}
        )
        deployment = Deployment(
            model="m",
            revision="sha256:" + "1" * 64,
            socket=str(folder / "replica.sock"),
            spec=msgspec.Raw(msgspec.json.encode(settings)),
            files={name: PlacedFile(path=str(path), sha256="") for name, path in files.items()},
        )
        self.meter = Meter("replica", "ep_1")
        self.progress = ProgressFile(folder / "progress")
        around = Surroundings(deployment, SystemClock(), self.progress, self.meter, 1_000_000)
        self.hosted = onnx_encoder_hosted(around)

    async def start(self) -> "Site":
        await self.hosted.load()
        await self.hosted.warm_up()
        return self

    async def close(self) -> None:
        await self.hosted.close()
        self.progress.close()

    async def post(self, path: str, body: Any, headers: Headers | None = None) -> FakeExchange:
        sent = msgspec.json.encode({"model": "m", **body})
        exchange = FakeExchange(b"POST", path.encode(), headers=headers or [], body=sent)
        return await answered(self.hosted.answer, exchange)

    async def embed(self, given: Any, **more: Any) -> FakeExchange:
        return await self.post("/v1/embeddings", {"input": given, **more})

    def counts(self, family: str) -> dict[tuple[str, ...], float]:
        state = msgspec.json.decode(self.meter.state())
        found = [one for one in state["families"] if one["name"] == family]
        return {tuple(labels): numbers[0] for one in found for labels, numbers in one["series"]}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_many_lengths_at_once_run_together_and_each_gets_its_own(site: Site) -> None:
    before = sum(site.counts("nv_inference_exec_count").values())
    texts = [PLAIN[at % len(PLAIN)] for at in range(64)]
    answers = await asyncio.gather(*map(site.embed, texts))
    for text, answer in zip(texts, answers, strict=True):
        assert answer.status == 200
        [row] = json_of(answer)["data"]
        assert row["embedding"] == pytest.approx(expected(text), abs=1e-5)
    runs = sum(site.counts("nv_inference_exec_count").values()) - before
    assert len(PLAIN) <= runs < 32


async def test_a_text_on_which_the_model_fails_harms_nobody_beside_it(site: Site) -> None:
    texts = ["tea bis", POISON, "bis tea", POISON, "tea tea"]
    answers = await asyncio.gather(*map(site.embed, texts))
    assert [answer.status == 200 for answer in answers] == [text != POISON for text in texts]
    assert (answers[1].status, json_of(answers[1])["error"]["param"]) == (400, "input")
    several = json_of(await site.embed(["tea", POISON, "bis"]))
    assert several["error"]["param"] == "input[1]"
    [row] = json_of(answers[2])["data"]
    assert row["embedding"] == pytest.approx(expected("bis tea"), abs=1e-5)


async def test_several_texts_come_in_order_and_tell_what_they_used(site: Site) -> None:
    answer = await site.embed(PLAIN, encoding_format="base64")
    rows = json_of(answer)["data"]
    vectors = [struct.unpack("<3f", base64.b64decode(row["embedding"])) for row in rows]
    for text, vector in zip(PLAIN, vectors, strict=True):
        assert list(vector) == pytest.approx(expected(text), abs=1e-5)
    usage = msgspec.json.decode(answer.answer_headers[b"x-tiffin-usage"])
    tokens = sum(2 + len(text.split()) for text in PLAIN)
    assert (usage["prompt_tokens"], usage["rows"]) == (tokens, len(PLAIN))
    assert json_of(answer)["usage"]["total_tokens"] == tokens
    assert usage["device_ns"] > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/embeddings", {"input": "tea", "dimensions": 2}, 400, "dimensions"),
        ("/v1/embeddings", {"input": ["tea", "tea " * 63]}, 400, "input[1]"),
        ("/v1/embeddings", {"input": [8]}, 400, "input"),
        ("/v1/embeddings", {"inputs": "tea"}, 400, "inputs"),
        ("/v1/rerank", {"query": "tea", "documents": ["bis"]}, 400, "model"),
        ("/tokenize", {"messages": [{"role": "user", "content": "tea"}]}, 400, "messages"),
        ("/detokenize", {"tokens": [8]}, 400, "tokens[0]"),
        ("/v1/chat/completions", {}, 404, None),
    ],
    ids=str,
)
async def test_what_can_t_be_is_refused_by_name(
    site: Site, path: str, body: dict[str, Any], status: int, param: str | None
) -> None:
    answer = await site.post(path, body)
    assert (answer.status, json_of(answer)["error"]["param"]) == (status, param)


async def test_the_deadline_holds(site: Site) -> None:
    late: Headers = [(b"x-tiffin-timeout-ms", b"0")]
    answer = await site.post("/v1/embeddings", {"input": "tea"}, late)
    assert (answer.status, json_of(answer)["error"]["code"]) == (504, "deadline_exceeded")


async def test_tokens_are_told_both_ways(site: Site) -> None:
    asked = {"prompt": "tea biscuits", "add_special_tokens": False, "return_token_strs": True}
    told = json_of(await site.post("/tokenize", asked))
    assert told == {
        "tokens": [4, 5, 6],
        "count": 3,
        "max_model_len": 64,
        "token_strs": ["tea", "bis", "##cuits"],
    }
    assert json_of(await site.post("/detokenize", {"tokens": [4, 5, 6]})) == {
        "prompt": "tea biscuits"
    }


async def test_before_it_is_loaded_it_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert (await site.embed("tea")).status == 503
    await site.close()


async def test_a_request_that_has_begun_is_finished_while_draining(site: Site) -> None:
    asking = asyncio.ensure_future(site.embed(PLAIN * 50))
    await asyncio.sleep(0)
    draining = asyncio.ensure_future(site.hosted.drain(10.0))
    await asyncio.sleep(0)
    assert (await site.embed("tea")).status == 503
    assert len(json_of(await asking)["data"]) == 50 * len(PLAIN)
    await draining


async def test_a_draining_one_refuses_and_what_it_counted_stays(site: Site) -> None:
    await site.embed("tea")
    await site.hosted.drain(1.0)
    assert json_of(await site.embed("tea"))["error"]["code"] == "draining"
    assert site.counts("tiffin_text_requests_total") == {("m", "ok"): 1}
    assert site.counts("vllm:prompt_tokens_total") == {("m",): 3}


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"pooling": "none"}, "one vector a text"),
        ({"task": "rerank"}, "a score for each pair"),
        ({"graph": "other.onnx"}, "no file 'other.onnx'"),
    ],
    ids=str,
)
async def test_what_doesn_t_fit_isn_t_loaded(
    tmp_path: Path, model: dict[str, Any], says: str
) -> None:
    site = Site(tmp_path, **model)
    with pytest.raises(LoadFailed, match=says):
        await site.hosted.load()
    await site.close()
