"""Tensor models beside other servers in turns: all up at once, a short load on each, many rounds.

`python bench/serving.py --kit FOLDER` (the folder of bench.py and run.sh; its `install` and
`models` ran with the same LAB). The same two ONNX graphs everywhere: a forest of 30 columns, and
MiniLM on 32 tokens with two threads. Tiffin has everything on: key, limits, accounts, checks, the
process hop. Peers wait for batches as is best for each: Triton 0 ms, mosec 1 ms. A ratio is taken
within a round. At one connection onnxruntime itself is measured in each round too, in this process.
"""

import argparse
import hashlib
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path
from shutil import rmtree
from typing import Any

KEY = "sk-bench-0123456789abcdef"
DATA = Path("/tmp/tiffin-bench-serving-data")
WAITS = {"triton": "0", "mosec": "1"}
OUTPUTS = {"tabular": "probabilities", "minilm": "embedding"}


def the_kit(folder: Path) -> Any:
    """The kit's module, with a key on every request and the wanted output named in it."""
    spec = importlib.util.spec_from_file_location("kit_bench", folder / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    kit: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    raw, post, bodies = kit.raw, kit.post, kit.bodies

    def raw_with_key(*args: Any) -> bytes:
        line, _, rest = raw(*args).partition(b"\r\n")
        return b"%b\r\nAuthorization: Bearer %b\r\n%b" % (line, KEY.encode(), rest)

    def post_with_key(port: int, path: str, body: Any, timeout: float = 60) -> Any:
        return post(port, path, body, timeout, {"Authorization": f"Bearer {KEY}"})

    def bodies_with_output(kind: str, proto: str, *args: Any, **kwargs: Any) -> Any:
        for model, body in bodies(kind, proto, *args, **kwargs):
            if proto == "v2":
                body["outputs"] = [{"name": OUTPUTS[model]}]
            yield model, body

    kit.raw, kit.post, kit.bodies = raw_with_key, post_with_key, bodies_with_output
    return kit


def configuration(models: Path, port: int) -> str:
    """Both models, one tenant with limits that count and don't bite."""
    sections = [f'version = 1\n[server]\nport = {port}\ndata = "{DATA}"\n']
    sections.append(
        "[tenants.bench.limits]\nrequests_per_minute = 60_000_000\nburst = 1_000_000\n"
        f'[tenants.bench.keys.main]\nkey_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n'
    )
    for name, threads in (("tabular", 1), ("minilm", 2)):
        file = models / f"{name}.onnx"
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sections.append(
            f'[models.{name}]\nruntime = "onnx"\nthreads = {threads}\nmax_batch = 32\n'
            f'[models.{name}.files."model.onnx"]\nsources = ["file:{file}"]\nsha256 = "{digest}"\n'
        )
    return "\n".join(sections)


def report(cell: str, connections: int, rows: list[dict[str, Any]]) -> None:
    """Rates, latencies and processor time of each server, then ratios within rounds."""
    print(f"\n## {cell}, {connections} connections, {len(rows)} rounds", flush=True)
    for name in rows[0]:
        rates = sorted(row[name]["rps"] for row in rows)
        p50 = statistics.median(row[name]["ok"]["p50"] for row in rows)
        p99 = statistics.median(row[name]["ok"]["p99"] for row in rows)
        cpu = statistics.median(row[name]["srv_cpu"] / row[name]["rps"] for row in rows)
        print(
            f"{name:9} requests/s median {statistics.median(rates):9,.0f} ({rates[0]:,.0f} to"
            f" {rates[-1]:,.0f}), p50 {p50:.2f} p99 {p99:.2f} ms, CPU {cpu * 1e6:.0f} us"
        )
    for name in rows[0]:
        if name != "tiffin":
            ratios = sorted(row["tiffin"]["rps"] / row[name]["rps"] for row in rows)
            shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"tiffin / {name}: median {statistics.median(ratios):.2f} of {shown}")


