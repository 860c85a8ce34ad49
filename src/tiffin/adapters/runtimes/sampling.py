"""What a request asks of an answer, in the engine's parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tiffin.adapters.runtimes.gguf import Vocabulary
from tiffin.adapters.runtimes.schema import Schema, call_schema, object_schema
from tiffin.errors import SchemaViolation, UnsupportedParameter
from tiffin.types.text import ChatRequest, CompletionRequest, Tool

# OpenAI's default for completions; a chat's answer may fill the context.
COMPLETION_TOKENS: Final = 16
# The engine takes any 32-bit number but the last, which asks it to draw one.
SEEDS: Final = 2**32 - 1

# The engine leaves out of the last event what we don't read, such as the whole prompt.
_LAST_FIELDS: Final = [
    "content",
    "stop",
    "stop_type",
    "tokens_predicted",
    "timings",
    "completion_probabilities",
]


@dataclass(slots=True, frozen=True)
class Demand:
    """A schema that the answer must follow, the parameter that asks for it, and schemas in it."""

    schema: Schema
    param: str
    parts: Sequence[tuple[str, Schema]] = ()


def parameters(
    request: ChatRequest | CompletionRequest, vocabulary: Vocabulary, context: int
) -> dict[str, Any]:
    """Everything but prompt, place and grammar."""
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    penalties = bool(request.presence_penalty or request.frequency_penalty)
    wanted: dict[str, Any] = {
        "samplers": _samplers(temperature, top_p, penalties=penalties),
        "temperature": temperature,
        "top_p": top_p,
        "top_k": 0,
        "min_p": 0.0,
        "stream": True,
        # Also how the engine finds out, while it reads a prompt, that the client has left.
        "return_progress": True,
        "response_fields": _LAST_FIELDS,
    }
    if request.stop:
        wanted["stop"] = [request.stop] if isinstance(request.stop, str) else request.stop
    if penalties:
        wanted["presence_penalty"] = request.presence_penalty or 0.0
        wanted["frequency_penalty"] = request.frequency_penalty or 0.0
        wanted["repeat_last_n"] = context
    if request.seed is not None:
        wanted["seed"] = request.seed % SEEDS
    if request.logit_bias:
        wanted["logit_bias"] = _bias(request.logit_bias, vocabulary.size)
    if (rivals := wanted_rivals(request)) is not None:
        wanted["n_probs"] = max(rivals, 1)
    return wanted


def _samplers(temperature: float, top_p: float, *, penalties: bool) -> list[str]:
    """OpenAI's order: the temperature shapes the distribution, then `top_p` cuts it.

    Nothing else does, and each goes over the whole vocabulary for every token, so that those
    without effect are left out.
    """
    samplers = ["penalties"] if penalties else []
    samplers.append("temperature")
    if temperature > 0 and top_p < 1:
        samplers.append("top_p")
    return samplers


def offered_tools(request: ChatRequest) -> list[Tool]:
    """The tools that the model may hear of."""
    return [] if request.tool_choice == "none" else request.tools or []


def demand(request: ChatRequest) -> Demand | None:
    """What the whole answer must be; raises `UnsupportedParameter` where two demands can't meet."""
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return _demanded_call(request)
    if offered_tools(request):
        raise UnsupportedParameter(
            "'response_format' can't be enforced while 'tools' are offered; drop one of them or"
            " set 'tool_choice' to 'none'",
            param="response_format",
        )
    if wanted.type == "json_object":
        return Demand(object_schema(), "response_format")
    schema = wanted.json_schema.definition if wanted.json_schema else None
    return Demand(schema or {}, "response_format.json_schema.schema")


def _demanded_call(request: ChatRequest) -> Demand | None:
    choice = request.tool_choice
    if choice in (None, "none", "auto"):
        return None
    name = choice["function"]["name"] if isinstance(choice, dict) else None
    tools = [
        (f"tools[{index}].function.parameters", tool.function)
        for index, tool in enumerate(request.tools or ())
        if name is None or tool.function.name == name
    ]
    schemas = [(param, tool.parameters) for param, tool in tools if tool.parameters is not None]
    calls = call_schema([(tool.name, tool.parameters) for _, tool in tools])
    return Demand(calls, "tools", schemas)


def wanted_rivals(request: ChatRequest | CompletionRequest) -> int | None:
    """How many rivals each token's log-probability comes with; None where none is wanted."""
    if isinstance(request, CompletionRequest):
        return request.logprobs
    return (request.top_logprobs or 0) if request.logprobs else None


def _bias(wanted: dict[str, float], size: int) -> list[list[float]]:
    bias: list[list[float]] = []
    for key, value in wanted.items():
        token = int(key)
        if token >= size:
            raise SchemaViolation(
                f"'logit_bias' names token {token}, but this model's last is {size - 1}",
                param="logit_bias",
            )
        bias.append([token, value])
    return bias
