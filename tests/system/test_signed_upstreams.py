"""SageMaker and Vertex through the whole of Tiffin, by stand-ins, with `openai` unmodified."""

from collections.abc import Iterator
from hashlib import sha256

import openai
import pytest
from openai import OpenAI

from tests.aws import ACCESS, SECRET, json_lines, message, signature_of
from tests.google import account, claims_of, pem
from tests.system.server import KEY, Server, body, until
from tests.system.upstream_fake import Answer, Upstream, serving

pytestmark = pytest.mark.xdist_group("signed")

INDIAN = "sk-tiffin-stays-in-mumbai"
ELSEWHERE = "sk-tiffin-stays-elsewhere"
MODELS = """
[egress]
allow = ["127.0.0.1"]

[models.sage]
runtime = "remote"
profile = "sagemaker"
url = "{url}"
model = "chats"
region = "ap-south-1"
key_file = "{keys}"

[models.gemini]
runtime = "remote"
profile = "vertex"
url = "{url}/v1/projects/p/locations/asia-south1/endpoints/openapi"
model = "google/gemini"
key_file = "{file}"

[tenants.indian.keys.one]
key_sha256 = "{indian}"
region = "asia-south1"

[tenants.other.keys.one]
key_sha256 = "{elsewhere}"
region = "eu-west-1"
"""
TOKEN = "ya29.lent-by-the-endpoint"
CHATS = "/v1/projects/p/locations/asia-south1/endpoints/openapi/chat/completions"
PEM = pem().splitlines()[5]


@pytest.fixture(scope="module")
def there() -> Iterator[Upstream]:
    with serving() as upstream:
        upstream.answers["/token"] = Answer(told={"access_token": TOKEN, "expires_in": 3599})
        lines = json_lines("Nama", "ste.")
        upstream.answers["/endpoints/chats/invocations-response-stream"] = Answer(
            events=[message(lines[:40]), message(lines[40:])],
            kind="application/vnd.amazon.eventstream",
        )
        yield upstream


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, there: Upstream) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("signed")
    keys, file = folder / "keys", folder / "account.json"
    keys.write_text(f"{ACCESS}:{SECRET}")
    file.write_text(account(f"{there.address}/token"))
    indian, elsewhere = (sha256(key.encode()).hexdigest() for key in (INDIAN, ELSEWHERE))
    models = MODELS.format(
        url=there.address, keys=keys, file=file, indian=indian, elsewhere=elsewhere
    )
    server = Server(folder, models)
    try:
        server.start()
        server.until_answers("gemini")
        yield server
    finally:
        server.close()


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0) as client:
        yield client


def said(client: OpenAI, model: str) -> str:
    chunks = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hello"}], stream=True
    )
    return "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


def test_chats_are_signed_whole_and_streamed(client: OpenAI, there: Upstream) -> None:
    there.seen.clear()
    answer = client.chat.completions.create(
        model="sage", messages=[{"role": "user", "content": "hello"}], max_completion_tokens=5
    )
    assert answer.choices[0].message.content == "Namaste."
    assert said(client, "sage") == "Namaste."
    whole, streamed = there.seen
    assert whole.path == "/endpoints/chats/invocations"
    assert whole.told["max_tokens"] == 5
    assert "model" not in whole.told
    for seen in (whole, streamed):
        assert seen.headers["authorization"].endswith(f"Signature={signature_of(seen)}")
        assert seen.headers["content-type"] == "application/json"
    responded = client.responses.create(model="sage", input="hello")
    assert responded.output_text == "Namaste."


def test_a_clock_that_differs_is_said_to_be_the_reason(client: OpenAI, there: Upstream) -> None:
    path = "/endpoints/chats/invocations"
    late = {"message": "Signature expired: 20150830T123600Z is now earlier than 20150830T124500Z"}
    there.answers[path] = Answer(status=403, told=late)
    with pytest.raises(openai.InternalServerError, match=r"\(status 403\): by its clock"):
        client.chat.completions.create(model="sage", messages=[{"role": "user", "content": "hi"}])
    del there.answers[path]
    assert said(client, "sage") == "Namaste."


def test_a_revoked_token_is_renewed_and_the_attempt_is_in_the_ledger(
    client: OpenAI, server: Server, there: Upstream
) -> None:
    assert said(client, "gemini") == "Namaste."
    there.seen.clear()
    there.once[CHATS] = Answer(status=401, told={"error": {"message": "invalid credentials"}})
    reply = server.http.post("/v1/chat/completions", json=body("gemini", "hello"))
    assert reply.status_code == 200
    assert [seen.path for seen in there.seen] == [CHATS, "/token", CHATS]
    assert claims_of(there.seen[1].body)["aud"] == f"{there.address}/token"
    request = reply.headers["x-request-id"]
    entry = until(lambda: next((e for e in server.accounts() if e["id"] == request), None))
    assert [one["status"] for one in entry["attempts"]] == [401, 200]


def test_the_address_says_where_data_go(server: Server) -> None:
    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        asked = body("gemini", "hello")
        return server.http.post("/v1/chat/completions", json=asked, headers=headers).status_code

    assert (status(INDIAN), status(ELSEWHERE)) == (200, 403)


def test_no_secret_is_anywhere_that_the_server_writes(server: Server) -> None:
    written = server.written().values()
    assert written
    shown = [server.http.get(path).content for path in ("/admin/v1/status", "/metrics")]
    for content in [server.output.read_bytes(), *shown, *written]:
        for secret in (SECRET, PEM, TOKEN):
            assert secret.encode() not in content
