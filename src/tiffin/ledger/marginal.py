"""What one request's use costs, by the price of its target: exact integers, one rounding."""

from tiffin.types.money import MOST_PICO as MOST_PICO
from tiffin.types.price import Price
from tiffin.types.usage import Usage

NS: int = 10**9

_SECOND_NS_MS = NS * 1000


def marginal(price: Price, usage: Usage) -> int:
    """Pico-units of the price's currency; never below 0, and more use never costs less.

    Tokens that were cached or that went into reasoning are priced as such and not again as input
    or output. Parts of a unit are rounded once, half up.
    """
    whole, timed = price.request, 0
    if price.input_token or price.cached_token:
        prompt = max(usage.prompt_tokens, 0)
        cached = min(max(usage.cached_tokens, 0), prompt)
        whole += price.input_token * (prompt - cached) + price.cached_token * cached
    if price.output_token or price.reasoning_token:
        whole += _output(price, usage)
    if price.row or price.page:
        whole += price.row * max(usage.rows, 0) + price.page * max(usage.pages, 0)
    if price.device_second:
        timed = price.device_second * max(usage.device_ns, 0) * 1000
    if price.audio_second:
        timed += price.audio_second * max(usage.audio_ms, 0) * NS
    if timed:
        whole += (timed + _SECOND_NS_MS // 2) // _SECOND_NS_MS
    return min(whole, MOST_PICO)


def _output(price: Price, usage: Usage) -> int:
    completion = max(usage.completion_tokens, 0)
    if price.reasoning_token is None:
        return price.output_token * completion
    reasoned = min(max(usage.reasoning_tokens, 0), completion)
    return price.output_token * (completion - reasoned) + price.reasoning_token * reasoned
