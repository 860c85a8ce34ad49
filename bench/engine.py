"""Tokens a second through Tiffin against the same engine called directly, in interleaved pairs.

    python bench/engine.py --gguf FILE [--pairs 15] [--at 1 4 8] [--out results.json]

Starts one Tiffin with one model. "Direct" is a streamed call to that very engine's own socket,
"through" the same prompt as a streamed completion on Tiffin's public port; both by the same client
code. Greedy answers of one length, so both sides do the same work. Reports the ratio's mean and
95 % interval (Student's t over the pairs' logarithms) and the processor time that Tiffin takes
beside the engine's.
"""

import argparse
import asyncio
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

PROMPT = "Write a long story about a lighthouse keeper and the sea. Chapter one. " * 2
TOKENS = 64
KEY = "sk-bench-0123456789abcdef"
# Two-sided 95 % points of Student's t by degrees of freedom.
T95 = {14: 2.145, 15: 2.131, 19: 2.093, 24: 2.064, 29: 2.045}


def config(gguf: Path, data: Path, port: int) -> str:
    """One model, one tenant."""
    digest = sha256(gguf.read_bytes()).hexdigest()
    return f"""
version = 1
[server]
port = {port}
data = "{data}"
[tenants.bench.keys.main]
key_sha256 = "{sha256(KEY.encode()).hexdigest()}"
[models.m]
runtime = "llamacpp"
sources = ["file:{gguf}"]
sha256 = "{digest}"
context = 1024
slots = 8
"""


async def stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, count: bytes
) -> int:
    """Read one streamed answer to its end; returns the last number that follows `count` in it."""
    answer = b""
    writer.write(body)
    while True:
        data = await reader.read(65_536)
        if not data:
            break
        answer += data
    writer.close()
    _, found, rest = answer.rpartition(count)
    return int(re.match(rb"\d*", rest)[0] or 0) if found else 0  # type: ignore[index]


async def direct(socket: Path) -> None:
    """One answer from the engine's own socket."""
    body = json.dumps(
        {
            "prompt": PROMPT,
            "n_predict": TOKENS,
            "stream": True,
            "temperature": 0,
            "cache_prompt": True,
        }
    ).encode()
    head = (
        f"POST /completion HTTP/1.1\r\nhost: e\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_unix_connection(str(socket))
    tokens = await stream(reader, writer, head.encode() + body, b'"tokens_predicted":')
    check(tokens, "the engine")


async def through(port: int) -> None:
    """One answer from Tiffin's public port."""
    body = json.dumps(
        {
            "model": "m",
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\n"
        f"authorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tokens = await stream(reader, writer, head.encode() + body, b'"completion_tokens":')
    check(tokens, "Tiffin")


def check(tokens: int, who: str) -> None:
    """An answer of another length would make the comparison worthless."""
    if tokens != TOKENS:
        raise SystemExit(f"{who} answered with {tokens} tokens instead of {TOKENS}")


async def rate(make: object, concurrency: int, answers: int) -> float:
    """Tokens a second of `answers` answers at this concurrency."""
    left = answers

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await make()  # type: ignore[operator]

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return answers * TOKENS / (time.perf_counter() - began)


def cpu(root: int) -> dict[str, float]:
    """Processor seconds of the tree: `engine` (the replica's other threads) and `beside`."""
    tick = os.sysconf("SC_CLK_TCK")
    spent = {"engine": 0.0, "beside": 0.0}
    for pid in tree(root):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            seconds = (int(fields[11]) + int(fields[12])) / tick
            mine = b"tiffin.app.replica" not in command or task.name == str(pid)
            spent["beside" if mine else "engine"] += seconds
    return spent


def tree(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    for task in Path(f"/proc/{root}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += tree(int(child))
    return found


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Mean ratio through/direct and its 95 % interval."""
    logs = [math.log(through_ / direct_) for direct_, through_ in pairs]
    mean = statistics.fmean(logs)
    half = T95.get(len(logs) - 1, 2.1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


async def measure(
    port: int, socket: Path, root: int, pairs: int, concurrencies: list[int]
) -> dict[str, object]:
    """All concurrencies, pairs in alternating order."""
    report: dict[str, object] = {}
    for concurrency in concurrencies:
        answers = max(4, concurrency)
        runs: list[tuple[float, float]] = []
        beside = engine = 0.0
        for n in range(pairs + 1):
            order = ["direct", "through"] if n % 2 else ["through", "direct"]
            got = {}
            for side in order:
                before = cpu(root)
                make = (lambda: direct(socket)) if side == "direct" else (lambda: through(port))
                got[side] = await rate(make, concurrency, answers)
                if side == "through" and n:
                    after = cpu(root)
                    beside += after["beside"] - before["beside"]
                    engine += after["engine"] - before["engine"]
            if n:  # the first pair warms up
                runs.append((got["direct"], got["through"]))
        mean, low, high = interval(runs)
        report[str(concurrency)] = {
            "pairs": len(runs),
            "direct_tokens_per_s": round(statistics.median(d for d, _ in runs), 1),
            "through_tokens_per_s": round(statistics.median(t for _, t in runs), 1),
            "ratio": round(mean, 4),
            "ratio_95": [round(low, 4), round(high, 4)],
            "cpu_beside_of_engine": round(beside / engine, 4),
        }
        print(concurrency, json.dumps(report[str(concurrency)]), flush=True)
    return report


async def wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the model answers."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("the server ended while starting")
        try:
            await through(port)
        except (OSError, SystemExit):
            await asyncio.sleep(0.2)
        else:
            return
    raise SystemExit("the model didn't become ready")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--at", type=int, nargs="+", default=[1, 4, 8], help="answers at once")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiffin-bench-") as folder:
        data = Path(folder) / "data"
        file = Path(folder) / "tiffin.toml"
        file.write_text(config(options.gguf.resolve(), data, options.port))
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("tiffin")), "serve", "--config", str(file)],
            stdout=subprocess.DEVNULL,
        )
        try:
            asyncio.run(wait_ready(options.port, process))
            socket = next((data / "run").glob("*.engine.sock"))
            report = asyncio.run(
                measure(options.port, socket, process.pid, options.pairs, options.at)
            )
        finally:
            process.terminate()
            process.wait(60)
    report["model"] = options.gguf.name
    if options.out:
        options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
