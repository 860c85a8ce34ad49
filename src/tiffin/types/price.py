"""What use costs while it happens: the marginal price of each unit that a request may use."""

import msgspec


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pico-units (10⁻¹²) of `currency` for one of each.

    `cached_token` is for tokens of the input that needn't be read again (they aren't
    `input_token`s as well), `reasoning_token` for output that nobody sees (None: as any other).
    `device_second` is for a second of the device that computes.
    """

    currency: str
    request: int = 0
    input_token: int = 0
    cached_token: int = 0
    output_token: int = 0
    reasoning_token: int | None = None
    device_second: int = 0
    row: int = 0
    page: int = 0
    audio_second: int = 0
