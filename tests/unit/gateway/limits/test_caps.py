"""Caps: the least of all that hold is held, by the field's own name."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateway.test_walk import ScriptedBackend, Shop, whole
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.errors import SchemaViolation
from tiffin.gateway.limits.caps import NO_CAPS, held
from tiffin.testing.exchange import FakeExchange, json_of
from tiffin.types.caps import Caps
from tiffin.types.limits import Limits
from tiffin.types.snapshot import Plan, Principal, Target, Terms

POST = FakeExchange(b"POST", b"/")
PLAN = Plan(
    name="m",
    identity="1",
    targets=(Target(model="m", revision="r", kind="remote", tools=True),),
)
most = st.none() | st.integers(1, 9)


def shop_of(**caps: Any) -> Shop:
    """A shop whose tenant has caps."""
    shop = Shop(ScriptedBackend(whole()))
    limits = Limits(per_request=Caps(**caps))
    shop.snapshot = msgspec.structs.replace(shop.snapshot, number=9, tenant_limits={"acme": limits})
    return shop


@given(st.lists(most, max_size=3), st.integers(1, 9))
def test_the_least_that_anybody_says_is_what_holds(all_of_them: list[int | None], n: int) -> None:
    caps = held((f"holder {m}", Limits(per_request=Caps(choices=m))) for m in all_of_them)
    body = msgspec.json.encode(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": min(n, 8)}
    )
    asked = TextEndpoint("chat", b"/v1/x").read(POST, body)
    least = min((one for one in all_of_them if one is not None), default=9)
    if min(n, 8) <= least:
        caps.hold(asked, PLAN)
    else:
        with pytest.raises(
            SchemaViolation, match=f"holder {least} may have at most {least}"
        ) as refusal:
            caps.hold(asked, PLAN)
        assert refusal.value.param == "n"


def test_without_caps_nothing_is_looked_at() -> None:
    assert held([("tenant 'a'", Limits())]) is NO_CAPS
    NO_CAPS.hold(None, PLAN)  # type: ignore[arg-type]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def parts(*some: Any) -> Any:
    return [{"role": "user", "content": list(some)}]


@pytest.mark.parametrize(
    ("caps", "body", "param"),
    [
        ({"output_tokens": 9}, {"max_tokens": 10}, "max_tokens"),
        ({"output_tokens": 9}, {"max_completion_tokens": 10}, "max_completion_tokens"),
        ({"choices": 1}, {"n": 2}, "n"),
        ({"stops": 1}, {"stop": ["a", "b"]}, "stop"),
        ({"tools": 0}, {"tools": [TOOL]}, "tools"),
        ({"schema_bytes": 9}, {"tools": [TOOL]}, "tools"),
        (
            {"schema_bytes": 9},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "object"}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"images": 1}, {"messages": parts(PICTURE, LINK)}, "messages"),
        ({"links": 0}, {"messages": parts(LINK)}, "messages"),
        (
            {"file_bytes": 299},
            {"messages": parts({"type": "text", "text": "x"}, PICTURE)},
            "messages[0].content[1].image_url",
        ),
        (
            {"file_bytes": 2},
            {"messages": parts({"type": "input_audio", "input_audio": {"data": "AAAA"}})},
            "messages[0].content[0].input_audio",
        ),
        ({"files": 0}, {"messages": parts({"type": "file", "file": {"file_id": "x"}})}, "messages"),
        ({"input_tokens": 10}, {"messages": parts({"type": "text", "text": "x" * 60})}, "messages"),
    ],
    ids=[
        *("max_tokens", "max_completion_tokens", "n", "stop", "tools", "tool schemas", "schema"),
        *("images", "links", "inline image", "inline sound", "files", "input"),
    ],
)
async def test_what_is_over_a_cap_is_refused_by_its_field(
    caps: dict[str, int], body: dict[str, Any], param: str
) -> None:
    shop = shop_of(**caps)
    got = await shop.ask(**body)
    error = json_of(got)["error"]
    assert (got.status, error["code"], error["param"]) == (400, "invalid_value", param)
    [(of, least)] = caps.items()
    assert f"at most {least} (limits.per_request.{of})" in error["message"]
    assert "tenant 'acme'" in error["message"]
    assert not shop.backends[0].calls
    shop.settled()


async def test_what_is_just_at_its_caps_passes() -> None:
    shop = shop_of(images=1, links=0, file_bytes=300, output_tokens=10, input_tokens=20, choices=2)
    got = await shop.ask(messages=parts(PICTURE, {"type": "text", "text": "x"}), max_tokens=10, n=2)
    assert got.status == 200


async def test_an_answer_of_open_length_gets_the_cap() -> None:
    shop = shop_of(output_tokens=33)
    assert (await shop.ask()).status == 200
    assert msgspec.json.decode(shop.backends[0].calls[0].body)["max_tokens"] == 33
    assert (await shop.ask(max_tokens=5)).status == 200
    assert msgspec.json.decode(shop.backends[0].calls[1].body)["max_tokens"] == 5


async def test_a_body_over_the_cap_is_413() -> None:
    got = await shop_of(body_bytes=200).ask(messages=parts({"type": "text", "text": "x" * 300}))
    assert (got.status, b"200 bytes" in got.sent) == (413, True)


async def test_a_project_and_a_key_have_caps_too_and_others_none() -> None:
    shop = shop_of(choices=5)
    digest, principal = next(iter(shop.snapshot.keys.items()))
    own = Principal(
        tenant=principal.tenant,
        key=principal.key,
        project="app",
        limits=Limits(per_request=Caps(choices=4)),
    )
    shop.snapshot = msgspec.structs.replace(
        shop.snapshot,
        number=10,
        keys={**shop.snapshot.keys, digest: own},
        tenants={"acme": Terms(projects={"app": Limits(per_request=Caps(choices=3, stops=0))})},
    )
    assert b"project 'acme/app' may have at most 3" in (await shop.ask(n=4)).sent
    assert (await shop.ask(stop="x")).status == 400
    assert (await shop.ask(key="sk-other-000000000000", n=4, stop="x")).status == 200
