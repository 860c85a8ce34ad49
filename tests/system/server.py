"""A real `tiffin serve` in its own data folder, and ways to look at it and to hurt it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from tests.polling import pause_s
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.types.paths import DataFolder, sockets

TIFFIN = Path(sys.executable).with_name("tiffin")
KEY = "sk-tiffin-system-tests"

BREATH_S = 0.01
"""Between two questions of a client that asks all the time: the server has the same processors."""

T = TypeVar("T")

CONFIG = """
version = 1

[server]
port = 0
data = "{data}"
drain_s = 10.0

[tenants.tests.keys.main]
key_file = "{key}"
admin = true
"""


def until(
    found: Callable[[], T | None], within_s: float = 20.0, what: Callable[[], str] = lambda: ""
) -> T:
    """What `found` returns once it is true; fails after `within_s` seconds."""
    began = time.monotonic()
    while not (value := found()):
        waited_s = time.monotonic() - began
        assert waited_s < within_s, f"not within {within_s} s: {what()}"
        time.sleep(pause_s(waited_s))
    return value


class Server:
    """One data folder and the supervisor that serves it."""

    def __init__(self, folder: Path, models: str) -> None:
        self.folder = DataFolder(folder / "data")
        self.config = folder / "tiffin.toml"
        self.output = folder / "output.txt"
        key = folder / "key"
        key.write_text(KEY)
        self.config.write_text(CONFIG.format(data=self.folder.root, key=key) + models)
        self.http = httpx.Client(
            verify=False,  # in plain HTTP: to read all authorities would take 30 ms
            headers={"authorization": f"Bearer {KEY}"},
            timeout=httpx.Timeout(30.0),
        )
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What starts a supervisor on this folder."""
        return [str(TIFFIN), "serve", "--config", str(self.config)]

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start a supervisor on this folder, whether or not one runs."""
        with self.output.open("ab") as output:
            return subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def start(self) -> "Server":
        """Start it and wait until the gateway answers and knows its configuration."""
        self.process = process = self.spawn()
        # Until it has taken the folder, what is written there is its predecessor's.
        until(lambda: self._serves(process.pid), what=self.explain)
        self.until_ready("gateway")
        self.http.base_url = httpx.URL(self.status().address)
        until(self._is_configured, what=self.explain)
        return self

    def stop(self, number: int = signal.SIGTERM, within_s: float = 30.0) -> int:
        """Signal the supervisor and wait for its end; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(within_s)

    def close(self) -> None:
        """End everything, however it stands."""
        self.http.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        until(lambda: not self.children(), what=lambda: "children end with their supervisor")
        if (link := sockets(self.folder.run)).is_symlink():
            link.unlink()

    def status(self) -> Status:
        """What the supervisor says runs."""
        return msgspec.json.decode((self.folder.run / "status.json").read_bytes(), type=Status)

    def find(self, name: str) -> ProcessStatus | None:
        """A process of this role, or of this model."""
        try:
            processes = self.status().processes
        except OSError:
            return None
        return next((p for p in processes if name in (p.role, p.model)), None)

    def until_ready(
        self, name: str, *, after_pid: int = 0, within_s: float = 20.0
    ) -> ProcessStatus:
        """The process of this role or model once it is ready, and another than `after_pid`.

        Where it is a model's, the gateway has heard of it as well.
        """

        def found() -> ProcessStatus | None:
            process = self.find(name)
            ready = process is not None and process.state is State.READY
            return process if ready and process and process.pid != after_pid else None

        process = until(found, within_s, lambda: f"{name} ready\n{self.explain()}")
        if process.model:
            until(lambda: self._is_told(process.model), within_s, self.explain)
        return process

    def until_answers(self, model: str, within_s: float = 20.0) -> None:
        """Wait until the gateway knows that the model is ready, and it answers."""
        said = ""

        def answered() -> bool:
            nonlocal said
            try:
                reply = self.chat(model, max_tokens=8)  # a small model may ramble for a minute
            except httpx.TransportError as error:
                said = repr(error)
                return False
            said = reply.text
            return reply.status_code == 200

        until(answered, within_s, lambda: f"{said}\n{self.explain()}")

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signal the process of this role or model; returns its pid."""
        process = self.until_ready(name)
        os.kill(process.pid, number)
        return process.pid

    def chat(self, model: str, text: str = "hello", **more: Any) -> httpx.Response:
        """One request for a whole answer."""
        return self.http.post("/v1/chat/completions", json=body(model, text, **more))

    def stream(self, model: str, text: str, **more: Any) -> Iterator[str]:
        """The data of each event of a streamed answer."""
        request = body(model, text, stream=True, **more)
        with self.http.stream("POST", "/v1/chat/completions", json=request) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data: "):
                    yield line.removeprefix("data: ")

    def accounts(self) -> list[dict[str, Any]]:
        """All entries that control has taken in, newest first."""
        entries: list[dict[str, Any]] = []
        more = True
        while more:
            before = {"before": entries[-1]["seq"]} if entries else {}
            page = self._told("/admin/v1/accounts", {"limit": 1000, **before})
            entries += page["data"]
            more = page["has_more"]
        return entries

    def in_flight(self) -> int:
        """How many requests the server believes to be answering."""
        lines = self.http.get("/metrics").text.splitlines()
        return sum(
            int(float(line.split()[1]))
            for line in lines
            if line.startswith("tiffin_requests_in_flight ")
        )

    def children(self) -> list[int]:
        """Living processes, of any parent, that were started for this data folder."""
        mark = f'"data":"{self.folder.root}"'.encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def written(self) -> dict[Path, bytes]:
        """What lies in the data folder; what is gone again by the time it is read isn't in it."""
        found = {}
        for path in self.folder.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[path] = path.read_bytes()
        return found

    def _serves(self, pid: int) -> bool:
        try:
            return self.status().pid == pid
        except OSError:
            return False

    def _is_configured(self) -> bool:
        """Whether the gateway has read what control has published, and reaches it."""
        try:
            ready = self.http.get("/readyz").status_code == 200
            return ready and self.http.get("/admin/v1/status").status_code != 503
        except httpx.TransportError:
            return False

    def _told(self, path: str, params: dict[str, Any]) -> Any:
        """A page of control's, which may still be starting."""

        def answered() -> httpx.Response | None:
            reply = self.http.get(path, params=params)
            return None if reply.status_code == 503 else reply

        return until(answered, what=self.explain).raise_for_status().json()

    def _is_told(self, model: str) -> bool:
        """Whether the gateway says that a model is ready."""
        try:
            url = httpx.URL(self.status().address).join(f"/v2/models/{model}/ready")
            return self.http.get(url).status_code == 200
        except httpx.TransportError:
            return False

    def explain(self) -> str:
        """What it has printed and logged last, for the message of a failed test."""
        printed = self.output.read_text() if self.output.exists() else ""
        log = self.folder.logs / "tiffin.jsonl"
        lines = log.read_text().splitlines()[-40:] if log.exists() else []
        return "\n".join((printed, *lines))


def body(model: str, text: str, **more: Any) -> dict[str, Any]:
    """A chat request with one message."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}
