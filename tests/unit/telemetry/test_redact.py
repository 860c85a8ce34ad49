"""Personal data goes, everything else stays, and no text takes long."""

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.telemetry.checksums import is_aadhaar, is_card, luhn, verhoeff
from tiffin.telemetry.redact import find, redact
from tiffin.types.ids import new_id


@pytest.mark.parametrize(
    "text",
    [
        "asha@example.com",
        "asha.rao+news@mail.example.co.in",
        "a_b%c-d@x-y.org",
        "आशा@उदाहरण.com",
        f"{'a' * 100}@example.com",
    ],
)
def test_an_email_address_goes(text: str) -> None:
    assert redact(text) == "[email]"
    assert redact(f"<{text}>, then") == "<[email]>, then"
    assert redact(f"mail {text}.") == "mail [email]."
    assert redact(f"{text}।") == "[email]।"


@pytest.mark.parametrize(
    "text",
    [
        "9876543210",
        "98765 43210",
        "98765-43210",
        "987-654-3210",
        "9876 543 210",
        "9876 54 3210",
        "9876 543210",
        "98 7654 3210",
        "098765 43210",
        "09876543210",
        "919876543210",
        "91 98765 43210",
        "+919876543210",
        "+91 98765 43210",
        "+91-98765-43210",
        "+91 (98765) 43210",
        "00919876543210",
        "0091 98765 43210",
        "98765\u00a043210",
        "98765\u201343210",
        "022-2345 6789",
        "080 2345 6789",
        "(022) 23456789",
        "02223456789",
        "+91 22 2345 6789",
        "(415) 555-2671",
        "415-555-2671",
        "415.555.2671",
        "1-415-555-2671",
        "+1 415 555 2671",
        "+1.415.555.2671",
        "+44 20 7946 0958",
        "020 7946 0958",
        "+49 (0)30 123456-78",
        "+971501234567",
        "९८७६५४३२१०",
        "+९१ ९८७६५ ४३२१०",
        "௯௮௭௬௫௪௩௨௧௦",
    ],
)
def test_a_phone_number_goes(text: str) -> None:
    assert redact(text) == "[phone]"
    assert redact(f"call {text}, please") == "call [phone], please"
    assert redact(f"tel:{text}\nnext") == "tel:[phone]\nnext"
    assert redact(f'{{"phone":"{text}"}}') == '{"phone":"[phone]"}'
    assert redact(f"a\\n{text}\\n") == "a\\n[phone]\\n"


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "४१११ ११११ ११११ ११११",
        "5555555555554444",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "30569309025904",
        "6011111111111117",
        "3530111333300000",
        "6521 1111 1111 1110",
        "4222222222222",
    ],
)
def test_a_card_number_goes(text: str) -> None:
    assert redact(text) == "[card]"
    assert redact(f"card {text} expires") == "card [card] expires"


@pytest.mark.parametrize("text", ["234123412346", "2341 2341 2346", "2341-2341-2346"])
def test_an_aadhaar_number_goes(text: str) -> None:
    assert redact(text) == "[aadhaar]"
    assert redact(f"its number is {text}.") == "its number is [aadhaar]."


@pytest.mark.parametrize("text", ["ABCPE1234F", "abcpz1234f", "AAACR5055K"])
def test_a_pan_goes(text: str) -> None:
    assert redact(f"PAN: {text}!") == "PAN: [pan]!"
    assert redact(f"\\n{text}") == "\\n[pan]"


