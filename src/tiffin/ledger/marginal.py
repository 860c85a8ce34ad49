"""What one request's use costs, by the price of its target: exact integers, one rounding."""

from tiffin.types.price import Price
from tiffin.types.usage import Usage

NS: int = 10**9
MOST_PICO: int = 2**62
"""What no price and no request costs, whatever is claimed: beyond it numbers don't fit anywhere."""

_SECOND_NS_MS = NS * 1000


def marginal(price: Price, usage: Usage) -> int:
    """Pico-units of the price's currency; never below 0, and more use never costs less.

    Tokens that were cached or that went into reasoning are priced as such and not again as input
    or output. Parts of a unit are rounded once, half up.
    """
    prompt, completion = max(usage.prompt_tokens, 0), max(usage.completion_tokens, 0)
    cached = min(max(usage.cached_tokens, 0), prompt)
    reasoned = min(max(usage.reasoning_tokens, 0), completion)
    if price.reasoning_token is None:
        reasoned = 0
    whole = (
        price.request
        + price.input_token * (prompt - cached)
        + price.cached_token * cached
        + price.output_token * (completion - reasoned)
        + (price.reasoning_token or 0) * reasoned
        + price.row * max(usage.rows, 0)
        + price.page * max(usage.pages, 0)
    )
    timed = price.device_second * max(usage.device_ns, 0) * 1000
    timed += price.audio_second * max(usage.audio_ms, 0) * NS
    return min(whole + (timed + _SECOND_NS_MS // 2) // _SECOND_NS_MS, MOST_PICO)
