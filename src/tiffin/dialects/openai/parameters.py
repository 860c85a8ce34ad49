"""The written lists: parameters that are accepted without effect, and those a model can't honour.

Names are the fields of types/text.py; a dot leads into one (`messages.audio`, `content.file`).
"""

from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from tiffin.errors import SchemaViolation, UnsupportedParameter
from tiffin.types.profiles import PROFILES, profile_of
from tiffin.types.snapshot import Target
from tiffin.types.text import ChatRequest, CompletionRequest

# Accepted, and our own models answer the same with or without them.
WITHOUT_EFFECT = {
    "user": "whom a request is for is known from its key",
    "safety_identifier": "as `user`",
    "metadata": "nothing of a request is stored, so there is nothing to label",
    "prompt_cache_key": "a prefix is reused inside a tenant only, whatever it is called",
    "messages.name": "chat templates have no place for participants' names",
    "messages.tool_calls.index": "the order of the list says the same",
    "parallel_tool_calls": "without effect where there are no tools",
}

# Values that ask for nothing beyond what happens anyway, so every model honours them.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "store": (False,),
    "service_tier": ("auto", "default", "flex"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "suffix": ("",),
    "echo": (False,),
    "logprobs": (False,),
    "n": (1,),
    "tool_choice": ("auto",),
}

# Nothing of a request is kept, whoever answers it.
ALWAYS_UNSUPPORTED = frozenset({"store"})

# What a replica of ours can't honour.
LOCAL_UNSUPPORTED = ALWAYS_UNSUPPORTED | {
    "service_tier",
    "reasoning_effort",
    "verbosity",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
    "functions",
    "function_call",
    "prompt_cache_retention",
    "best_of",
    "suffix",
    "echo.logprobs",
    "stream_options.include_obfuscation",
    "tools.strict",
    "messages.refusal",
    "messages.function_call",
    "messages.audio",
    "messages.annotations",
    "content.image_url",
    "content.input_audio",
    "content.file",
    "content.refusal",
}

MAX_PLANS = 4096
COOL = min(profile.hottest for profile in PROFILES.values())
"""A temperature that every profile allows."""

_TOOLS = frozenset({"tools", "tool_choice"})
_LOCAL_WITHOUT_TOOLS = LOCAL_UNSUPPORTED | _TOOLS

# Given in most requests and never in need of a second look.
_EVERYDAY = {"model", "messages", "prompt", "stream", "temperature", "top_p", "max_tokens", "user"}
_CHAT_NAMES = tuple(name for name in ChatRequest.__struct_fields__ if name not in _EVERYDAY)
_COMPLETION_NAMES = tuple(
    name for name in CompletionRequest.__struct_fields__ if name not in _EVERYDAY
)
_chat_values = attrgetter(*_CHAT_NAMES)
_completion_values = attrgetter(*_COMPLETION_NAMES)
_NO_CHAT_VALUES = (None,) * len(_CHAT_NAMES)
_NO_COMPLETION_VALUES = (None,) * len(_COMPLETION_NAMES)


@lru_cache(maxsize=MAX_PLANS)
def unsupported_by(targets: tuple[Target, ...]) -> frozenset[str]:
    """What at least one of a plan's targets can't honour, so that falling back changes nothing."""
    found = ALWAYS_UNSUPPORTED
    for target in targets:
        if target.kind != "remote":
            found = found | (LOCAL_UNSUPPORTED if target.tools else _LOCAL_WITHOUT_TOOLS)
        else:
            found = found | profile_of(target.profile).unsupported
            if not target.tools:
                found = found | _TOOLS
    return found


def check_temperature(request: ChatRequest | CompletionRequest, targets: Iterable[Target]) -> None:
    """Refuse a temperature that is too high for one of the targets."""
    given = request.temperature
    if given is None or given <= COOL:
        return
    hottest = min((profile_of(one.profile).hottest for one in targets), default=given)
    if given > hottest:
        raise SchemaViolation(
            f"'temperature' must be at most {hottest:g} for this model", param="temperature"
        )


def is_everyday(request: ChatRequest | CompletionRequest) -> bool:
    """Whether none but the everyday parameters are given, which every model honours."""
    if isinstance(request, ChatRequest):
        return bool(_chat_values(request) == _NO_CHAT_VALUES)
    return bool(_completion_values(request) == _NO_COMPLETION_VALUES)


def refuse_unsupported(
    request: ChatRequest | CompletionRequest, unsupported: frozenset[str]
) -> None:
    """Refuse the first given parameter that can't be honoured, unless its value is neutral."""
    names = _CHAT_NAMES if isinstance(request, ChatRequest) else _COMPLETION_NAMES
    for name in names:
        if name in unsupported and name != "best_of":
            value = getattr(request, name)
            if value is not None and value not in NEUTRAL.get(name, ()):
                raise not_supported(name)


def not_supported(param: str) -> UnsupportedParameter:
    """The refusal of a parameter by its name."""
    return UnsupportedParameter(f"'{param}' is not supported by this model", param=param)
