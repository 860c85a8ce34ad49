"""Tool calls in a model's text: found however the text is cut, and nothing is lost."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.openai.tool_calls import Call, Found, ToolCallParser

TOOLS = {"get_weather", "add"}
WEATHER = '{"name": "get_weather", "arguments": {"city": "Pune"}}'
SPREAD = '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Pune"\n  }\n}'
ADD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
PUNE = Call("get_weather", '{"city": "Pune"}')
SUM = Call("add", '{"a": 1, "b": 2}')


def parse(*pieces: str, only_first: bool = False) -> tuple[str, list[Call]]:
    """All content and all calls of a text that comes in these pieces."""
    parser = ToolCallParser(TOOLS, only_first=only_first)
    found: list[Found] = []
    for piece in pieces:
        found += parser.feed(piece)
    found += parser.finish()
    content = "".join(one for one in found if isinstance(one, str))
    return content, [one for one in found if isinstance(one, Call)]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (f"<tool_call>\n{WEATHER}\n</tool_call>", "", [PUNE]),
        (f"<tool_call>{WEATHER}</tool_call>\n<tool_call>{ADD}</tool_call>", "", [PUNE, SUM]),
        (f"<tool_call>\n{WEATHER}", "", [PUNE]),
        (f"```json\n{WEATHER}\n```", "", [PUNE]),
        (f"```\n{WEATHER}\n{ADD}\n```\n", "", [PUNE, SUM]),
        (f"```json\n[{WEATHER}, {ADD}]\n```", "", [PUNE, SUM]),
        (WEATHER, "", [PUNE]),
        (f"\n{WEATHER}\n{ADD}\n", "", [PUNE, SUM]),
        (f"Let me look.\n```json\n{WEATHER}\n```", "Let me look.", [PUNE]),
        (f"Let me look. <tool_call>{WEATHER}</tool_call> Done.", "Let me look. Done.", [PUNE]),
        (
            '{"arguments": "{\\"a\\": 1}", "name": "add", "id": "x"}',
            "",
            [Call("add", '{"a": 1}')],
        ),
    ],
    ids=[
        "tagged",
        "two tagged",
        "tag not closed",
        "fenced",
        "two in a fence without a language",
        "array in a fence",
        "bare",
        "two bare",
        "after text, fenced",
        "amid text, tagged",
        "arguments as text, other order, other keys",
    ],
)
def test_calls_are_found(text: str, content: str, calls: list[Call]) -> None:
    assert parse(text) == (content, calls)
    assert parse(*text) == (content, calls)


def test_arguments_keep_the_model_s_own_text() -> None:
    _, [call] = parse(SPREAD)
    assert call.arguments == '{\n    "city": "Pune"\n  }'
    assert json.loads(call.arguments) == {"city": "Pune"}


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, and  spaces \n\n",
        '{"name": "rm_rf", "arguments": {}}',
        '{"name": "get_weather"}',
        '{"name": "get_weather", "arguments": [1]}',
        '{"name": "get_weather", "arguments": {"city": "Pune"',
        '{"name": "get_weather", "arguments": {"city": Pune}}',
        '{"name": "get_weather", "arguments": "not json"}',
        '```json\n{"answer": 42}\n```\n',
        f"```python\nprint({WEATHER})\n```",
        f"[{WEATHER}, 3]",
        f"The form is {WEATHER}",
        "<tool_call> is a tag",
        "1 <2 and `code` and ``` alone",
        "[]",
        "{}",
        '{"name": "add", "arguments": ' + '{"a":' * 100 + "1" + "}" * 101,
        "",
        " \n ",
    ],
)
def test_what_only_looks_like_a_call_is_content_unchanged(text: str) -> None:
    assert parse(text) == (text, [])
    assert parse(*text) == (text, [])


def test_only_the_first_call_where_they_may_not_be_parallel() -> None:
    text = f"Now: <tool_call>{WEATHER}</tool_call><tool_call>{ADD}</tool_call> and more"
    assert parse(text, only_first=True) == ("Now:", [PUNE])
    assert parse(*text, only_first=True) == ("Now:", [PUNE])
    assert parse(f"[{WEATHER}, {ADD}]", only_first=True) == ("", [PUNE])


@pytest.mark.parametrize(
    "text", ["word", " word", "a < b", "{ x }", '{"answer":', "`code`", "```py", "<tool_box>"]
)
def test_text_that_can_t_be_a_call_comes_out_at_once(text: str) -> None:
    assert ToolCallParser(TOOLS).feed(text) == [text]


@pytest.mark.parametrize("text", ["<tool", "```js", "```json\n", '{"name": "get_', " \n", "["])
def test_the_possible_start_of_a_call_is_held_back(text: str) -> None:
    assert ToolCallParser(TOOLS).feed(text) == []


def test_a_call_comes_out_when_its_object_is_complete() -> None:
    parser = ToolCallParser(TOOLS)
    assert parser.feed(f"<tool_call>\n{WEATHER}") == [PUNE]


PIECES = st.sampled_from(
    [
        WEATHER,
        SPREAD,
        ADD,
        "<tool_call>",
        "</tool_call>",
        "```",
        "```json\n",
        "```json",
        "`",
        "<",
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        '"name"',
        '"arguments"',
        ":",
        ",",
        '"get_weather"',
        '"add"',
        "\n",
        " ",
        "word",
        '{"name": "get_weather", "arguments": ',
        '{"name": "x"}',
        "é🙂",
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and a way to cut it."""
    text = draw(TEXTS)
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=len(text) + 1)))
    bounds = [0, *places, len(text)]
    return text, [text[a:b] for a, b in itertools.pairwise(bounds)]


@given(cut(), st.booleans())
def test_it_makes_no_difference_how_the_text_is_cut(
    given_: tuple[str, list[str]], only_first: bool
) -> None:
    text, pieces = given_
    assert parse(*pieces, only_first=only_first) == parse(text, only_first=only_first)


@given(cut())
def test_without_calls_the_content_is_the_text(given_: tuple[str, list[str]]) -> None:
    text, pieces = given_
    content, calls = parse(*pieces)
    rest = iter(text)
    assert all(char in rest for char in content)  # in the text's order
    assert calls or content == text
    assert all(call.name in TOOLS for call in calls)
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)


@given(st.text(max_size=60))
def test_any_text_without_a_tool_s_name_comes_out_unchanged(text: str) -> None:
    assert parse(*text) == (text, [])


def test_a_hostile_text_costs_little() -> None:
    text = ('{"name": "get_weather", "arguments": {"a": "<tool_call>' + " " * 64) * 200
    assert parse(text) == (text, [])
    assert parse(*[text[i : i + 16] for i in range(0, len(text), 16)]) == (text, [])
