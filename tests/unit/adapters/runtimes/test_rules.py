"""A model that answers by rules: in the form that is asked for, or not at all."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.rules import RulesRuntime
from tiffin.config.models import AnswerRule, RulesModel
from tiffin.errors import InvalidRequest, UnsupportedParameter
from tiffin.ports.text_runtime import Delta
from tiffin.types.snapshot import Deployment
from tiffin.types.text import ChatRequest, CompletionRequest, Message, ResponseFormat

RULES = [
    AnswerRule(words=["refund", "late"], answer="Refunds take three days."),
    AnswerRule(words=["refund"], answer="Ask for a refund at the desk."),
    AnswerRule(words=["पैसे"], answer="पैसे तीन दिन में आते हैं।"),
]


def runtime(**spec: Any) -> RulesRuntime:
    model = RulesModel(**{"answer": "We can't answer right now.", "rules": RULES} | spec)
    raw = msgspec.Raw(msgspec.json.encode(model))
    return RulesRuntime(Deployment(model="m", revision="r", socket="", spec=raw))


def chat(*texts: str, **more: Any) -> ChatRequest:
    said = [Message(role="user", content=text) for text in texts]
    return ChatRequest(model="m", messages=said, **more)


async def said(request: ChatRequest | CompletionRequest) -> list[Delta]:
    model = runtime()
    [prompt] = await model.prepare(request)
    async with model.start(prompt, slot=0, sample=0, reuse_prefix=False) as deltas:
        return [delta async for delta in deltas]


async def text(request: ChatRequest | CompletionRequest) -> str:
    return "".join(delta.text for delta in await said(request))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("My REFUND, why so late?", "Refunds take three days."),
        ("refund!", "Ask for a refund at the desk."),
        ("late", "We can't answer right now."),
        ("refundable", "We can't answer right now."),
        ("मेरे पैसे कहाँ हैं?", "पैसे तीन दिन में आते हैं।"),
        ("पैसा", "We can't answer right now."),
    ],
)
async def test_the_first_rule_with_all_its_words_in_the_last_message_answers(
    asked: str, answer: str
) -> None:
    assert await text(chat("refund late", asked)) == answer


async def test_it_ends_where_it_is_told_to_and_says_what_it_took() -> None:
    *words, last = await said(chat("refund", max_tokens=8))
    assert ([one.text for one in words], last.finish) == (["Ask ", "for "], "length")
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (7, 8)
    assert await text(chat("refund", stop=["at the"])) == "Ask for a refund "
    assert await text(CompletionRequest(model="m", prompt="refund", max_tokens=4)) == "Ask "


async def test_a_form_that_its_answer_has_not_is_refused_by_name() -> None:
    for asked in (chat("hi", response_format=ResponseFormat(type="json_object")),):
        with pytest.raises(UnsupportedParameter, match="can't answer right now"):
            await runtime().prepare(asked)
    fits = chat("json", response_format=ResponseFormat(type="json_object"))
    assert await runtime(answer='{"sorry": true}').prepare(fits)
    with pytest.raises(UnsupportedParameter, match="probabilities"):
        await runtime().prepare(chat("hi", logprobs=True))


@given(st.text(max_size=40), st.integers(1, 60))
async def test_whatever_is_asked_it_answers_in_its_bounds(asked: str, most: int) -> None:
    try:
        deltas = await said(chat(asked, max_tokens=most))
    except InvalidRequest:
        return
    assert deltas[-1].finish in ("stop", "length")
    assert sum(delta.tokens for delta in deltas) <= most
