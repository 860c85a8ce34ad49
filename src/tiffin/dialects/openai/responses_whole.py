"""A whole chat completion as the items that a response has."""

from tiffin.dialects.openai.answers import only_choice
from tiffin.dialects.openai.responses_object import Outcome, call_item, message_item, part
from tiffin.types.ids import new_id
from tiffin.types.usage import Usage


def outcome_of(body: bytes, usage: Usage) -> Outcome:
    """What a chat completion says; raises `UpstreamFailed` where it is none."""
    choice = only_choice(body)
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
