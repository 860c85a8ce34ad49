"""The gateway beside its peers in turns: all up at once, a short load on each, many rounds.

A shared machine's speed drifts within seconds, so what is compared must be measured next to each
other: a ratio is taken within a round, and its median and spread over the rounds are what counts.
`python bench/gateway_rounds.py --kit FOLDER` (the folder of setup.sh; LAB as it was given to it).
Servers run on core 0, the mock upstream and the load generator on core 1.
"""

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A gateway under test: how it is started, where it answers, how its client is let in."""

    name: str
    command: str
    port: int
    health: str
    headers: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, lab: Path) -> None:
        """Start it on core 0 and wait until it answers."""
        self.process = subprocess.Popen(
            shlex.split(self.command),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
            preexec_fn=on_core(0),
            cwd=lab,
        )
        wait_for(self.port, self.health)

    def stop(self) -> None:
        """End it and what it started."""
        if self.process is None:
            return
        children = tree(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()


def servers(kit: Path, lab: Path, litellm: Path, tiffin: Path) -> list[Server]:
    """The peers of the kit, and Tiffin; give LiteLLM the interpreter that Tiffin has."""
    return [
        Server(
            "envoy",
            f"{lab}/venv-envoy/bin/envoy -c {kit}/conf/envoy.yaml --concurrency 1 -l error",
            38103,
            "/",
        ),
        Server(
            "litellm",
            f"{litellm} --config {kit}/conf/litellm.yaml --host 127.0.0.1"
            " --port 38105 --num_workers 1 --telemetry False",
            38105,
            "/health/liveliness",
            ["Authorization: Bearer sk-bench"],
            {
                "LITELLM_LOG": "ERROR",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "NO_PROXY": "127.0.0.1",
            },
        ),
        Server(
            "tiffin",
            f"{tiffin} serve --config {HERE}/gateway.toml",
            18081,
            "/readyz",
            ["Authorization: Bearer sk-bench-0123456789abcdef"],
        ),
    ]


def on_core(core: int) -> Callable[[], None]:
    """Called in a child before it becomes the program."""

    def enter() -> None:
        os.sched_setaffinity(0, {core})

    return enter


def wait_for(port: int, path: str, seconds: float = 90.0) -> None:
    """Until an HTTP server answers with less than 500."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return
        except OSError:
            pass
        else:
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing answers on port {port}")


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in thread.read_text().split():
            found += tree(int(child))
    return found


def processor_s(pid: int) -> float:
    """Seconds of processor that a process tree has used."""
    used = 0
    for each in tree(pid):
        words = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        used += int(words[11]) + int(words[12])
    return used / TICKS


def load(
    kit: Path, lab: Path, server: Server, connections: int, seconds: float
) -> dict[str, float]:
    """One load on one server: requests a second, percentiles, processor time a request."""
    command = [str(lab / "bin/load"), "-p", str(server.port), "-c", str(connections)]
    command += ["-d", str(seconds), "-w", "0.2", "-f", str(kit / "body.json")]
    for header in server.headers:
        command += ["-h", header]
    assert server.process is not None
    before = processor_s(server.process.pid)
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=on_core(1), check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    if found.get("errors") or found.get("non2xx"):
        raise SystemExit(f"{server.name} answered with errors: {done.stdout}")
    spent = processor_s(server.process.pid) - before
    found["cpu_us"] = spent * 1e6 / max(1.0, found["rps"] * (seconds + 0.2))
    return found


def report(rows: list[dict[str, dict[str, float]]], names: list[str], connections: int) -> None:
    """The rounds of one number of connections, then ratios within rounds."""
    print(f"\n## {connections} connections, {len(rows)} rounds")
    for name in names:
        rates = sorted(row[name]["rps"] for row in rows)
        p50 = statistics.median(row[name]["p50_us"] for row in rows)
        cpu = statistics.median(row[name]["cpu_us"] for row in rows)
        print(
            f"{name:8} requests/s median {statistics.median(rates):9,.0f}"
            f" ({rates[0]:,.0f} to {rates[-1]:,.0f}), p50 {p50 / 1000:.2f} ms, CPU {cpu:.0f} us"
        )
    for name in names:
        if name != "tiffin" and "tiffin" in names:
            ratios = sorted(row["tiffin"]["rps"] / row[name]["rps"] for row in rows)
            shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"tiffin / {name}: median {statistics.median(ratios):.2f} of {shown}")


def main() -> None:
    """Start all, load each in turn, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", type=Path, required=True)
    parser.add_argument("--lab", type=Path, default=Path("/tmp/tiffin-bench/gateway"))
    parser.add_argument("--litellm", type=Path, help="its command, instead of the kit's")
    parser.add_argument("--tiffin", type=Path, help="its command, instead of this Python's")
    parser.add_argument("--only", default="envoy,litellm,tiffin")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    kit = args.kit.resolve()
    litellm = args.litellm or args.lab / "venv-litellm/bin/litellm"
    tiffin = args.tiffin or Path(sys.executable).with_name("tiffin")
    rmtree("/tmp/tiffin-bench-data", ignore_errors=True)
    everyone = servers(kit, args.lab, litellm, tiffin)
    chosen = [server for server in everyone if server.name in args.only.split(",")]
    mock = subprocess.Popen([str(args.lab / "bin/mock"), "38000", "64", "0"], preexec_fn=on_core(1))
    try:
        wait_for(38000, "/")
        for server in chosen:
            server.start(args.lab)
            load(kit, args.lab, server, 4, 1.5)
        for connections in args.connections:
            rows = []
            for turn in range(args.rounds):
                order = chosen if turn % 2 else chosen[::-1]
                rows.append(
                    {s.name: load(kit, args.lab, s, connections, args.seconds) for s in order}
                )
            report(rows, [server.name for server in chosen], connections)
    finally:
        for server in chosen:
            server.stop()
        mock.terminate()
        mock.wait()


main()