def started(kit: Any, name: str, port: int) -> Any:
    """A server that is up, its answers compared with the graphs' own."""
    server = kit.Server(name, port)
    server.wait()
    for process in {*kit.tree(server.p.pid), *kit.session_pids(server.p.pid)}:
        kit.boost(process)  # a process that leads a session is a group of its own to the scheduler
    known = json.loads(Path(kit.LAB, "ref.json").read_text())
    for kind, wanted in known.items():
        asked = kit.bodies(kind, server.proto, len(wanted))
        for (model, body), want in zip(asked, wanted, strict=True):
            _, got = kit.post(server.port, kit.path(model, server.proto), body)
            given = kit.answer(server.proto, got)
            far = max(abs(x - y) for x, y in zip(given, want, strict=True))
            assert far < 1e-4, f"{name} is wrong on {kind} by {far}"
    return server


def raw_p50_ms(kit: Any, cell: str, seconds: float) -> float:
    """What onnxruntime takes for one request of this cell with as many threads as Tiffin has."""
    import numpy as np
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if cell == "tabular" else 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model, body = next(kit.bodies(cell, "v2", 1))
    file = str(Path(kit.MODELS, f"{model}.onnx"))
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    kinds = {"FP32": np.float32, "INT64": np.int64}
    feed = {
        tensor["name"]: np.array(tensor["data"], kinds[tensor["datatype"]]).reshape(tensor["shape"])
        for tensor in body["inputs"]
    }
    took = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        session.run([OUTPUTS[model]], feed)
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


def in_turns(kit: Any, ports: dict[str, int], args: argparse.Namespace) -> None:
    """All up at once; a round is a short load on each."""
    up: list[Any] = []
    try:
        for name, port in ports.items():
            up.append(started(kit, name, port))
        for cell in args.cells.split(","):
            for connections in args.connections:
                rows, raw = [], []
                for turn in range(args.rounds):
                    order = up[:: 1 if turn % 2 else -1]
                    rows.append(
                        {s.name: kit.load(s, cell, connections, args.seconds, 0.4) for s in order}
                    )
                    if connections == 1:
                        raw.append(raw_p50_ms(kit, cell, args.seconds / 2))
                report(cell, connections, rows)
                if raw:
                    over = [row["tiffin"]["ok"]["p50"] for row in rows]
                    shown = " ".join(f"{a:.2f}/{b:.2f}" for a, b in zip(over, raw, strict=True))
                    within = statistics.median(a - 1.1 * b for a, b in zip(over, raw, strict=True))
                    print(
                        f"p50 of tiffin / of onnxruntime alone, ms: {shown}; over 1.1 of that by"
                        f" {within:.2f} ms (median)"
                    )
    finally:
        for server in up:
            server.stop()


def one_by_one(kit: Any, ports: dict[str, int], args: argparse.Namespace) -> None:
    """Each alone on the machine; a round is every server's start, all its loads, its end."""
    cells = [(cell, c) for cell in args.cells.split(",") for c in args.connections]
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {cell: [] for cell in cells}
    for turn in range(args.rounds):
        for found in rows.values():
            found.append({})
        for name in list(ports)[:: 1 if turn % 2 else -1]:
            server = started(kit, name, ports[name])
            try:
                for cell in cells:
                    rows[cell][-1][name] = kit.load(server, *cell, args.seconds, 0.4)
            finally:
                server.stop()
    for cell, found in rows.items():
        report(*cell, found)


def main() -> None:
    """Start, load, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", type=Path, required=True)
    parser.add_argument("--peers", default="triton,mosec,fastapi,bentoml,rayserve")
    parser.add_argument("--cells", default="tabular,minilm32")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--alone", action="store_true", help="no two servers up at once")
    args = parser.parse_args()
    kit = the_kit(args.kit.resolve())
    rmtree(DATA, ignore_errors=True)
    config = DATA.with_suffix(".toml")
    config.write_text(configuration(Path(kit.MODELS), 18990))
    command = [str(Path(sys.executable).with_name("tiffin")), "serve", "--config", str(config)]
    kit.PEERS["tiffin"] = {"cmd": command, "ready": "/readyz"}
    for name, wait in WAITS.items():
        kit.PEERS[name].setdefault("env", {})["WAIT_MS"] = wait
    peers = {name: 18900 + 10 * n for n, name in enumerate(filter(None, args.peers.split(",")))}
    run = one_by_one if args.alone else in_turns
    run(kit, {"tiffin": 18990, **peers}, args)


main()
