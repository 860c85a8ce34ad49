"""Overload on real processes: what MiniLM still answers in time at many times its capacity.

`python bench/overload.py --kit FOLDER` (the folder of bench.py; its `models` ran with the same LAB,
and its generator `lg` is built there). `tiffin serve` with MiniLM on 32 tokens, an objective
declared, and the table model beside it. In every round: each model alone, MiniLM's capacity (a
closed loop), then MiniLM in an open loop (Poisson) at each multiple of the capacity while the table
model is asked at a steady rate. Printed: goodput against the peak, the 95th percentile of what was
accepted against the objective, the table model's against its own alone, and how long after the last
excess request MiniLM answers as promptly as before. Server and generators share the machine's
cores: what the generators took is printed too.
"""

import argparse
import hashlib
import http.client
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

KEY: Final = "sk-bench-0123456789abcdef"
DATA: Final = Path("/tmp/tiffin-bench-overload-data")
PORT: Final = 18980
OUTPUTS: Final = {"tabular": "probabilities", "minilm": "embedding"}
WARM_S: Final = 1.0
DRAIN_S: Final = 3.0
PROBE_S: Final = 0.02
SETTLED: Final = 5
"""So many prompt answers in a row are a recovery."""


def the_kit(folder: Path) -> Any:
    """The kit's module."""
    spec = importlib.util.spec_from_file_location("kit_bench", folder / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    kit: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    return kit


def configuration(models: Path, p95_ms: float) -> str:
    """Both models, one tenant with limits that count and don't bite."""
    sections = [f'version = 1\n[server]\nport = {PORT}\ndata = "{DATA}"\n']
    sections.append(
        "[tenants.bench.limits]\nrequests_per_minute = 60_000_000\nburst = 1_000_000\n"
        f'[tenants.bench.keys.main]\nkey_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n'
    )
    for name, threads in (("tabular", 1), ("minilm", 2)):
        file = models / f"{name}.onnx"
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sections.append(
            f'[models.{name}]\nruntime = "onnx"\nthreads = {threads}\n'
            f'[models.{name}.files."model.onnx"]\nsources = ["file:{file}"]\nsha256 = "{digest}"\n'
        )
    sections.append(f"[models.minilm.slo]\np95_ms = {p95_ms}\n")
    return "\n".join(sections)


class Bench:
    """A server under test, and requests for it in files."""

    def __init__(self, kit: Any, seconds: float) -> None:
        self._seconds = seconds
        self._generator = Path(kit.LAB, "lg")
        self.requests = {kind: self._written(kit, kind) for kind in ("minilm32", "tabular")}
        self.bodies = {
            kind: json.dumps(_named(next(kit.bodies(kind, "v2", 1))[1], kind)).encode()
            for kind in self.requests
        }

    def _written(self, kit: Any, kind: str) -> Path:
        path = DATA.with_suffix(f".{kind}")
        with path.open("wb") as file:
            for model, body in kit.bodies(kind, "v2"):
                raw = kit.raw(model, _named(body, kind), "v2", PORT)
                line, _, rest = raw.partition(b"\r\n")
                raw = b"%b\r\nAuthorization: Bearer %b\r\n%b" % (line, KEY.encode(), rest)
                file.write(b"%d\n%b" % (len(raw), raw))
        return path

    def begin(self, kind: str, *, rate: float = 0.0, connections: int = 64) -> Any:
        """A load that goes on beside others: closed loop, or open with a rate."""
        command = [self._generator, "-p", PORT, "-c", connections, "-d", self._seconds]
        command += ["-w", WARM_S, "-t", DRAIN_S, "-f", self.requests[kind]]
        command += ["-r", rate] if rate else []
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)

    def load(self, kind: str, *, rate: float = 0.0, connections: int = 64) -> dict[str, Any]:
        """A load from its beginning to its end."""
        return ended(self.begin(kind, rate=rate, connections=connections))

    def recovered_s(self, prompt_s: float) -> float:
        """From now until answers come and are prompt again: when the first of several was asked."""
        began = time.monotonic()
        path = "/v2/models/minilm/infer"
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        good: list[float] = []
        while time.monotonic() - began < WARM_S + DRAIN_S:
            asked = time.monotonic()
            connection.request("POST", path, self.bodies["minilm32"], headers)
            answer = connection.getresponse()
            answer.read()
            took = time.monotonic() - asked
            good = [*good, asked] if answer.status == 200 and took <= prompt_s else []
            if len(good) == SETTLED:
                return good[0] - began
            time.sleep(PROBE_S)
        return float("inf")


def ended(process: Any) -> dict[str, Any]:
    """What a load found."""
    out, _ = process.communicate()
    found: dict[str, Any] = json.loads(out)
    return found


def _named(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**body, "outputs": [{"name": OUTPUTS[kind.removesuffix("32")]}]}


def preferred(pid: int) -> None:
    """Before neighbours: each process of the server is a group of its own to the scheduler."""
    for process in [*tree(pid), os.getpid()]:
        with suppress(OSError):
            Path(f"/proc/{process}/autogroup").write_text("-17")


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in tree(int(child)))]


