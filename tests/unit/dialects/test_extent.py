"""How much a request is, as limits see it; and how limits are told in headers."""

from typing import Any

import msgspec
import pytest

from tiffin.dialects.dialect import Extent
from tiffin.dialects.documents.dialect import DocumentAsked
from tiffin.dialects.openai.embeddings import read_embedding
from tiffin.dialects.openai.rerank import read_rerank
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.dialects.statuses import duration, error_headers, pace_headers
from tiffin.errors import Pace, RateLimited
from tiffin.testing.exchange import FakeExchange

POST = FakeExchange(b"POST", b"/")
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
PICTURE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ],
}


def extent(kind: str, **body: Any) -> Extent:
    whole = msgspec.json.encode({"model": "m", **body})
    return TextEndpoint(kind, b"/v1/x").read(POST, whole).extent()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7, "n": 3}, 21),
        ({"n": 3}, None),
    ],
    ids=["unsaid", "one", "three", "three unsaid"],
)
def test_a_chat_has_as_many_answers_as_it_asks_for(body: dict[str, Any], answer: int) -> None:
    assert extent("chat", messages=HELLO, **body) == Extent(True, answer)


def test_pictures_of_a_chat_are_counted() -> None:
    assert extent("chat", messages=[*HELLO, PICTURE, PICTURE]).images == 2


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [("one", 1), (["one", "two"], 2), ([1, 2, 3], 1), ([[1], [2]], 2)],
    ids=["text", "texts", "tokens", "lists of tokens"],
)
def test_completions_answer_each_prompt(prompt: Any, answers: int) -> None:
    found = extent("completion", prompt=prompt, max_tokens=5, n=2, best_of=3)
    assert found == Extent(True, 15 * answers)
    assert extent("tokenize", prompt="one") == Extent(True, 0)


def test_texts_that_are_only_read_have_no_answer() -> None:
    body = msgspec.json.encode({"model": "m", "input": ["a", "b"]})
    assert read_embedding(POST, body).extent() == Extent(True, 0, rows=2)
    body = msgspec.json.encode({"model": "m", "query": "q", "documents": ["a", "b", "c"]})
    assert read_rerank(POST, body).extent() == Extent(True, 0, rows=3)
    assert DocumentAsked("m", b"%PDF").extent() == Extent(pages=1)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, b"0s"), (21, b"21ms"), (1500, b"1.5s"), (360_000, b"6m0s"), (86_401_000, b"24h0m1s")],
)
def test_times_are_told_as_openai_does(ms: int, text: bytes) -> None:
    assert duration(ms) == text


def test_a_refusal_tells_how_its_limit_stands() -> None:
    error = RateLimited("slow down", retry_after=2.0)
    assert len(error_headers(error)) == 2
    error.pace = Pace("tokens", 100, 3, 60_000)
    assert error_headers(error)[2:] == pace_headers(error.pace)
    assert pace_headers(error.pace)[1] == (b"x-ratelimit-remaining-tokens", b"3")
