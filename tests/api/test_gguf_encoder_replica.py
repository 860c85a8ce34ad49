"""A replica of texts from GGUF: what llama.cpp gives is what numpy computes from the weights."""

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests import gguf_bert as bert
from tests.real_models import model_file
from tiffin.app.adapters import host
from tiffin.app.clock import SystemClock
from tiffin.app.hosted import Surroundings
from tiffin.config.models import GGUF, LlamacppModel
from tiffin.errors import LoadFailed
from tiffin.serving.progress import ProgressFile
from tiffin.telemetry.metrics import Meter
from tiffin.testing.exchange import FakeExchange, answered, json_of
from tiffin.types.snapshot import Deployment, PlacedFile

pytestmark = pytest.mark.xdist_group("gguf encoders")

# llama.cpp looks the activation up in a table of 16-bit numbers.
NEAR = 3e-3
TEXTS = ["the cat sat on the mat", "dog", "paris is in france", "the " * 40, "[SEP] cat"]
IDS = {piece.removeprefix("▁"): at for at, piece in enumerate(bert.PIECES)}


class Site:
    """A hosted model of texts, and ways to ask it."""

    def __init__(self, around: Surroundings) -> None:
        self.hosted = host(around)

    async def post(self, path: str, body: Any) -> FakeExchange:
        sent = msgspec.json.encode({"model": "m", **body})
        exchange = FakeExchange(b"POST", path.encode(), headers=[], body=sent)
        return await answered(self.hosted.answer, exchange)

    async def vectors(self, given: Any, **more: Any) -> list[list[float]]:
        told = json_of(await self.post("/v1/embeddings", {"input": given, **more}))
        return [row["embedding"] for row in told["data"]]

    async def ids(self, text: str) -> list[int]:
        found: list[int] = json_of(await self.post("/tokenize", {"prompt": text}))["tokens"]
        return found


@asynccontextmanager
async def hosted(path: Path, **model: Any) -> AsyncIterator[Site]:
    """The file's model, loaded and warmed up."""
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tiffin-") as folder:
        spec = LlamacppModel(**{"sources": [], "sha256": "0" * 64, "task": "embed", **model})
        deployment = Deployment(
            model="m",
            revision="sha256:" + "1" * 64,
            socket=f"{folder}/r.sock",
            spec=msgspec.Raw(msgspec.json.encode(spec)),
            files={GGUF: PlacedFile(path=str(path), sha256="")},
        )
        progress = ProgressFile(Path(folder) / "progress")
        meter = Meter("replica", "ep_1")
        site = Site(Surroundings(deployment, SystemClock(), progress, meter, 1_000_000))
        try:
            await site.hosted.load()
            await site.hosted.warm_up()
            yield site
        finally:
            await site.hosted.close()
            progress.close()


def written(folder: Path, pooling: int | None, *, ranks: bool = False) -> tuple[Path, bert.Weights]:
    path, weights = folder / "bert.gguf", bert.weights(ranks=ranks)
    bert.write(path, weights, pooling)
    return path, weights


@pytest.mark.parametrize(
    ("told", "asked"), [(1, ""), (2, ""), (None, "mean"), (None, "last")], ids=str
)
async def test_vectors_are_what_the_weights_say(
    tmp_path: Path, told: int | None, asked: str
) -> None:
    path, weights = written(tmp_path, told)
    async with hosted(path, pooling=asked) as site:
        vectors = await site.vectors(TEXTS)
        for text, vector in zip(TEXTS, vectors, strict=True):
            hidden = bert.hidden(weights, await site.ids(text))
            pooled = {"mean": hidden.mean(axis=0), "last": hidden[-1]}.get(
                asked or ("mean" if told == 1 else "cls"), hidden[0]
            )
            assert vector == pytest.approx(list(pooled / np.linalg.norm(pooled)), abs=NEAR)


async def test_what_a_user_writes_is_no_control_token_and_tokens_are_taken_as_they_are(
    tmp_path: Path,
) -> None:
    path, _ = written(tmp_path, 1)
    async with hosted(path) as site:
        ids = await site.ids("cat [SEP] dog")
        assert (ids[0], ids[-1]) == (bert.CLS, bert.SEP)
        assert bert.SEP not in ids[1:-1]
        [[by_text], [by_ids]] = [await site.vectors(given) for given in ("the cat", [2, 5, 6, 3])]
        assert by_text == by_ids
        told = json_of(await site.post("/detokenize", {"tokens": [5, 6]}))
        assert told["prompt"].split() == ["the", "cat"]


