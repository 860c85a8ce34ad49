"""Personal data in text: found where it looks and checks like it, and replaced by its kind.

Kinds: e-mail addresses, phone numbers (Indian, North American, and any with `+`), payment cards
(issuer and Luhn), Aadhaar (Verhoeff), PAN, UPI addresses; digits of any script. Ids, hex,
timestamps and decimals are left alone. Time is linear in the text, whatever it is.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tiffin.telemetry.checksums import is_aadhaar, is_card


class Found(NamedTuple):
    """One piece of personal data: `text[start:end]`, and its kind as in `[kind]`."""

    start: int
    end: int
    kind: str


def redact(text: str) -> str:
    """The text with every piece of personal data replaced by `[kind]`."""
    if "@" not in text and _MANY_DIGITS.search(text) is None:
        return text
    pieces: list[str] = []
    done = 0
    for found in find(text):
        pieces += (text[done : found.start], "[", found.kind, "]")
        done = found.end
    return "".join((*pieces, text[done:])) if done else text


def find(text: str) -> Iterator[Found]:
    """Every piece of personal data, in order and without overlap."""
    if not text.isascii():
        text = _FOREIGN.sub(_plain, text)
    end = 0
    every = [*_addresses(text), *_pans(text), *_numbers(text)]
    for found in sorted(every, key=lambda found: (found.start, -found.end)):
        if found.start >= end:
            yield found
            end = found.end


# The least that a PAN or a number has.
_MANY_DIGITS = re.compile(r"\d{4}|\d(?:\D{0,2}\d){7}")
# Digits of other scripts, and the spaces and dashes that stand between digits.
_FOREIGN = re.compile(r"[\u00a0\u2007\u202f\u2010-\u2015\u2212]|(?![0-9])\d")


def _plain(match: re.Match[str]) -> str:
    """One character for one, so that places stay what they are."""
    return str(int(match[0])) if match[0].isdecimal() else "-"


# Letters and digits, with the vowel signs of Indic scripts, which are no word characters to `re`.
_LETTER = r"\w\u0900-\u0963\u0966-\u0dff"
# Possessive: a run that doesn't lead to an @ is passed once.
_NAME = rf"(?<![{_LETTER}.%+-])[{_LETTER}.%+-]++@"
_EMAIL = re.compile(
    rf"{_NAME}(?:[{_LETTER}-]++\.)+(?:[^\W\d_]|[\u0900-\u0963\u0970-\u0dff]){{2,63}}+"
)
_UPI = re.compile(_NAME + r"([a-zA-Z][a-zA-Z0-9]{1,63}+)(?![\w@-]|\.\w)")
_UPI_HANDLES = frozenset(
    re.findall(
        r"\w+",
        """
    abfspay airtel airtelpaymentsbank allbank andb apl aubank axb axisb axisbank axisgo axl axp
    bandhan barodampay barodapay bpunity cboi centralbank citi citigold cmsidfc cnrb cred csbpay
    cub dbs dcb dlb equitas ezeepay fam fbl federal fifederal finobank freecharge goaxb hdfcbank
    hdfcbankjd hsbc ibl icici idbi idfc idfcbank idfcfirst idfcnetc ikwik imobile indbank
    indianbank indie indus indusind iob jio jiopartner jkb jsb jupiteraxis karb karurvysyabank
    kaypay kbl kmb kotak kotak811 kvb lime liv lvb mahb naviaxis niyoicici nsdl nyes obc okaxis
    okbizaxis okhdfcbank okicici oksbi oksbp omni paytm payzapp pingpay pinelabs pnb pockets
    postbank psb ptaxis pthdfc ptsbi ptyes pz rajgovhdfcbank rapl rbl rmhdfcbank s2b sbi sc
    shriramhdfcbank sib slc slice spicepay srcb superyes synd tapicici tjsb timecosmos ubi uboi
    uco unionbank unionbankofindia united upi utbi utkarshbank vijb waaxis wahdfcbank waicici
    wasbi yapl ybl yesbank yesbankltd yescred yesg yesp yespay yespop zoicici
        """,
    )
)
_MOBILE = re.compile(r"(?:\+?91)?[6-9]\d{9}")


def _addresses(text: str) -> Iterator[Found]:
    if "@" not in text:
        return
    for match in _EMAIL.finditer(text):
        yield Found(match.start(), match.end(), "email")
    for match in _UPI.finditer(text):
        name = text[match.start() : match.start(1) - 1]
        if match[1].lower() in _UPI_HANDLES or _MOBILE.fullmatch(name):
            yield Found(match.start(), match.end(), "upi")


# Outside of words; the letter of an escape in quoted text is none of the word after it.
_APART = r"(?:(?<!\w)|(?<=\\[nrtbf]))"
# The fourth letter says whose it is: person, company, trust and so on.
_PAN = re.compile(_APART + r"[A-Za-z]{3}[ABCEFGHJKLPTabcefghjklpt][A-Za-z][0-9]{4}[A-Za-z](?!\w)")
_HEX = re.compile(r"[0-9a-f]+")


def _pans(text: str) -> Iterator[Found]:
    for match in _PAN.finditer(text):
        pan = match[0]
        if pan.isupper() or (pan.islower() and not _HEX.fullmatch(pan)):
            yield Found(match.start(), match.end(), "pan")


_DASH = "[ -]"
_GAP = "[ .()-]{0,2}"
# Outside of exponents and decimals.
_BEGIN = rf"{_APART}(?<!\w\+)(?<!\d\.)"
_END = r"(?!\w|\.\d)"

_CARD_AND_CODE = rf"\d{{4}}(?:{_DASH}\d{{4}}){{3}}{_DASH}\d{{3}}"
_CARD = rf"\d{{12,19}}|\d{{4}}(?:{_DASH}\d{{4}}){{3}}|\d{{4}}{_DASH}\d{{6}}{_DASH}\d{{4,5}}"
_AADHAAR = rf"\d{{12}}|\d{{4}}{_DASH}\d{{4}}{_DASH}\d{{4}}"
# With a country's code; the lengths of India and North America are known.
_ABROAD = (
    rf"\+{_GAP}(?:91(?:{_GAP}\d){{10}}|1(?:{_GAP}\d){{10}}|[2-9](?:{_GAP}\d){{7,14}})"
    rf"|00[1-9](?:{_GAP}\d){{8,13}}"
)
# The ways an Indian mobile number is grouped; a country or trunk code may stand before it.
_INDIAN_MOBILE = (
    rf"(?:\(?(?:0?91|0)\)?{_DASH}?)?(?:[6-9]\d{{9}}|[6-9]\d{{4}}{_DASH}\d{{5}}"
    rf"|[6-9]\d{{2}}{_DASH}\d{{3}}{_DASH}\d{{4}}|[6-9]\d{{3}}{_DASH}\d{{3}}{_DASH}\d{{3}}"
    rf"|[6-9]\d{{3}}{_DASH}\d{{2}}{_DASH}\d{{4}}|[6-9]\d{_DASH}\d{{4}}{_DASH}\d{{4}}"
    rf"|[6-9]\d{{3}}{_DASH}\d{{6}}|[6-9]\d{{5}}{_DASH}\d{{4}})"
)
# (415) 555-2671, 415-555-2671, 415.555.2671
_AMERICAN = r"(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[.-])[2-9]\d\d[.-]\d{4}"
# With an area code after a 0: 022-2345 6789, (080) 23456789, 020 7946 0958.
_TRUNK = rf"\(?0[1-9]\d{{1,3}}\)?{_DASH}\d{{3,4}}{_DASH}?\d{{3,4}}|0[1-9]\d{{9}}"

_KINDS: tuple[tuple[str, str, Callable[[bytes], bool]], ...] = (
    ("card", _CARD_AND_CODE, is_card),
    ("card", _CARD, is_card),
    ("aadhaar", _AADHAAR, is_aadhaar),
    ("phone", f"{_ABROAD}|{_INDIAN_MOBILE}|{_AMERICAN}", lambda digits: True),
    ("phone", _TRUNK, lambda digits: 10 <= len(digits) <= 11),
)
_NUMBER = re.compile(f"(?=[0-9+(]){_BEGIN}(?:{'|'.join(shape for _, shape, _ in _KINDS)}){_END}")
_SHAPES = tuple((kind, re.compile(f"(?:{shape}){_END}"), holds) for kind, shape, holds in _KINDS)


def _numbers(text: str) -> Iterator[Found]:
    position = 0
    while match := _NUMBER.search(text, position):
        found = _number_at(text, match.start())
        if found is None:
            position = match.start() + 1
        else:
            yield found
            position = found.end


def _number_at(text: str, start: int) -> Found | None:
    """The number that begins here and checks as what it looks like."""
    for kind, shape, holds in _SHAPES:
        match = shape.match(text, start)
        if match is None or not holds(match[0].encode().translate(None, b" .()+-")):
            continue
        if not _in_id(text, start, match.end()):
            return Found(start, match.end(), kind)
    return None


# A number joined to an id by a dash is a part of it, as in a UUID.
_ID_BEFORE = re.compile(r"\d\w*-\Z")
_ID_AFTER = re.compile(r"-\w*\d")
_ID_REACH = 40


def _in_id(text: str, start: int, end: int) -> bool:
    before = text[start - 1 : start] == "-" and _ID_BEFORE.search(
        text, max(0, start - _ID_REACH), start
    )
    return bool(before or _ID_AFTER.match(text, end, end + _ID_REACH))
