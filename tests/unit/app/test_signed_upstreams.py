"""Upstreams whose calls are signed, on real sockets: what they are sent, and what comes back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from tests.aws import ACCESS, SECRET, json_lines, message, signature_of
from tests.google import EMAIL, account, claims_of, pem
from tests.system.upstream_fake import Answer, Upstream, serving
from tiffin.adapters.upstreams.aws import AT_ONCE_BYTES
from tiffin.app.upstreams import upstream
from tiffin.config.load import load_text
from tiffin.control.candidate import prepared
from tiffin.errors import ConfigInvalid, UpstreamRefused
from tiffin.ports.backend import Call, Reply
from tiffin.ports.outbox import DirectOutbox
from tiffin.types.profiles import PROFILES
from tiffin.types.snapshot import Target

STREAM = "application/vnd.amazon.eventstream"
CHAT = b'{"model":"chat 1","messages":[]%b}'
SAID = Answer(told={"choices": [], "said": "Namaste."})


@pytest.fixture
def there() -> Iterator[Upstream]:
    with serving() as there:
        there.whole = SAID
        yield there


@pytest.fixture
def endpoint(there: Upstream, tmp_path: Path) -> Target:
    keys = tmp_path / "keys"
    keys.write_text(f"{ACCESS}:{SECRET}:tok/en==")
    return Target(
        model="m",
        revision="r",
        kind="remote",
        profile="sagemaker",
        url=there.address,
        region="ap-south-1",
        upstream_model="chat 1",
        key_file=str(keys),
    )


async def whole(reply: Reply) -> bytes:
    return await reply.read_all(9999)


async def every_part(reply: Reply) -> bytes:
    assert reply.streaming
    parts = []
    while part := await reply.read():
        parts.append(part)
    return b"".join(parts)


def asked(
    target: Target, *bodies: bytes, read: Callable[[Reply], Awaitable[bytes]] = whole
) -> tuple[int, bytes]:
    """What comes of chats with these bodies, the last's."""

    async def ask() -> tuple[int, bytes]:
        backend = upstream(target, DirectOutbox())
        deadline = asyncio.get_running_loop().time() + 10
        try:
            for body in bodies:
                call = Call(b"/chat/completions", body, b"traceparent: 00-1-1-01\r\n", deadline)
                async with backend.start(call) as reply:
                    found = reply.status, await read(reply)
            return found
        finally:
            backend.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("more", [0, AT_ONCE_BYTES], ids=["small", "large"])
def test_a_call_is_signed_with_its_body_and_session(
    endpoint: Target, there: Upstream, more: int
) -> None:
    status, body = asked(endpoint, CHAT % (b',"user":"%b"' % (b"x" * more)))
    assert (status, body) == (200, b'{"choices": [], "said": "Namaste."}')
    [seen] = there.seen
    assert seen.path == "/endpoints/chat%201/invocations"
    assert seen.headers["x-amz-security-token"] == "tok/en=="
    header = seen.headers["authorization"]
    assert "/ap-south-1/sagemaker/aws4_request" in header
    for name in ("host", "content-type", "x-amz-date", "x-amz-security-token"):
        assert name in header
    assert header.endswith(f"Signature={signature_of(seen)}")
    assert SECRET not in str(seen)


def test_a_stream_is_unwrapped(endpoint: Target, there: Upstream) -> None:
    lines = json_lines("Nama", "ste.")
    wrapped = [message(lines[:50]), message(lines[50:])]
    there.stream = Answer(events=wrapped, kind=STREAM)
    status, told = asked(endpoint, CHAT % b',"stream":true', read=every_part)
    assert status == 200
    assert told.count(b"data: {") == 3
    assert told.endswith(b"data: [DONE]\n\n")
    [seen] = there.seen
    assert seen.path == "/endpoints/chat%201/invocations-response-stream"
    assert seen.headers["authorization"].endswith(signature_of(seen))


def test_the_address_says_the_region() -> None:
    found = PROFILES["sagemaker"].regions
    assert found("https://runtime.sagemaker.eu-west-1.amazonaws.com") == ["eu-west-1"]
    assert found("https://vpce-1.runtime.sagemaker.ap-south-1.vpce.amazonaws.com/x") == [
        "ap-south-1"
    ]
    assert found("https://example.com/runtime.sagemaker.eu-west-1.x") == []


def test_a_clock_that_differs_is_said_to(endpoint: Target, there: Upstream) -> None:
    there.whole = Answer(status=403, told={"message": "Signature expired: 2015 is now earlier"})
    with pytest.raises(UpstreamRefused, match="clock"):
        asked(endpoint, CHAT % b"")


def test_a_containers_own_refusal_is_told(endpoint: Target, there: Upstream) -> None:
    own = {"OriginalStatusCode": 400, "OriginalMessage": '{"error":{"message":"too long"}}'}
    there.whole = Answer(status=424, told=own)
    assert asked(endpoint, CHAT % b"") == (400, b'{"error":{"message":"too long"}}')


