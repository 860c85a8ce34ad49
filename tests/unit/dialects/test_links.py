"""Addresses inside requests: only those of the public internet, and only to who may have them."""

import json
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.dialects.anthropic.dialect import read_message_request
from tiffin.dialects.links import refusal
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.errors import InvalidRequest, SchemaViolation, UnsupportedParameter
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Plan, Target

CHAT = TextEndpoint("chat", b"/v1/chat/completions")
TOKENIZE = TextEndpoint("tokenize", b"/tokenize")
PASSES = Target(model="far", revision="r", kind="remote", links=True)
NEAR = Target(model="near", revision="r", kind="remote")
NATIVE = Target(model="claude", revision="r", kind="remote", protocol="anthropic", links=True)
PUBLIC = "https://example.com/cat.png"


@pytest.mark.parametrize(
    "url",
    [
        PUBLIC,
        "http://93.184.216.34/a?b=c#d",
        "https://sub.example.co.in:8443/x",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/a",
        "https://example.com./a",
    ],
)
def test_addresses_of_the_internet_are_passed(url: str) -> None:
    assert refusal(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/a",
        "http://LOCALHOST./a",
        "http://box.localhost/a",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://intranet/a",
        "http://printer.local/a",
        "http://127.0.0.1/a",
        "http://127.1/a",
        "http://0x7f000001/a",
        "http://2130706433/a",
        "http://0177.0.0.1/a",
        "http://0/a",
        "http://0.0.0.0/a",
        "http://10.1.2.3/a",
        "http://172.16.0.1/a",
        "http://192.168.1.1/a",
        "http://100.64.0.1/a",
        "http://169.254.169.254/latest/meta-data/",
        "http://224.0.0.1/a",
        "http://[::1]/a",
        "http://[::]/a",
        "http://[fe80::1]/a",
        "http://[fd00:ec2::254]/a",
        "http://[::ffff:127.0.0.1]/a",
        "http://[::ffff:169.254.169.254]/a",
        "http://[64:ff9b::a9fe:a9fe]/a",
        "http://[2002:7f00:1::]/a",
        "http://[2001::1]/a",
        "http://me@example.com/a",
        "http://example.com:0/a",
        "http://example.com:99999/a",
        "http://exa mple.com/a",
        "http://example.com\\@127.0.0.1/a",
        "http://exämple.com/a",
        "file:///etc/passwd",
        "ftp://example.com/a",
        "gs://bucket/a",
        "//example.com/a",
        "cat.png",
        "http:///a",
        "",
        "https://example.com/" + "a" * 9000,
    ],
)
def test_all_others_are_not(url: str) -> None:
    assert refusal(url)


@given(st.ip_addresses(v=4))
def test_an_address_is_the_same_however_it_is_written(address: IPv4Address) -> None:
    number = int(address)
    spellings = [str(address), str(number), hex(number), f"[::ffff:{address}]"]
    verdicts = {bool(refusal(f"http://{host}/a")) for host in spellings}
    assert verdicts == {not address.is_global or address.is_multicast}


@given(st.ip_addresses(v=6))
def test_no_private_address_of_ipv6_passes(address: IPv6Address) -> None:
    if not address.is_global:
        assert refusal(f"http://[{address}]/a")


def ask(url: str, *targets: Target, endpoint: TextEndpoint = CHAT) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    asked = endpoint.read(FakeExchange(b"POST", b"/"), json.dumps(body).encode())
    asked.check(Plan(name="m", identity="", targets=targets))


@pytest.mark.parametrize("endpoint", [CHAT, TOKENIZE], ids=["chat", "tokenize"])
def test_a_link_goes_to_who_may_have_it_and_content_to_everybody(endpoint: TextEndpoint) -> None:
    ask(PUBLIC, PASSES, endpoint=endpoint)
    ask("data:image/png;base64,aGk=", NEAR, PASSES, endpoint=endpoint)
    with pytest.raises(UnsupportedParameter, match="aren't passed on to 'near'; send the content"):
        ask(PUBLIC, PASSES, NEAR, endpoint=endpoint)
    with pytest.raises(SchemaViolation, match="isn't on the public internet") as refused:
        ask("http://169.254.169.254/latest", PASSES, endpoint=endpoint)
    assert refused.value.param == "messages[0].content[0].image_url"


@pytest.mark.parametrize("kind", ["image", "document"])
def test_links_in_messages_are_looked_at_wherever_they_go(kind: str) -> None:
    def check(url: str, target: Target, *, inside: bool = False) -> None:
        block: dict[str, Any] = {"type": kind, "source": {"type": "url", "url": url}}
        if inside:
            block = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
        turns = [{"role": "user", "content": [block]}]
        body = {"model": "m", "max_tokens": 5, "messages": turns}
        asked = read_message_request(FakeExchange(b"POST", b"/"), json.dumps(body).encode())
        asked.check(Plan(name="m", identity="", targets=(target,)))

    check(PUBLIC, NATIVE)
    for inside in (False, True):
        with pytest.raises(InvalidRequest, match="public internet"):
            check("http://10.0.0.1/a", NATIVE, inside=inside)
    with pytest.raises(UnsupportedParameter, match="aren't passed on"):
        check(PUBLIC, NEAR)