async def test_a_text_gets_the_same_vector_whoever_asks_beside_it(tmp_path: Path) -> None:
    path, _ = written(tmp_path, 1)
    async with hosted(path) as site:
        alone = [(await site.vectors(text))[0] for text in TEXTS]
        together = await asyncio.gather(*(site.vectors(text) for text in TEXTS * 4))
        for at, [vector] in enumerate(together):
            assert vector == pytest.approx(alone[at % len(TEXTS)], abs=1e-5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "cat", "dimensions": 8}, "dimensions"),
        ({"input": ["cat", "cat " * 63]}, "input[1]"),
        ({"input": [len(bert.PIECES)]}, "input"),
    ],
    ids=str,
)
async def test_what_can_t_be_is_refused_by_name(
    tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    path, _ = written(tmp_path, 1)
    async with hosted(path) as site:
        answer = await site.post("/v1/embeddings", body)
        assert (answer.status, json_of(answer)["error"]["param"]) == (400, param)


async def test_scores_are_what_the_rank_head_says(tmp_path: Path) -> None:
    path, weights = written(tmp_path, 4, ranks=True)
    documents = ["dog sat", "paris is in france", "the mat", "on"]
    async with hosted(path, task="rerank", slots=3) as site:
        asked = {"query": "the cat", "documents": documents}
        answer = await site.post("/v1/rerank", asked)
        told = json_of(answer)
        pairs = [
            [bert.CLS, IDS["the"], IDS["cat"], bert.SEP, *(IDS[word] for word in text.split())]
            for text in documents
        ]
        scores = {one["index"]: one["relevance_score"] for one in told["results"]}
        expected = [1 / (1 + math.exp(-bert.logit(weights, pair))) for pair in pairs]
        assert [scores[at] for at in range(4)] == pytest.approx(expected, abs=NEAR)
        usage = msgspec.json.decode(answer.answer_headers[b"x-tiffin-usage"])
        assert (usage["prompt_tokens"], usage["rows"]) == (sum(map(len, pairs)), 4)
        several = await asyncio.gather(
            *(site.post("/v1/rerank", {**asked, "query": query}) for query in ("dog", "the cat"))
        )
        again = {one["index"]: one["relevance_score"] for one in json_of(several[1])["results"]}
        assert again == pytest.approx(scores, abs=1e-5)
        long = await site.post("/v1/rerank", {**asked, "documents": ["mat " * 61]})
        assert json_of(long)["error"]["param"] == "documents[0]"
        assert (await site.post("/v1/embeddings", {"input": "dog"})).status == 400


@pytest.mark.parametrize(
    ("told", "ranks", "model", "reason"),
    [
        (1, False, {"task": "rerank"}, "its pooling is mean"),
        (None, False, {"task": "rerank"}, "its pooling is none"),
        (4, False, {"task": "rerank"}, "no rank head"),
        (4, True, {}, 'needs task = "rerank"'),
        (None, False, {}, 'needs pooling = "mean"'),
        (2, False, {"pooling": "mean"}, 'the file says pooling = "cls"'),
    ],
    ids=str,
)
async def test_a_file_that_can_t_do_the_task_is_refused_at_load(
    tmp_path: Path, told: int | None, ranks: bool, model: dict[str, Any], reason: str
) -> None:
    path, _ = written(tmp_path, told, ranks=ranks)
    with pytest.raises(LoadFailed, match=reason):
        async with hosted(path, **model):
            pass


@pytest.mark.models
async def test_a_language_model_gives_vectors_too() -> None:
    path = model_file("chat-tiny")
    texts = ["a cat", "a kitten sits on the mat", "shares fell after the bank raised its rate"]
    async with hosted(path, pooling="mean", context=256, dimensions=True) as site:
        alone = [(await site.vectors(text))[0] for text in texts]
        together = await site.vectors(texts)
        for one, other in zip(alone, together, strict=True):
            assert one == pytest.approx(other, abs=1e-3)
            assert math.hypot(*one) == pytest.approx(1.0, abs=1e-5)
        [short] = await site.vectors(texts[0], dimensions=64)
        assert len(short) == 64
        assert math.hypot(*short) == pytest.approx(1.0, abs=1e-5)