def test_keys_that_are_none_keep_the_model_from_running(endpoint: Target) -> None:
    Path(endpoint.key_file).write_text(f"{ACCESS} {SECRET}")

    async def make() -> None:
        upstream(endpoint, DirectOutbox())

    with pytest.raises(ConfigInvalid) as caught:
        asyncio.run(make())
    assert SECRET not in str(caught.value)


TOKEN = Answer(told={"access_token": "ya29.lent", "expires_in": 3599, "token_type": "Bearer"})


@pytest.fixture
def gemini(there: Upstream, tmp_path: Path) -> Target:
    file = tmp_path / "account.json"
    file.write_text(account(f"{there.address}/token?x=1"))
    there.answers["/token?x=1"] = TOKEN
    return Target(
        model="m",
        revision="r",
        kind="remote",
        profile="vertex",
        url=f"{there.address}/v1/projects/p/locations/asia-south1/endpoints/openapi",
        upstream_model="google/gemini",
        key_file=str(file),
        egress=("127.0.0.1",),
    )


def test_an_account_signs_for_a_token_that_serves_every_call(
    gemini: Target, there: Upstream
) -> None:
    before = int(time.time())
    assert asked(gemini, CHAT % b"", CHAT % b"")[0] == 200
    token, *calls = there.seen
    claims = claims_of(token.body)
    assert claims == {
        "iss": EMAIL,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "aud": f"{there.address}/token?x=1",
        "iat": claims["iat"],
        "exp": claims["iat"] + 3600,
    }
    assert before <= claims["iat"] <= time.time()
    assert token.headers["content-type"] == "application/x-www-form-urlencoded"
    path = "/v1/projects/p/locations/asia-south1/endpoints/openapi/chat/completions"
    assert [(call.path, call.headers["authorization"]) for call in calls] == [
        (path, "Bearer ya29.lent")
    ] * 2


def test_googles_usual_variable_and_tokens_themselves_serve_too(
    gemini: Target, there: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", gemini.key_file)
    assert asked(msgspec.structs.replace(gemini, key_file=""), CHAT % b"")[0] == 200
    monkeypatch.setenv("THEIRS", "ya29.printed")
    plain = msgspec.structs.replace(gemini, key_file="", key_env="THEIRS")
    assert asked(plain, CHAT % b"")[0] == 200
    keys = [seen.headers.get("authorization") for seen in there.seen]
    assert keys == [None, "Bearer ya29.lent", "Bearer ya29.printed"]


def test_without_any_credentials_it_does_not_run(
    gemini: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(ConfigInvalid, match="GOOGLE_APPLICATION_CREDENTIALS"):
        asked(msgspec.structs.replace(gemini, key_file=""), CHAT % b"")


def test_a_token_is_one_line(gemini: Target) -> None:
    Path(gemini.key_file).write_text("ya29.a\r\nx-odd: 1")
    with pytest.raises(ConfigInvalid, match="one line") as caught:
        asked(gemini, CHAT % b"")
    assert "ya29" not in str(caught.value)


@pytest.mark.parametrize("key", ["no key", pem(generate_private_key(SECP256R1()))])
def test_what_is_no_key_for_signing_keeps_the_model_from_running(
    gemini: Target, there: Upstream, key: str
) -> None:
    Path(gemini.key_file).write_text(account(f"{there.address}/token", private_key=key))
    with pytest.raises(ConfigInvalid, match="private_key") as caught:
        asked(gemini, CHAT % b"")
    assert key[30:60] not in str(caught.value) or len(key) < 30


def test_no_token_is_asked_of_a_host_that_egress_does_not_list(
    gemini: Target, there: Upstream
) -> None:
    with pytest.raises(ConfigInvalid, match=r"egress\.allow"):
        asked(msgspec.structs.replace(gemini, egress=("example.com",)), CHAT % b"")
    with pytest.raises(ConfigInvalid, match="https"):
        asked(msgspec.structs.replace(gemini, egress=("*",)), CHAT % b"")
    assert there.seen == []


def test_a_model_whose_key_cannot_sign_is_refused_when_it_is_applied(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{ACCESS} {SECRET}")
    models = f"""
    [models.sage]
    runtime = "remote"
    profile = "sagemaker"
    url = "https://runtime.sagemaker.ap-south-1.amazonaws.com"
    key_file = "{keys}"
    """
    with pytest.raises(ConfigInvalid, match="keys of AWS") as caught:
        prepared(load_text(models.encode(), {}))
    assert caught.value.where == "models.sage"
    assert SECRET not in str(caught.value)
    file = tmp_path / "account.json"
    file.write_text(account("http://169.254.169.254/token"))
    vertex = models.replace("sagemaker", "vertex").replace(str(keys), str(file))
    with pytest.raises(ConfigInvalid, match="token_uri") as caught:
        prepared(load_text(vertex.encode(), {}))
