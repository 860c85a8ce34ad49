"""Personal data is found wherever a request can hold text."""

from typing import Any

import msgspec
import pytest

from tiffin.dialects.openai.text import TextEndpoint
from tiffin.gateway.guard.personal_data import MAX_CHARACTERS, PersonalData
from tiffin.ports.guard import Finding
from tiffin.testing.exchange import FakeExchange

PHONE = "call 98765 43210"
USER = {"role": "user", "content": "hi"}


def look(kind: str, **fields: Any) -> Finding | None:
    body = msgspec.json.encode({"model": "m", **fields})
    asked = TextEndpoint(kind, b"/").read(FakeExchange(b"POST", b"/"), body)
    return PersonalData().check_input(asked.pieces())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("mail asha@example.com", "an e-mail address"),
        (PHONE, "a phone number"),
        ("card 4111 1111 1111 1111", "a card number"),
        ("2341 2341 2346", "an Aadhaar number"),
        ("ABCPE1234F", "a PAN"),
        ("asha@okhdfcbank", "a UPI address"),
    ],
)
def test_every_kind_is_found_and_never_repeated(content: str, what: str) -> None:
    finding = look("chat", messages=[USER, {"role": "user", "content": content}])
    assert finding == Finding(what=what, param="messages[1].content")


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": PHONE}]}]},
            "messages[0].content[0].text",
        ),
        ("chat", {"messages": [USER], "stop": PHONE}, "stop"),
        (
            "chat",
            {
                "messages": [USER],
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {PHONE: {}}}}
                ],
            },
            "tools[0].function.parameters",
        ),
        (
            "chat",
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {
                                "id": "c",
                                "type": "function",
                                "function": {"name": "f", "arguments": '{"a":"\\n9876543210"}'},
                            }
                        ],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ("completion", {"prompt": PHONE}, "prompt"),
        ("completion", {"prompt": ["a", PHONE]}, "prompt[1]"),
        ("tokenize", {"prompt": PHONE}, "prompt"),
        ("tokenize", {"messages": [{"role": "user", "content": PHONE}]}, "messages[0].content"),
    ],
)
def test_every_text_of_a_request_is_looked_at(
    kind: str, fields: dict[str, Any], param: str
) -> None:
    finding = look(kind, **fields)
    assert finding is not None
    assert finding.param == param


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("completion", {"prompt": [1, 2]}),
        ("completion", {"prompt": [[1], [2]]}),
        ("detokenize", {"tokens": [1]}),
    ],
)
def test_token_ids_cannot_be_checked_so_they_are_a_finding(
    kind: str, fields: dict[str, Any]
) -> None:
    finding = look(kind, **fields)
    assert finding is not None
    assert "token ids" in finding.what


def test_a_harmless_request_passes() -> None:
    assert look("chat", messages=[USER], seed=9876543210, temperature=0.5) is None
    assert look("completion", prompt="2026-12-01 10:58") is None


def test_what_is_too_long_to_check_is_a_finding() -> None:
    finding = look("completion", prompt="a " * (MAX_CHARACTERS // 2 + 1))
    assert finding is not None
    assert "characters" in finding.what


def test_answers_are_not_looked_at() -> None:
    assert PersonalData().check_output(PHONE) is None
    assert not PersonalData.checks_output
