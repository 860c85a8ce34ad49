"""What a request asks for becomes the engine's parameters, plainly."""

from typing import Any

import pytest

from tiffin.adapters.runtimes.gguf import Vocabulary
from tiffin.adapters.runtimes.sampling import demand, offered_tools, parameters, wanted_rivals
from tiffin.errors import SchemaViolation, UnsupportedParameter
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    Function,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
)

VOCABULARY = Vocabulary(size=100, longest=10, control=frozenset(), chat=True)
HELLO = [Message(role="user", content="hello")]
TOOLS = [
    Tool(type="function", function=Function(name="a", parameters={"type": "object"})),
    Tool(type="function", function=Function(name="b")),
]
JSON = ResponseFormat(type="json_object")


def chat(**given: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=HELLO, **given)


def asked(request: ChatRequest | CompletionRequest) -> dict[str, Any]:
    return parameters(request, VOCABULARY, 512)


def test_the_defaults_are_openais_not_the_engines() -> None:
    wanted = asked(chat())
    assert (wanted["temperature"], wanted["top_p"]) == (1.0, 1.0)
    assert (wanted["top_k"], wanted["min_p"]) == (0, 0.0)
    assert wanted["stream"]
    assert not wanted.keys() & {"seed", "stop", "logit_bias", "n_probs", "presence_penalty"}


def test_what_is_given_is_passed_on() -> None:
    wanted = asked(
        chat(temperature=0, top_p=0.5, stop="x", presence_penalty=1, logit_bias={"7": -100})
    )
    assert wanted["temperature"] == 0
    assert wanted["top_p"] == 0.5
    assert wanted["stop"] == ["x"]
    assert wanted["presence_penalty"] == 1
    assert wanted["repeat_last_n"] == 512
    assert wanted["logit_bias"] == [[7, -100]]


@pytest.mark.parametrize("seed", [0, 7, -1, 2**32 - 1, 2**63 - 1, -(2**63)])
def test_every_seed_is_one_that_the_engine_takes(seed: int) -> None:
    assert 0 <= asked(chat(seed=seed))["seed"] < 2**32 - 1


def test_a_bias_for_a_token_that_the_model_lacks_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="99") as refused:
        asked(chat(logit_bias={"100": 1}))
    assert refused.value.param == "logit_bias"


@pytest.mark.parametrize(
    ("request_", "rivals", "probabilities"),
    [
        pytest.param(chat(), None, None, id="none"),
        pytest.param(chat(logprobs=True), 0, 1, id="chosen tokens"),
        pytest.param(chat(logprobs=True, top_logprobs=4), 4, 4, id="rivals"),
        pytest.param(chat(logprobs=False), None, None, id="declined"),
        pytest.param(CompletionRequest(model="m", prompt="x", logprobs=0), 0, 1, id="completion"),
    ],
)
def test_log_probabilities_as_asked(
    request_: ChatRequest | CompletionRequest, rivals: int | None, probabilities: int | None
) -> None:
    assert wanted_rivals(request_) == rivals
    assert asked(request_).get("n_probs") == probabilities


def test_a_plain_answer_is_free() -> None:
    assert demand(chat()) is None
    assert demand(chat(tools=TOOLS)) is None
    assert demand(chat(response_format=ResponseFormat(type="text"))) is None


def test_a_format_is_demanded_by_its_own_parameter() -> None:
    wanted = demand(chat(response_format=JSON))
    assert wanted is not None
    assert (wanted.schema, wanted.param) == ({"type": "object"}, "response_format")
    schema = {"type": "array"}
    named = ResponseFormat(type="json_schema", json_schema=JsonSchema(name="x", definition=schema))
    wanted = demand(chat(response_format=named))
    assert wanted is not None
    assert (wanted.schema, wanted.param) == (schema, "response_format.json_schema.schema")


def test_a_required_call_is_of_any_tool_and_a_named_one_of_its_own() -> None:
    required = demand(chat(tools=TOOLS, tool_choice="required"))
    assert required is not None
    assert len(required.schema["anyOf"]) == 2
    assert required.parts == [("tools[0].function.parameters", {"type": "object"})]
    choice = {"type": "function", "function": {"name": "b"}}
    named = demand(chat(tools=TOOLS, tool_choice=choice))
    assert named is not None
    assert [one["properties"]["name"] for one in named.schema["anyOf"]] == [{"const": "b"}]
    assert named.parts == []


def test_a_format_beside_tools_is_refused_unless_they_are_not_offered() -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        demand(chat(tools=TOOLS, response_format=JSON))
    assert refused.value.param == "response_format"
    silent = chat(tools=TOOLS, tool_choice="none", response_format=JSON)
    assert offered_tools(silent) == []
    assert demand(silent) is not None
