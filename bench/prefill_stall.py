"""How long short streams wait for their next token while a long prompt is read.

    python bench/prefill_stall.py --gguf FILE [--rounds 5] [--prompt 3000] [--streams 4] [--out F]

Starts one Tiffin with one model. Each round streams some short answers, first alone and then beside
a prompt that nobody sent before, and notes the gaps between their events as the client sees them;
beside the prompt, those that end while it is being read. Reports the 95th percentiles and what the
second is of the first, which is to stay below 6.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

KEY = "sk-bench-0123456789abcdef"
PASS = 6.0


def config(options: argparse.Namespace, data: Path) -> str:
    """One model, one tenant."""
    gguf = options.gguf.resolve()
    return f"""
version = 1
[server]
port = {options.port}
data = "{data}"
[tenants.bench.keys.main]
key_sha256 = "{sha256(KEY.encode()).hexdigest()}"
[models.m]
runtime = "llamacpp"
sources = ["file:{gguf}"]
sha256 = "{sha256(gguf.read_bytes()).hexdigest()}"
context = {options.prompt + 256}
slots = {options.streams + 1}
stream_interval_ms = 0
threads = {options.threads}
"""


async def complete(port: int, prompt: list[int], tokens: int) -> list[float]:
    """When each event of one streamed answer came, the request's own moment first."""
    body = json.dumps(
        {
            "model": "m",
            "prompt": prompt,
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0,
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\n"
        f"authorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    came = [time.perf_counter()]
    writer.write(head.encode() + body)
    seen = b""
    while data := await reader.read(65_536):
        came += [time.perf_counter()] * data.count(b"data: {")
        seen += data
    writer.close()
    if b"[DONE]" not in seen:
        raise OSError(seen[:300].decode("latin-1"))
    return came


def gaps(streams: list[list[float]], begin: float, end: float) -> list[float]:
    """Between events (not to the first), for those that end inside."""
    return [
        after - before
        for came in streams
        for before, after in pairwise(came[1:])
        if begin < after <= end
    ]


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else float("nan")


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """All rounds, alone and beside in turn."""
    draw = random.Random(1)
    port = options.port

    def prompt(tokens: int) -> list[int]:
        return [draw.randrange(1000, 40_000) for _ in range(tokens)]

    def streams() -> list[asyncio.Task[list[float]]]:
        return [
            asyncio.ensure_future(complete(port, prompt(12), options.tokens))
            for _ in range(options.streams)
        ]

    quiet: list[float] = []
    beside: list[float] = []
    took: list[float] = []
    for _ in range(options.rounds):
        alone = await asyncio.gather(*streams())
        quiet += gaps(alone, 0.0, float("inf"))
        running = streams()
        await asyncio.sleep(0.15)
        began, read = (await complete(port, prompt(options.prompt), 1))[:2]
        took.append(read - began)
        beside += gaps(await asyncio.gather(*running), began, read)
        told = f"{p95(quiet) * 1000:.1f} ms alone, {p95(beside) * 1000:.1f} ms beside"
        print(f"so far {told}; the prompt took {took[-1]:.1f} s", file=sys.stderr, flush=True)
    ratio = p95(beside) / p95(quiet)
    return {
        "streams": options.streams,
        "prompt_tokens": options.prompt,
        "read_s": round(statistics.median(took), 3),
        "gaps": [len(quiet), len(beside)],
        "quiet_p95_ms": round(p95(quiet) * 1000, 2),
        "beside_p95_ms": round(p95(beside) * 1000, 2),
        "beside_most_ms": round(max(beside) * 1000, 2),
        "ratio": round(ratio, 2),
        "passed": ratio <= PASS,
    }


async def wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the model answers."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("the server ended while starting")
        try:
            await complete(port, [100, 101, 102], 2)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            return
    raise SystemExit("the model didn't become ready")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=3000)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96, help="of each short answer")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 1 suffers least")
    parser.add_argument("--port", type=int, default=18090)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiffin-bench-") as folder:
        file = Path(folder) / "tiffin.toml"
        file.write_text(config(options, Path(folder) / "data"))
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("tiffin")), "serve", "--config", str(file)],
            stdout=subprocess.DEVNULL,
        )

        async def run() -> dict[str, object]:
            await wait_ready(options.port, process)
            print("ready", file=sys.stderr, flush=True)
            return await measure(options)

        try:
            report = asyncio.run(run())
        finally:
            process.terminate()
            process.wait(60)
    report["model"] = options.gguf.name
    print(json.dumps(report))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