def cpu_s(pid: int) -> dict[str, float]:
    """Processor seconds so far of each process of a tree, by its role."""
    found: dict[str, float] = {}
    for process in tree(pid):
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        role = next((w.decode()[11:] for w in words if w.startswith(b"tiffin.app.")), "serve")
        model = next((m for m in OUTPUTS if f'"{m}"'.encode() in b"".join(words)), "")
        name = f"{role} {model}".strip() if role == "replica" else role
        took = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        found[name] = found.get(name, 0.0) + took
    return found


def a_round(bench: Bench, args: argparse.Namespace, pid: int) -> dict[str, Any]:
    """Alone, at capacity, at each multiple of it."""
    alone = bench.load("tabular", rate=args.beside)
    peaks = [bench.load("minilm32", connections=count)["rps"] for count in (16, 64)]
    found: dict[str, Any] = {"peak": max(peaks), "alone_p95": alone["ok"]["p95"]}
    quiet = bench.load("minilm32", rate=0.2 * found["peak"])["ok"]
    found["quiet"] = quiet
    for times in args.times:
        before = cpu_s(pid)
        beside = bench.begin("tabular", rate=args.beside)
        excess = bench.begin("minilm32", rate=times * found["peak"], connections=2048)
        time.sleep(WARM_S + args.seconds)
        after = cpu_s(pid)
        recovered = bench.recovered_s(3 * quiet["p95"] / 1000)
        whole = WARM_S + args.seconds
        used = {name: (after[name] - before.get(name, 0.0)) / whole for name in after}
        found[times] = {
            **ended(excess), "beside": ended(beside), "recovered": recovered, "used": used
        }  # fmt: skip
    return found


def report(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """Each round, then medians."""
    for row in rows:
        quiet = row["quiet"]
        print(
            f"\npeak {row['peak']:.0f}/s; at a fifth of it p50 {quiet['p50']:.1f} p95"
            f" {quiet['p95']:.1f} ms; table model alone p95 {row['alone_p95']:.2f} ms"
        )
        for times in args.times:
            at = row[times]
            used = " ".join(f"{name} {share:.2f}" for name, share in sorted(at["used"].items()))
            print(
                f"{times:>4}x: goodput {at['rps']:.0f}/s = {at['rps'] / row['peak']:.2f} of peak,"
                f" accepted p95 {at['ok']['p95']:.0f} ms (objective {args.p95_ms:.0f}), refused p95"
                f" {at['other']['p95']:.1f} ms, table p95 {at['beside']['ok']['p95']:.2f} ms ="
                f" {at['beside']['ok']['p95'] / row['alone_p95']:.2f} of alone, recovered in"
                f" {at['recovered']:.2f} s; codes {at['codes']}; cores: {used},"
                f" generators {at['lg_cpu']:.2f} + {at['beside']['lg_cpu']:.2f}"
            )
    for times in args.times:
        shares = [row[times]["rps"] / row["peak"] for row in rows]
        beside = [row[times]["beside"]["ok"]["p95"] / row["alone_p95"] for row in rows]
        print(
            f"\n{times}x, medians of {len(rows)}: goodput {statistics.median(shares):.2f} of peak,"
            f" accepted p95 {statistics.median(r[times]['ok']['p95'] for r in rows):.0f} ms, table"
            f" {statistics.median(beside):.2f} of alone, recovered in"
            f" {statistics.median(r[times]['recovered'] for r in rows):.2f} s"
        )


def main() -> None:
    """Start, load, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", type=Path, required=True)
    parser.add_argument("--times", type=float, nargs="+", default=[4.0, 10.0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--p95-ms", type=float, default=500.0)
    parser.add_argument("--beside", type=float, default=50.0, help="table requests a second")
    parser.add_argument("--preferred", action="store_true", help="before this machine's others")
    args = parser.parse_args()
    kit = the_kit(args.kit.resolve())
    rmtree(DATA, ignore_errors=True)
    config = DATA.with_suffix(".toml")
    config.write_text(configuration(Path(kit.MODELS), args.p95_ms))
    command = [str(Path(sys.executable).with_name("tiffin")), "serve", "--config", str(config)]
    kit.PEERS["tiffin"] = {"cmd": command, "ready": "/readyz"}
    bench = Bench(kit, args.seconds)
    with DATA.with_suffix(".log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while kit.get(PORT, "/readyz") != 200:
            assert time.monotonic() < until, "the server isn't ready in a minute"
            time.sleep(0.1)
        for kind in bench.requests:
            while not bench.load(kind, connections=1)["ok"]["n"]:
                assert time.monotonic() < until, f"no answer for {kind}"
        if args.preferred:
            preferred(server.pid)
        rows = [a_round(bench, args, server.pid) for _ in range(args.rounds)]
    finally:
        server.terminate()
        server.wait(20)
    report(rows, args)


main()
