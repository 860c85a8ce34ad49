"""OpenAI's unmodified client and `/v1/responses`: whole, streamed, continued, between tenants."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.system.conftest import ECHO
from tests.system.server import KEY, Server, until

pytestmark = pytest.mark.xdist_group("responses")

OTHER_KEY = "sk-tiffin-other-tenant"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("responses")
    (folder / "other").write_text(OTHER_KEY)
    other = f'[tenants.other.keys.main]\nkey_file = "{folder / "other"}"\n'
    server = Server(folder, ECHO + "tools = true\n" + other)
    try:
        server.start()
        server.until_answers("echo")
        yield server
    finally:
        server.close()


def client_of(server: Server, key: str) -> OpenAI:
    return OpenAI(api_key=key, base_url=f"{server.status().address}/v1", max_retries=0)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with client_of(server, KEY) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(server: Server) -> Iterator[OpenAI]:
    with client_of(server, OTHER_KEY) as client:
        yield client


def test_a_whole_response_can_be_read_again(client: OpenAI) -> None:
    response = client.responses.create(model="echo", input="hello there", metadata={"a": "b"})
    assert response.output_text == "hello there"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens == 2
    assert client.responses.retrieve(response.id) == response
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.retrieve(response.id)
    assert gone.value.code == "response_not_found"


def test_a_streamed_response_is_the_whole_one(client: OpenAI) -> None:
    with client.responses.stream(model="echo", input="one two three") as stream:
        said = "".join(
            event.delta for event in stream if event.type == "response.output_text.delta"
        )
        final = stream.get_final_response()
    assert said == final.output_text == "one two three"
    assert client.responses.retrieve(final.id).output_text == said


def test_a_conversation_is_continued(client: OpenAI) -> None:
    first = client.responses.create(model="echo", input="one")
    second = client.responses.create(model="echo", input="two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    items = client.responses.input_items.list(second.id, order="asc", limit=2)
    assert len(list(items)) == 3


def test_another_tenant_finds_nothing(client: OpenAI, stranger: OpenAI) -> None:
    mine = client.responses.create(model="echo", input="mine")
    for reach in (
        lambda: stranger.responses.retrieve(mine.id),
        lambda: stranger.responses.delete(mine.id),
        lambda: stranger.responses.input_items.list(mine.id),
    ):
        with pytest.raises(openai.NotFoundError):
            reach()
    with pytest.raises(openai.NotFoundError) as refused:
        stranger.responses.create(model="echo", input="x", previous_response_id=mine.id)
    assert refused.value.code == "previous_response_not_found"
    assert mine.id in refused.value.message
    assert client.responses.retrieve(mine.id).output_text == "mine"


async def test_many_conversations_at_once_stay_apart(server: Server) -> None:
    async with AsyncOpenAI(api_key=KEY, base_url=f"{server.status().address}/v1") as client:

        async def talk(number: int) -> None:
            previous = None
            for turn in range(3):
                said = f"conversation {number} turn {turn} " + "x" * (number + 1)
                response = await client.responses.create(
                    model="echo", input=said, previous_response_id=previous
                )
                assert response.output_text == said
                previous = response.id
            assert previous is not None
            items = await client.responses.input_items.list(previous, limit=100)
            told: Any = [item async for item in items]
            texts = [item.content[0].text for item in told]
            assert len(texts) == 5
            assert all(text.startswith(f"conversation {number} ") for text in texts)

        await asyncio.gather(*(talk(number) for number in range(24)))


def test_what_isnt_stored_cant_be_found(client: OpenAI) -> None:
    response = client.responses.create(model="echo", input="x", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_an_error_is_told_in_the_requests_own_names(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="echo", input="word " * 5000)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "input"


def test_each_response_has_its_entry(server: Server, client: OpenAI) -> None:
    told = client.responses.with_raw_response.create(model="echo", input="for the books")
    id_ = told.headers["x-request-id"]
    entry = until(lambda: next((e for e in server.accounts() if e["id"] == id_), None))
    assert (entry["endpoint"], entry["outcome"]) == ("responses", "ok")
