"""Whether digits are a payment card's or an Aadhaar number's: issuer, length and check digit."""

# Lengths by the first digits of an issuer. None begins with the 1 that timestamps do.
_LENGTHS: dict[str, frozenset[int]] = {
    "4": frozenset({13, 16, 19}),
    **dict.fromkeys(("51", "52", "53", "54", "55"), frozenset({16})),
    **dict.fromkeys(map(str, range(2221, 2721)), frozenset({16})),
    **dict.fromkeys(("34", "37"), frozenset({15})),
    **dict.fromkeys(("300", "301", "302", "303", "304", "305", "36", "38", "39"), frozenset({14})),
    **dict.fromkeys(("60", "81", "82", "508", "353", "354", "355", "356"), frozenset({16})),
    **dict.fromkeys(("357", "358", "6521", "6522"), frozenset({16})),
    **dict.fromkeys(("6011", "62", "65", *map(str, range(644, 650))), frozenset({16, 17, 18, 19})),
    **dict.fromkeys(("5018", "5020", "5038", "6304", "6759", "676"), frozenset(range(12, 20))),
}
_DOUBLED = bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)).rjust(ord("9") + 1, b"\0").ljust(256, b"\0")

# Verhoeff's dihedral group of order 10 and the permutations by position.
_TIMES = tuple(
    tuple(map(int, row))
    for row in (
        "0123456789",
        "1234067895",
        "2340178956",
        "3401289567",
        "4012395678",
        "5987604321",
        "6598710432",
        "7659821043",
        "8765932104",
        "9876543210",
    )
)
_PLACES = tuple(
    tuple(map(int, row))
    for row in (
        "0123456789",
        "1576283094",
        "5803796142",
        "8916043527",
        "9453126870",
        "4286573901",
        "2793806415",
        "7046913258",
    )
)


def is_card(digits: bytes) -> bool:
    """Whether these ASCII digits have an issuer's form and Luhn's check digit."""
    if not luhn(digits):
        return False
    first, length = digits[:4].decode(), len(digits)
    return any(length in _LENGTHS.get(first[:count], ()) for count in (1, 2, 3, 4))


def is_aadhaar(digits: bytes) -> bool:
    """Whether these ASCII digits are twelve, don't begin with 0 or 1, and end in Verhoeff's."""
    return len(digits) == 12 and digits[0] >= ord("2") and verhoeff(digits)


def luhn(digits: bytes) -> bool:
    """Whether the last digit is Luhn's (ISO/IEC 7812-1)."""
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    return (sum(plain) - ord("0") * len(plain) + sum(doubled)) % 10 == 0


def verhoeff(digits: bytes) -> bool:
    """Whether the last digit is Verhoeff's (J. Verhoeff, Error Detecting Decimal Codes, 1969)."""
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = _TIMES[check][_PLACES[place % 8][digit - ord("0")]]
    return check == 0
