"""Requests to rank documents, and their answers."""

from typing import Any

import msgspec
import pytest

from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.rerank import RerankAsked, read_rerank, rerank_reply
from tiffin.errors import InvalidRequest, UnsupportedParameter, UpstreamFailed
from tiffin.ports.guard import Piece
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target

LOCAL = Target(model="there", revision="sha256:0", kind="onnx")
REMOTE = Target(model="m", revision="sha256:0", kind="remote", upstream_model="big")
HERE = Plan(name="m", identity="1", targets=(LOCAL,))
ELSEWHERE = Plan(name="m", identity="1", targets=(REMOTE,))


def asked(plan: Plan = HERE, **fields: Any) -> RerankAsked:
    body = {"model": "m", "query": "q", "documents": ["a", {"text": "b"}, "c"], **fields}
    exchange = FakeExchange(b"POST", b"/v1/rerank")
    made = read_rerank(exchange, msgspec.json.encode(body))
    made.check(plan)
    return made


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": ""}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": ["a", ""]}, "documents[1]"),
        ({"documents": [{"text": 1}]}, "documents[0].text"),
        ({"documents": [{"title": "a"}]}, "documents[0].title"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"max_chunks_per_doc": 3}, "max_chunks_per_doc"),
        ({"rank_fields": ["text"]}, "rank_fields"),
        ({"truncate": "END"}, "truncate"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(**fields)
    assert (caught.value.param or "").startswith(param.partition(".title")[0])
    assert param in caught.value.message


def test_what_only_others_can_do_is_left_to_them() -> None:
    forward = asked(ELSEWHERE, max_chunks_per_doc=3).forward(REMOTE)
    assert forward.path == b"/rerank"
    body = msgspec.json.decode(forward.body)
    assert (body["model"], body["max_chunks_per_doc"]) == ("big", 3)


@pytest.mark.parametrize(
    ("kind", "back"), [("cohere", {}), ("jina", {"return_documents": False})], ids=str
)
def test_rankers_are_asked_in_their_words(kind: str, back: dict[str, Any]) -> None:
    target = msgspec.structs.replace(REMOTE, profile=kind)
    plan = msgspec.structs.replace(ELSEWHERE, targets=(target,))
    forward = asked(plan, top_n=2, user="asha", return_documents=False).forward(target)
    assert forward.path == b"/rerank"
    assert msgspec.json.decode(forward.body) == {
        "model": "big",
        "query": "q",
        "documents": ["a", "b", "c"],
        "top_n": 2,
        **back,
    }


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("cohere", {"return_documents": True}),
        ("cohere", {"rank_fields": ["text"]}),
        ("jina", {"max_tokens_per_doc": 100}),
    ],
    ids=str,
)
def test_what_a_ranker_cannot_do_is_refused_by_name(kind: str, fields: dict[str, Any]) -> None:
    target = msgspec.structs.replace(REMOTE, profile=kind)
    with pytest.raises(UnsupportedParameter) as caught:
        asked(msgspec.structs.replace(ELSEWHERE, targets=(target,)), **fields)
    assert caught.value.param in fields


def test_what_cohere_bills_is_told_where_it_counts_tokens() -> None:
    row = b'{"index":0,"relevance_score":1}'
    body = b'{"id":"1","results":[%b],"meta":{"billed_units":{"search_units":1}%b}}'
    told = Told(body % (row, b',"tokens":{"input_tokens":7}'), b"")
    assert asked(top_n=1).whole(told, REMOTE).usage.prompt_tokens == 7
    assert not asked(top_n=1).whole(Told(body % (row, b""), b""), REMOTE).usage.measured


def test_a_guard_sees_the_query_and_every_document() -> None:
    pieces = list(asked().pieces())
    assert Piece("query", "q") in pieces
    assert {Piece("documents[0]", "a"), Piece("documents[1].text", "b")} <= set(pieces)


def test_documents_in_either_form_are_cached_as_one() -> None:
    assert asked(user="x").canonical() == asked(documents=["a", "b", "c"]).canonical()
    assert asked().canonical() != asked(top_n=1).canonical()


def test_the_best_come_first_and_equals_in_their_order() -> None:
    request = asked(return_documents=True).request
    answer = msgspec.json.decode(rerank_reply("rerank-1", request, [0.25, 0.75, 0.25], 11))
    assert answer == {
        "id": "rerank-1",
        "model": "m",
        "results": [
            {"index": 1, "relevance_score": 0.75, "document": {"text": "b"}},
            {"index": 0, "relevance_score": 0.25, "document": {"text": "a"}},
            {"index": 2, "relevance_score": 0.25, "document": {"text": "c"}},
        ],
        "usage": {"prompt_tokens": 11, "total_tokens": 11},
    }


def test_only_as_many_as_were_asked_for() -> None:
    request = asked(top_n=1).request
    [result] = msgspec.json.decode(rerank_reply("r", request, [0.1, 0.2, 0.3], 1))["results"]
    assert result == {"index": 2, "relevance_score": 0.3}


@pytest.mark.parametrize(
    ("fields", "results"), [({}, 3), ({"top_n": 2}, 2), ({"top_n": 9}, 3)], ids=str
)
def test_an_upstreams_answer_must_be_complete(fields: dict[str, Any], results: int) -> None:
    row = b'{"index":0,"relevance_score":1}'
    usage = b'"usage":{"total_tokens":4}'
    for count in range(5):
        told = Told(b'{"results":[%b],%b}' % (b",".join([row] * count), usage), b"")
        if count == results:
            assert asked(**fields).whole(told, REMOTE).usage.prompt_tokens == 4
        else:
            with pytest.raises(UpstreamFailed):
                asked(**fields).whole(told, REMOTE)


def test_a_guard_of_answers_sees_the_documents_that_come_back() -> None:
    request = asked(return_documents=True)
    body = rerank_reply("r", request.request, [0.1, 0.2, 0.3], 1)
    assert request.answer_text(body) == "c\nb\na"
