"""Caps through the whole of Tiffin: tokens by the model's count, fields by the client's names."""

import subprocess

import openai
import pytest

from tests.system.conftest import Serve
from tests.system.server import KEY, TIFFIN

CAPS = """
[tenants.tests.limits.per_request]
body_bytes = 20_000
input_tokens = 150
output_tokens = 9
choices = 2
tools = 0

[models.echo]
runtime = "echo"
tools = true
"""


def test_caps_hold_for_every_endpoint_and_are_in_the_effective_policy(serve: Serve) -> None:
    server = serve(CAPS)
    server.until_answers("echo")
    client = openai.OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=0)

    whole = client.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "word " * 20}]
    )
    assert whole.usage is not None
    assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (9, "length")

    with pytest.raises(openai.BadRequestError, match=r"at most 150 \(input_tokens\)") as long:
        client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "word " * 60}]
        )
    assert (long.value.code, long.value.param) == ("invalid_value", "messages")

    with pytest.raises(openai.BadRequestError, match="at most 9") as response:
        client.responses.create(model="echo", input="hello", max_output_tokens=16)
    assert response.value.param == "max_output_tokens"

    with pytest.raises(openai.BadRequestError, match="at most 2") as choices:
        client.completions.create(model="echo", prompt="hello", n=3)
    assert choices.value.param == "n"

    with pytest.raises(openai.APIStatusError, match="20000 bytes") as large:
        client.completions.create(model="echo", prompt="hello " * 5000)
    assert large.value.status_code == 413

    told = subprocess.run(
        [str(TIFFIN), "check", str(server.config)], capture_output=True, check=True, text=True
    ).stdout
    assert "limit: tenants.tests: at most 150 input tokens in each request" in told
