"""A LiteLLM proxy's configuration is imported, and serves as it is, with `openai` unmodified."""

import json
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.system.conftest import Serve
from tests.system.server import KEY, TIFFIN, Server
from tests.system.upstream_fake import Answer, Upstream, serving

VIRTUAL = "sk-virtual-0123456789"
CONFIG = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o-eu
      api_base: {first}/v1
      api_key: os.environ/FIRST_KEY
      rpm: 100
  - model_name: gpt-4o
    litellm_params:
      {{model: openai/gpt-4o-us, api_base: os.environ/SECOND, api_key: sk-theirs-2, rpm: 100}}
  - model_name: other
    litellm_params: {{model: openai/other, api_base: "{first}/v1", api_key: os.environ/FIRST_KEY}}
litellm_settings: {{num_retries: 1}}
general_settings: {{master_key: os.environ/LITELLM_MASTER_KEY}}
"""
KEYS = [{"token": sha256(VIRTUAL.encode()).hexdigest(), "key_alias": "web", "models": ["gpt-4o"]}]


def imported(folder: Path, *given: str) -> "subprocess.CompletedProcess[str]":
    command = [str(TIFFIN), "config", "import", str(folder / "config.yaml"), *given]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def moved(server: Server, folder: Path, first: Upstream) -> str:
    """Import the file over the server's configuration; what the command said."""
    (folder / "config.yaml").write_text(CONFIG.format(first=first.address))
    (folder / "keys.json").write_text(json.dumps({"keys": KEYS}))
    keys = ["--keys", str(folder / "keys.json")]
    refused = imported(folder, "--to", str(server.config), *keys)
    assert (refused.returncode, "--force" in refused.stderr) == (1, True)
    done = imported(folder, "--to", str(server.config), *keys, "--force")
    assert done.returncode == 0, done.stderr
    return done.stdout


def client_of(server: Server, key: str) -> OpenAI:
    return OpenAI(api_key=key, base_url=f"{server.status().address}/v1", max_retries=0)


def ask(client: OpenAI, model: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": "hello"}]
    return client.chat.completions.create(model=model, messages=messages, **more)


def test_an_imported_configuration_serves_and_falls_over_as_it_did(
    make_server: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    with serving() as first, serving() as second:
        monkeypatch.setenv("SECOND", f"{second.address}/v1")
        told = moved(server, tmp_path, first)
        assert "put the key that stands there into the variable GPT_4O_2_API_KEY" in told
        text = server.config.read_text()
        assert "sk-" not in text + told
        for name, value in {
            "LITELLM_MASTER_KEY": KEY,
            "FIRST_KEY": "sk-theirs-1",
            "GPT_4O_2_API_KEY": "sk-theirs-2",
            "TIFFIN__SERVER__PORT": "0",
            "TIFFIN__SERVER__DATA": str(server.folder.root),
        }.items():
            monkeypatch.setenv(name, value)
        checked = subprocess.run(
            [str(TIFFIN), "check", str(server.config)], capture_output=True, text=True, check=True
        )
        assert "200 requests per minute, to gpt-4o, gpt-4o-1, gpt-4o-2" in checked.stdout

        server.start()
        web = client_of(server, VIRTUAL)
        assert ask(web, "gpt-4o").choices[0].message.content == "Namaste."
        asked = first.seen[-1]
        assert asked.headers["authorization"] == "Bearer sk-theirs-1"
        assert asked.told["model"] == "gpt-4o-eu"

        first.whole = first.stream = Answer(status=500, told={"error": {"message": "down"}})
        stream = ask(web, "gpt-4o", stream=True)
        words = [one.choices[0].delta.content or "" for one in stream if one.choices]
        assert "".join(words) == "Namaste."
        assert second.seen[-1].headers["authorization"] == "Bearer sk-theirs-2"

        with pytest.raises(openai.NotFoundError):
            ask(web, "other")
        with pytest.raises(openai.InternalServerError):
            ask(client_of(server, KEY), "other")


def test_what_can_not_be_imported_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model_list: [{model_name: a, litellm_params: {}}]")
    to = tmp_path / "tiffin.toml"
    done = imported(tmp_path, "--to", str(to))
    assert (done.returncode, "none of its models" in done.stderr) == (1, True)
    assert not to.exists()
