"""A data folder on a disk that is full: what goes on, what is refused, and that all of it heals."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.system.conftest import ECHO
from tests.system.server import Server, body, until

pytestmark = pytest.mark.xdist_group("full disk")

ROOM = "64m"


class Disk:
    """A small disk with a server's folder on it."""

    def __init__(self, path: Path) -> None:
        self._filler = path / "filler"
        folder = path / "server"
        folder.mkdir()
        self.server = Server(folder, ECHO)
        self.server.output = path.parent / "output.txt"

    def fill(self) -> None:
        """Leave no room for anything."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass

    def free(self) -> None:
        """Have room again."""
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "tmpfs", str(path)]
        subprocess.run(mounting, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk can be mounted by root alone")
    made = Disk(path)
    try:
        yield made
    finally:
        made.server.close()
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, "" if reply.status_code == 200 else reply.json()["error"]["code"]


def test_what_needs_room_is_refused_until_there_is_some_and_nothing_is_left_behind(
    disk: Disk,
) -> None:
    server = disk.server.start()
    server.until_answers("echo")
    assert server.http.post("/admin/v1/tenants", json={"name": "acme"}).status_code == 200
    made = server.http.post("/admin/v1/tenants/acme/keys", json={"name": "web"}).json()
    headers = {"authorization": f"Bearer {made['secret']}"}
    until(lambda: server.http.get("/v1/models", headers=headers).status_code == 200)
    disk.fill()
    before = {path for path in server.folder.root.rglob("*") if path.is_file()}
    for n in range(2):
        keyed = {**headers, "idempotency-key": str(n)}
        reply = server.http.post("/v1/chat/completions", json=body("echo", "hi"), headers=keyed)
        assert code(reply) == (503, "unavailable")
        assert int(reply.headers["retry-after"]) >= 1
        change = server.http.post("/admin/v1/tenants", json={"name": f"more-{n}"})
        assert code(change) == (503, "unavailable")
        assert int(change.headers["retry-after"]) >= 1
    assert server.chat("echo").status_code == 200
    after = {path for path in server.folder.root.rglob("*") if path.is_file()}
    assert {path.name for path in after - before} <= {"tiffin.db-wal", "tiffin.db-shm"}
    disk.free()

    def answered() -> bool:
        reply = server.http.post("/v1/chat/completions", json=body("echo", "hi"), headers=keyed)
        return reply.status_code == 200

    until(answered, what=server.explain)
    assert server.http.post("/admin/v1/tenants", json={"name": "more"}).status_code == 200
    names = {one["name"] for one in server.http.get("/admin/v1/tenants").json()["data"]}
    assert names == {"tests", "acme", "more"}
    assert server.http.get("/admin/v1/audit/verify").json()["intact"]


def test_a_start_on_a_full_disk_refuses_until_there_is_room_and_then_serves(disk: Disk) -> None:
    server = disk.server.start()
    server.until_answers("echo")
    address = httpx.URL(server.status().address)
    # The same port again: where the server is can't be told on such a disk.
    text = server.config.read_text().replace("port = 0", f"port = {address.port}")
    server.config.write_text(text)
    server.stop(signal.SIGKILL)
    until(lambda: not server.children())
    disk.fill()
    server.process = server.spawn()
    answered = 1  # what the killed gateway had answered counts as well

    def refused() -> bool:
        nonlocal answered
        disk.fill()  # it begins with removing what its last life left
        try:
            reply = server.chat("echo")
        except httpx.TransportError:
            return False
        answered += reply.status_code == 200
        return code(reply) == (503, "journal_unavailable")

    until(refused, what=server.explain)
    assert "Traceback" not in server.explain()
    disk.free()
    until(lambda: server.chat("echo").status_code == 200, what=server.explain)
    until(lambda: server.http.get("/admin/v1/status").status_code == 200, what=server.explain)

    def accounted() -> bool:
        return [entry["outcome"] for entry in server.accounts()].count("ok") == answered + 1

    until(accounted, what=server.explain)
    servers = [one for one in server.status().processes if one.role != "replica"]
    assert [one.restarts for one in servers] == [0, 0]
