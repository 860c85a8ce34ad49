"""A whole chat completion as the items that a response has."""

import msgspec

from tiffin.dialects.openai.responses_object import Outcome, call_item, message_item, part
from tiffin.errors import UpstreamFailed
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_COMPLETIONS = msgspec.json.Decoder(_Completion)


def outcome_of(body: bytes, usage: Usage) -> Outcome:
    """What a chat completion says; raises `UpstreamFailed` where it is none."""
    try:
        [choice] = _COMPLETIONS.decode(body).choices
    except (msgspec.DecodeError, ValueError) as error:
        raise UpstreamFailed("the answer is not one chat completion") from error
    outcome = Outcome(finish=choice.finish_reason or "stop", usage=usage)
    message, status = choice.message, outcome.status
    parts = []
    if message.content or not (message.refusal or message.tool_calls):
        parts.append(part("output_text", message.content or ""))
    if message.refusal:
        parts.append(part("refusal", message.refusal))
    if parts:
        outcome.output.append(message_item(new_id("msg"), status, parts))
    for call in message.tool_calls or ():
        outcome.output.append(
            call_item(
                new_id("fc"),
                status,
                call_id=call.id,
                function=call.function.name,
                arguments=call.function.arguments,
            )
        )
    return outcome
