"""Money: whole pico-units (10⁻¹²) of a currency, never floats; shares add up to it."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

PICO: Final = 10**12
"""Pico-units in one unit of a currency."""

MOST_PICO: Final = 2**62
"""What no price and no request costs, whatever is claimed: beyond it numbers don't fit anywhere."""


def pico(amount: Decimal | int | str) -> int:
    """An amount in units as pico-units; raises `ValueError` where it isn't a whole number of them.

    Text is read as a decimal number, so `0.1` is exactly a tenth.
    """
    try:
        exact = Decimal(amount) * PICO
    except ArithmeticError as cause:
        raise ValueError(f"'{amount}' is no amount of money") from cause
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError(f"{amount} isn't a whole number of 10⁻¹² units")
    return int(exact)


def shown(amount_pico: int, currency: str) -> str:
    """An amount in units with its currency, exactly: `0.0025 INR`."""
    sign = "-" if amount_pico < 0 else ""
    units, rest = divmod(abs(amount_pico), PICO)
    fraction = f"{rest:012}".rstrip("0")
    return f"{sign}{units}{'.' if fraction else ''}{fraction} {currency}"


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """Shares of an amount in proportion to weights, by the largest remainder: they sum to it.

    Equal remainders go to whoever comes first. Without any weight all shares are equal. Raises
    `ValueError` for weights below 0 and for nobody to share with.
    """
    if not weights or min(weights) < 0:
        raise ValueError("weights are at least one number, none below 0")
    total = sum(weights)
    if not total:
        weights, total = [1] * len(weights), len(weights)
    shares = [amount * weight // total for weight in weights]
    remainders = [amount * weight % total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -remainders[i])
    for i in by_remainder[: amount - sum(shares)]:
        shares[i] += 1
    return shares
