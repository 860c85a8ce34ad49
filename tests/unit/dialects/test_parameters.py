"""The written lists are about parameters that exist, and targets are asked what they can't."""

import pytest

from tiffin.dialects.openai.parameters import (
    ALWAYS_UNSUPPORTED,
    LOCAL_UNSUPPORTED,
    NEUTRAL,
    WITHOUT_EFFECT,
    unsupported_by,
)
from tiffin.types.snapshot import Target
from tiffin.types.text import (
    ChatRequest,
    CompletionRequest,
    Function,
    Message,
    Part,
    StreamOptions,
    ToolCall,
)
from tiffin.types.texts import RerankRequest

ROOTS = {
    "": {*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__},
    "messages": set(Message.__struct_fields__),
    "messages.tool_calls": set(ToolCall.__struct_fields__),
    "content": set(Part.__struct_fields__),
    "tools": set(Function.__struct_fields__),
    "stream_options": set(StreamOptions.__struct_fields__),
    "echo": {"logprobs"},
    "rerank": set(RerankRequest.__struct_fields__),
    "response_format": {"text", "json_object", "json_schema"},
}

LOCAL = Target(model="a", revision="", kind="replica")
PLAIN = Target(model="a", revision="", kind="replica", tools=False)
REMOTE = Target(model="b", revision="", kind="remote")


@pytest.mark.parametrize("name", sorted({*WITHOUT_EFFECT, *LOCAL_UNSUPPORTED, *NEUTRAL}))
def test_every_listed_name_is_a_field(name: str) -> None:
    root, _, field = name.rpartition(".")
    assert field in ROOTS[root]


def test_no_parameter_is_both_harmless_and_unsupported() -> None:
    assert not WITHOUT_EFFECT.keys() & LOCAL_UNSUPPORTED


def test_a_plan_refuses_what_any_of_its_targets_cannot() -> None:
    assert unsupported_by((REMOTE,)) == ALWAYS_UNSUPPORTED
    assert unsupported_by((LOCAL,)) == LOCAL_UNSUPPORTED
    assert unsupported_by(
        (
            PLAIN,
            LOCAL,
        )
    ) == LOCAL_UNSUPPORTED | {"tools", "tool_choice"}
    assert (
        unsupported_by(
            (
                REMOTE,
                LOCAL,
            )
        )
        == LOCAL_UNSUPPORTED
    )
    remote = Target(model="b", revision="", kind="remote", tools=False)
    assert unsupported_by((remote,)) == ALWAYS_UNSUPPORTED | {"tools", "tool_choice"}
