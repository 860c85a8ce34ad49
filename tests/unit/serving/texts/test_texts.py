"""Texts through tokens, batches and pooling: every one gets its own answer, or a named refusal."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tiffin.config.models import OnnxModel
from tiffin.errors import (
    ContextLengthExceeded,
    LoadFailed,
    Overloaded,
    RunFailed,
    SchemaViolation,
    UnsupportedParameter,
)
from tiffin.ports.tokenizer import Tokens
from tiffin.serving.context import Context
from tiffin.serving.tensors.waiting import Ran
from tiffin.serving.texts.encoder import Encoder, padded
from tiffin.serving.texts.fitting import fitting
from tiffin.serving.texts.pooling import finished, score
from tiffin.serving.texts.reading import SLICE_CHARACTERS, Reader
from tiffin.types.tensors import Signature, TensorSpec
from tiffin.types.usage import Usage

HERE = Context("a")
WIDTH = 4


class Letters:
    """A token for every letter, between 1 and 2; satisfies `ports.tokenizer.Tokenizer`."""

    vocabulary = 300

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens(ids, [0] * len(ids)) for ids in map(self._ids, texts)]

    def encode_pairs(self, first: str, seconds: Sequence[str]) -> list[Tokens]:
        before = self._ids(first)
        return [
            Tokens([*before, *self._ids(text)[1:]], [0] * len(before) + [1] * (len(text) + 1))
            for text in seconds
        ]

    def ids(self, text: str, *, special: bool) -> list[int]:
        return self._ids(text) if special else self._ids(text)[1:-1]

    def text(self, ids: Sequence[int]) -> str:
        return "".join(chr(id_) for id_ in ids)

    def _ids(self, text: str) -> list[int]:
        return [1, *map(ord, text), 2]


@dataclass
class Graph:
    """Gives, for every token, its id, its place, its type and whether it counts."""

    room: int = 100
    lengths: list[int] = field(default_factory=list)
    running: int = 0
    calls: int = 0
    full_at: set[int] = field(default_factory=set)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    most: int = 0

    async def run(
        self, inputs: Mapping[str, NDArray[Any]], outputs: tuple[str, ...], context: Context
    ) -> Ran:
        self.calls += 1
        if self.running >= self.room or self.calls in self.full_at:
            raise Overloaded("full")
        self.began.set()
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        ids = inputs["input_ids"]
        self.lengths.append(ids.shape[1])
        hidden = np.stack(
            [ids, np.indices(ids.shape)[1], inputs["token_type_ids"], inputs["attention_mask"]],
            axis=2,
        ).astype(np.float32)
        logits = np.array([[ids[0, inputs["attention_mask"][0] == 1].sum() / 1000]], np.float32)
        given = {"hidden": hidden, "logits": logits}
        usage = Usage(queue_ns=len(self.lengths), device_ns=10, rows=1)
        return Ran({name: given[name] for name in outputs}, usage)


def spec(name: str, *shape: int, datatype: str = "INT64") -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


INPUTS = tuple(spec(name, -1, -1) for name in ("input_ids", "attention_mask", "token_type_ids"))
HIDDEN = spec("hidden", -1, -1, WIDTH, datatype="FP32")
LOGITS = spec("logits", -1, 1, datatype="FP32")
SIGNATURE = Signature(inputs=INPUTS, outputs=(HIDDEN, LOGITS), batched=True)


def encoder(graph: Graph, *, alone: bool = False, window: int = 8, **model: Any) -> Encoder:
    made = OnnxModel(
        **{"files": {}, "task": "embed", "normalize": False, "max_tokens": 64, **model}
    )
    reader = Reader(Letters(), made.max_tokens)
    how = fitting(SIGNATURE, made)
    return Encoder(made, how, reader, graph.run, alone=alone, window=window)


def floats(vector: bytes) -> list[float]:
    return [float(value) for value in np.frombuffer(vector, "<f4")]


async def test_the_mean_is_of_the_tokens_without_the_padding() -> None:
    [vector], usage = await encoder(graph := Graph()).embed(["abc"], None, HERE)
    assert floats(vector) == pytest.approx([(1 + 97 + 98 + 99 + 2) / 5, 2.0, 0.0, 1.0])
    assert graph.lengths == [8]
    assert (usage.prompt_tokens, usage.queue_ns, usage.device_ns, usage.rows) == (5, 1, 10, 1)
    assert usage.prepare_ns > 0


async def test_cls_takes_the_first_token() -> None:
    [vector], _ = await encoder(Graph(), pooling="cls").embed(["abc"], None, HERE)
    assert floats(vector) == [1.0, 0.0, 0.0, 1.0]


async def test_where_rows_depend_on_each_other_a_text_isn_t_even_padded() -> None:
    graph = Graph()
    await encoder(graph, alone=True).embed(["abc", "a"], None, HERE)
    assert sorted(graph.lengths) == [3, 5]


@pytest.mark.parametrize("window", [1, 3, 100])
async def test_each_of_many_gets_its_own_in_order(window: int) -> None:
    texts = [chr(97 + at % 26) * (1 + at * 7 % 50) for at in range(60)]
    graph = Graph()
    vectors, usage = await encoder(graph, window=window).embed(texts, None, HERE)
    for text, vector in zip(texts, vectors, strict=True):
        mean = (3 + len(text) * ord(text[0])) / (len(text) + 2)
        assert floats(vector)[0] == pytest.approx(mean, rel=1e-5)
    assert usage.prompt_tokens == sum(len(text) + 2 for text in texts)
    assert graph.most == min(window, 60)
    assert usage.queue_ns == 1
    assert usage.device_ns == 600


async def test_a_request_that_has_begun_waits_for_room() -> None:
    graph = Graph()
    graph.full_at = {4, 5, 9}
    vectors, _ = await encoder(graph, window=2).embed(["a"] * 20, None, HERE)
    assert len(vectors) == 20
    assert graph.calls == 23


async def test_a_request_that_hasn_t_begun_is_refused_where_there_is_no_room() -> None:
    with pytest.raises(Overloaded):
        await encoder(Graph(room=0)).embed(["a", "b"], None, HERE)


async def test_leaving_stops_what_hasn_t_run() -> None:
    graph = Graph()
    asking = asyncio.ensure_future(encoder(graph, window=2).embed(["a"] * 50, None, HERE))
    await graph.began.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert graph.running == 0
    assert len(graph.lengths) <= 4


async def test_token_ids_are_taken_as_they_are() -> None:
    [vector], usage = await encoder(Graph()).embed([[5, 7]], None, HERE)
    assert floats(vector)[:2] == [6.0, 0.5]
    assert usage.prompt_tokens == 2
    with pytest.raises(SchemaViolation, match=r"'input\[1\]' has the token id 300") as caught:
        await encoder(Graph()).embed([[5], [7, 300]], None, HERE)
    assert caught.value.param == "input[1]"


@pytest.mark.parametrize(
    ("inputs", "param"),
    [
        (["a" * 63], "input"),
        (["a", "b" * 63], "input[1]"),
        ([[3] * 65], "input"),
        (["ok", "c" * 1_000_000], "input[1]"),
    ],
    ids=["one", "second", "ids", "endless"],
)
async def test_what_is_too_long_is_named_and_nothing_runs(inputs: Any, param: str) -> None:
    graph = Graph()
    with pytest.raises(ContextLengthExceeded, match="at most 64") as caught:
        await encoder(graph).embed(inputs, None, HERE)
    assert caught.value.param == param
    assert not graph.lengths


async def test_long_requests_are_read_in_slices_and_stay_in_order() -> None:
    texts = ["ab" * 15] * (SLICE_CHARACTERS // 10) + ["z"]
    found = await Reader(Letters(), 64).texts(texts)
    assert [len(tokens.ids) for tokens in found] == [len(text) + 2 for text in texts]


async def test_dimensions_are_cut_before_the_vector_gets_length_one() -> None:
    made = encoder(Graph(), dimensions=True, normalize=True)
    [vector], _ = await made.embed(["abc"], 2, HERE)
    [whole], _ = await made.embed(["abc"], WIDTH, HERE)
    assert len(floats(vector)) == 2
    assert math.hypot(*floats(vector)) == pytest.approx(1)
    assert math.hypot(*floats(whole)) == pytest.approx(1)
    with pytest.raises(SchemaViolation, match="at most 4"):
        await made.embed(["abc"], 5, HERE)


def test_dimensions_beyond_what_the_graph_turns_out_to_give_are_refused() -> None:
    with pytest.raises(SchemaViolation, match="at most 3"):
        finished([np.ones(3, np.float32)], 4, normalize=True)


async def test_dimensions_that_the_model_doesn_t_allow_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter, match="dimensions"):
        await encoder(Graph()).embed(["abc"], 2, HERE)
    await encoder(Graph()).embed(["abc"], WIDTH, HERE)


async def test_documents_are_scored_with_the_query() -> None:
    made = encoder(Graph(), task="rerank")
    scores, usage = await made.rerank("q", ["a", "zz", "b"], HERE)
    sums = [(1 + ord("q") + 2 + sum(map(ord, text)) + 2) / 1000 for text in ("a", "zz", "b")]
    assert scores == pytest.approx([1 / (1 + math.exp(-total)) for total in sums])
    assert usage.prompt_tokens == 3 * 3 + 2 + 3 + 2
    with pytest.raises(ContextLengthExceeded, match="together with the query") as caught:
        await made.rerank("q" * 40, ["a", "b" * 40], HERE)
    assert caught.value.param == "documents[1]"


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_scores_are_probabilities(first: float, second: float) -> None:
    assert 0 <= score(np.array([first])) <= 1
    both = score(np.array([first, second])) + score(np.array([second, first]))
    assert both == pytest.approx(1)


def test_what_isn_t_finite_is_never_told() -> None:
    with pytest.raises(RunFailed):
        score(np.array([np.nan]))
    with pytest.raises(RunFailed):
        finished([np.array([1, np.inf], np.float32)], 0, normalize=False)


def test_a_vector_of_zeros_stays_one() -> None:
    [vector] = finished([np.zeros(3, np.float32)], 0, normalize=True)
    assert floats(vector) == [0, 0, 0]


@given(st.integers(1, 20_000))
def test_padding_is_never_more_than_an_eighth_of_what_isn_t_tiny(count: int) -> None:
    assert count <= padded(count) <= max(count + 3, count * 9 / 8)


@pytest.mark.parametrize(
    ("inputs", "outputs", "model", "says"),
    [
        ((spec("x", -1, 4),), (HIDDEN,), {}, "'x', which a text doesn't give"),
        (INPUTS[1:], (HIDDEN,), {}, "no input 'input_ids'"),
        ((spec("input_ids", -1, 128),), (HIDDEN,), {}, "fixed length"),
        ((spec("input_ids", -1, -1, datatype="FP32"),), (HIDDEN,), {}, "whole numbers"),
        (INPUTS, (LOGITS,), {}, "one vector a token"),
        (INPUTS, (HIDDEN,), {"pooling": "none"}, "one vector a text"),
        (INPUTS, (HIDDEN,), {"task": "rerank"}, "a score for each pair"),
        (INPUTS, (spec("l", -1, 3, datatype="FP32"),), {"task": "rerank"}, "3 classes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_graph_that_reads_no_texts_isn_t_loaded(
    inputs: Any, outputs: Any, model: dict[str, Any], says: str
) -> None:
    made = OnnxModel(**{"files": {}, "task": "embed", **model})
    with pytest.raises(LoadFailed, match=says):
        fitting(Signature(inputs=inputs, outputs=outputs), made)


def test_a_fixed_length_is_kept() -> None:
    fixed = tuple(spec(name, -1, 128) for name in ("input_ids", "attention_mask"))
    how = fitting(Signature(inputs=fixed, outputs=(HIDDEN,)), OnnxModel(files={}, task="embed"))
    arrays = how.arrays(Tokens([1, 2], [0, 0]), how.length)
    assert {name: array.shape for name, array in arrays.items()} == {
        "input_ids": (1, 128),
        "attention_mask": (1, 128),
    }
    assert arrays["attention_mask"].sum() == 2