@pytest.mark.parametrize(
    "text", ["asha@okhdfcbank", "asha.rao@ybl", "9876543210@paytm", "9876543210@newbank", "A@UPI"]
)
def test_a_upi_address_goes(text: str) -> None:
    assert redact(f"pay {text} now") == "pay [upi] now"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing at all",
        "listening on 127.0.0.1:8080, pid 123456",
        "192.168.100.200:8080",
        "2026-12-01T10:58:00.123456789Z",
        "2026-12-01 10:58:00,123",
        "01-02-2026 10:58",
        "1764586680",
        "1764586680123",
        "1764586680123456",
        "1764586680123456789",
        "1764586680.123456",
        "took 0.9876543210 s and 12.9876543210 ms",
        "1.5e+9876543210",
        "9,876,543,210 bytes",
        "4111111111111112",
        "4111 1111 1111 1112",
        "234123412347",
        "ABCDE1234F",
        "deadbeef1a",
        "0x9876543210",
        "sha256:9876543210abcdef",
        "550e8400-e29b-41d4-a716-446655440000",
        "12345678-1234-5678-1234-987654321012",
        "build 7-9876543210-2",
        "call_9876543210",
        "user@host",
        "react@latest",
        "python@3",
        "a @ b.com",
        "llama_perf: 4096 tokens, 32 layers, 151936 vocabulary",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ],
)
def test_what_is_not_personal_stays(text: str) -> None:
    assert redact(text) == text


def test_our_own_ids_stay() -> None:
    for _ in range(500):
        for text in (f"request {new_id('req')} ended", f"{new_id('ep')}.000001.journal"):
            assert redact(text) == text


@given(st.uuids())
def test_uuids_stay(value: uuid.UUID) -> None:
    assert redact(f"id={value}") == f"id={value}"


@given(st.binary(min_size=16, max_size=32), st.binary(min_size=8, max_size=8))
def test_hex_and_traces_stay(trace: bytes, span: bytes) -> None:
    for text in (f"00-{trace.hex()}-{span.hex()}-01", f"sha256:{trace.hex()}"):
        assert redact(text) == text


@given(st.integers(1_500_000_000, 1_999_999_999), st.integers(0, 999_999_999))
def test_timestamps_stay(seconds: int, fraction: int) -> None:
    for text in (str(seconds), f"{seconds}.{fraction:09}", f"at_ns={seconds}{fraction:09}"):
        assert redact(text) == text


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 1e9))
def test_decimals_stay(number: float) -> None:
    assert redact(f"took {number!r} s") == f"took {number!r} s"


ASIDE = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["N", "L", "Mc", "Mn"]))


@given(ASIDE, st.sampled_from(["9876543210", "+91 98765 43210", "4111 1111 1111 1111"]))
def test_a_number_goes_whatever_signs_are_around_it(signs: str, number: str) -> None:
    text = f"{signs} {number} {signs}"
    assert number not in redact(text)


@given(st.integers(0, 10**11 - 1))
def test_every_aadhaar_number_goes_and_its_neighbours_stay(body: int) -> None:
    first = f"{2 + body % 8}{body:011}"[:11]
    valid = [f"{first}{last}" for last in range(10) if verhoeff(f"{first}{last}".encode())]
    assert len(valid) == 1
    for last in range(10):
        number = f"{first}{last}"
        assert is_aadhaar(number.encode()) == (number in valid)
    assert redact(f"no. {valid[0]}") in ("no. [aadhaar]", "no. [card]")


@given(st.integers(0, 10**14 - 1))
def test_exactly_one_check_digit_makes_a_card(body: int) -> None:
    valid = [last for last in range(10) if luhn(f"4{body:014}{last}".encode())]
    assert len(valid) == 1
    assert is_card(f"4{body:014}{valid[0]}".encode())
    assert not is_card(f"9{body:014}{valid[0]}".encode())


@given(st.text(alphabet="0123456789 +-().@abc९\n", max_size=80))
def test_findings_are_in_order_inside_the_text_and_apart(text: str) -> None:
    end = 0
    for found in find(text):
        assert end <= found.start < found.end <= len(text)
        end = found.end


def test_several_kinds_in_one_text() -> None:
    text = "Asha <asha@example.com>, 98765 43210, pays asha@ybl from 4111111111111111"
    assert redact(text) == "Asha <[email]>, [phone], pays [upi] from [card]"


MUCH = 200_000


@pytest.mark.parametrize(
    "unit",
    [
        "1 ", "a", "a@", "4", "4444 ", "+9 ", "9-", "98765 ", "a@b.", "a@b.c ", "ABCPE1234F ",
        "2341 2341 2345 ", "९ ", "9876543210@", "9876543210,",
    ],
)  # fmt: skip
def test_time_is_linear_in_hostile_text(unit: str) -> None:
    text = unit * (MUCH // len(unit))
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 2.0
