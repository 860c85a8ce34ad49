"""A real server's configuration changes: shown before, taken back; keys are renewed and private."""

import json
import stat
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.system.conftest import Serve
from tests.system.server import TIFFIN, Server, until
from tests.system.test_tls import client_of, section

ONE = '\n[models.one]\nruntime = "echo"\nslots = 2\n'
TWO = '\n[models.two]\nruntime = "echo"\n[tenants.tests.limits]\nconcurrency = 7\n'


def tiffin(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(TIFFIN), *words, "--data", str(server.folder.root)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def until_operated(server: Server) -> None:
    """Wait until it can be told what to do, which is a moment after it answers."""
    until(lambda: server.http.get("/admin/v1/status").status_code == 200)


def models_of(server: Server) -> list[str]:
    """What clients can ask for; nothing while the gateway begins."""
    reply = server.http.get("/v1/models")
    listed = reply.json()["data"] if reply.status_code == 200 else []
    return sorted(model["id"] for model in listed)


def test_a_change_is_shown_before_it_is_made_and_taken_back(serve: Serve, tmp_path: Path) -> None:
    server = serve(ONE)
    until_operated(server)
    server.until_answers("one")
    wanted = tmp_path / "wanted.toml"
    wanted.write_text(server.config.read_text().replace(ONE, TWO))

    shown = tiffin(server, "apply", str(wanted), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == [
        "[tenants]",
        "  ~ tests.limits.concurrency: 0 → 7  (tighter)",
        "[models]",
        '  - one.runtime = "echo"',
        "  - one.slots = 2",
        '  + two.runtime = "echo"',
        "models",
        "  one stops",
        "  two starts",
        "Nothing was changed.",
    ]
    assert models_of(server) == ["one"]

    assert tiffin(server, "apply", str(wanted)).returncode == 0
    until(lambda: models_of(server) == ["two"])
    same = tiffin(server, "apply", str(wanted), "--dry-run")
    assert same.stdout == "It is what is in force; nothing would change.\n"

    history = tiffin(server, "config", "history").stdout.splitlines()
    assert [line.split()[0] for line in history] == ["2", "1"]
    assert history[0].endswith("in force")
    assert "the start of the server" in history[1]

    assert "  one starts" in tiffin(server, "config", "rollback", "--dry-run").stdout
    assert tiffin(server, "config", "rollback").returncode == 0
    until(lambda: models_of(server) == ["one"])
    nothing = tiffin(server, "config", "rollback", "9")
    assert nothing.returncode == 1
    assert "no configuration 9 is kept" in nothing.stderr


def test_what_cannot_be_taken_is_refused_by_a_dry_run_too(serve: Serve, tmp_path: Path) -> None:
    server = serve(ONE)
    until_operated(server)
    wanted = tmp_path / "wanted.toml"
    failing = '\n[tenants.b.keys.k]\nkey_command = ["/bin/false", "secret-argument"]\n'
    wanted.write_text(server.config.read_text() + failing)
    for words in (("--dry-run",), ()):
        refused = tiffin(server, "apply", str(wanted), *words)
        assert refused.returncode == 1
        assert "tenants.b.keys.k: /bin/false failed with exit code 1" in refused.stderr
    assert "secret-argument" not in server.explain()


class Upstream(ThreadingHTTPServer):
    """Somebody else's server of vectors; `keys` are those that it was shown."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Vectors)
        self.keys: list[str] = []


class _Vectors(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.keys.append(self.headers["authorization"])
        rows = [{"object": "embedding", "index": 0, "embedding": [1.0]}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        told = {"object": "list", "model": "m", "data": rows, "usage": usage}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(upstream: Upstream, key: str) -> str:
    at = f"http://127.0.0.1:{upstream.server_port}/v1"
    return f'\n[models.far]\nruntime = "remote"\nurl = "{at}"\n{key}\n'


def shown_to(upstream: Upstream, server: Server) -> str:
    """The key that an upstream is shown now."""
    asked = {"model": "far", "input": "text"}
    server.http.post("/v1/embeddings", json=asked).raise_for_status()
    return upstream.keys[-1]


def test_an_upstreams_key_is_what_a_program_prints(serve: Serve, upstream: Upstream) -> None:
    server = serve(remote(upstream, 'key_command = ["/bin/echo", "sk-printed"]'))
    until(lambda: models_of(server) == ["far"])
    assert shown_to(upstream, server) == "Bearer sk-printed"
    pid = server.kill("gateway")
    server.until_ready("gateway", after_pid=pid)
    until(lambda: models_of(server) == ["far"])
    assert shown_to(upstream, server) == "Bearer sk-printed"
    for path in (server.folder.snapshot, *server.folder.logs.iterdir()):
        assert b"sk-printed" not in path.read_bytes()


def test_another_key_in_an_upstreams_file_is_used(
    serve: Serve, upstream: Upstream, tmp_path: Path
) -> None:
    file = tmp_path / "upstream.key"
    file.write_text("sk-1")
    server = serve(remote(upstream, f'key_file = "{file}"'))
    until(lambda: models_of(server) == ["far"])
    assert shown_to(upstream, server) == "Bearer sk-1"
    file.write_text("sk-2")
    until(lambda: shown_to(upstream, server) == "Bearer sk-2")


def test_nobody_else_can_read_or_reach_what_lies_in_the_data_folder(
    make_server: Serve, tmp_path: Path, upstream: Upstream
) -> None:
    authority = Authority(tmp_path)
    key = 'key_command = ["/bin/echo", "sk-printed"]'
    server = make_server(ONE + remote(upstream, key) + section(authority.sign("server")))
    server.http = client_of(authority)
    server.start().until_answers("one")
    until_operated(server)
    server.http.post("/admin/v1/config", content=server.config.read_bytes()).raise_for_status()
    assert tiffin(server, "models", "unload", "one").returncode == 0
    until(lambda: server.accounts())
    kinds = set()
    for path in (server.folder.root, *server.folder.root.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # it was replaced meanwhile
            continue
        kinds.add(stat.S_IFMT(mode))
        assert mode & 0o077 == 0, f"{path}: {stat.filemode(mode)}"
    assert kinds == {stat.S_IFDIR, stat.S_IFREG, stat.S_IFSOCK}
