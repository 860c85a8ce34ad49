"""A key whose requests are odd is told of by a webhook, and slowed down, on a real server."""

from pathlib import Path

import httpx

from tests.system.conftest import Serve
from tests.system.receiver import KEY, Receiver
from tests.system.server import Server, body, until

CONFIG = """
[models.echo]
runtime = "echo"

[tenants.acme.keys.web]
key_file = "{folder}/web"

[alerts.ops]
url = "{url}"
key_file = "{folder}/signs"
events = ["key.anomaly"]
tenants = ["acme"]

[anomalies]
action = "throttle"
throttle_s = 600.0
throttle_per_minute = 1
exempt = ["tests"]
repetition = {{ count = 5, within_s = 600.0 }}
"""


def chat(server: Server) -> httpx.Response:
    headers = {"authorization": "Bearer sk-web-of-tests"}
    return server.http.post("/v1/chat/completions", json=body("echo", "hi"), headers=headers)


def test_a_loop_is_told_to_who_wants_to_hear_and_throttled(
    make_server: Serve, tmp_path: Path
) -> None:
    (tmp_path / "web").write_text("sk-web-of-tests")
    (tmp_path / "signs").write_text(KEY)
    with Receiver() as receiver:
        server = make_server(CONFIG.format(folder=tmp_path, url=receiver.url)).start()
        server.until_answers("echo")  # by an exempt tenant, as often as it takes
        assert [chat(server).status_code for _ in range(5)] == [200] * 5
        refused = chat(server)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (429, "rate_limit_exceeded")
        assert "'acme/web' is throttled to 1 requests a minute" in error["message"]
        assert int(refused.headers["retry-after"]) > 1

        (told,) = until(lambda: receiver.events("key.anomaly"))
        data = told["data"]
        assert (data["tenant"], data["key"], data["signal"]) == ("acme", "web", "repetition")
        assert (data["count"], data["within_s"], bool(data["until"])) == (5, 600.0, True)
        counted = 'tiffin_anomalies_total{signal="repetition"} 1'
        until(lambda: counted in server.http.get("/metrics").text, what=server.explain)
