"""Requests that share long prefixes, over two replicas: placed by the gateway, and at random.

    python bench/prefixes.py --gguf FILE [--rounds 4] [--requests 120] [--at 4] [--out results.json]

Eight prefixes of about 1,500 tokens (long system prompts), each followed by a question of its own.
"Placed" goes through Tiffin's public port. "Random" sends the same kind of requests straight to the
sockets of the same replicas, one drawn by lot for each. Rounds alternate and have prefixes of their
own, so that nothing is warm from before; a replica has a slot for each. Reports the share of
requests whose prefix was remembered, the time to the first token, and how uneven the load was.
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

KEY = "sk-bench-0123456789abcdef"
PREFIXES = 8
WORDS = ("river", "stone", "market", "garden", "winter", "letter", "engine", "silver", "harvest")
PREFIX_WORDS = 1300  # about 1,500 tokens with what the template adds
HIT = 0.9  # of the prompt's tokens


def config(gguf: Path, data: Path, port: int) -> str:
    """One model with two replicas of eight slots, one tenant."""
    return f"""
version = 1
[server]
port = {port}
data = "{data}"
[tenants.bench.keys.main]
key_sha256 = "{sha256(KEY.encode()).hexdigest()}"
admin = true
[models.m]
runtime = "llamacpp"
sources = ["file:{gguf}"]
sha256 = "{sha256(gguf.read_bytes()).hexdigest()}"
context = 2048
slots = 8
replicas = 2
"""


@dataclass
class Seen:
    """What one side's requests saw; times are seconds."""

    first: list[float] = field(default_factory=list)
    hits: int = 0
    asked: int = 0
    skews: list[float] = field(default_factory=list)

    def told(self) -> dict[str, float]:
        """The figures that are reported."""
        cuts = statistics.quantiles(self.first, n=20)
        return {
            "requests": self.asked,
            "hit_share": round(self.hits / self.asked, 3),
            "ttft_p50_ms": round(statistics.median(self.first) * 1000, 1),
            "ttft_p95_ms": round(cuts[18] * 1000, 1),
            "load_skew": round(max(self.skews), 2),
        }


async def ask(where: str, prefix: str, question: str, seen: Seen) -> None:
    """One streamed chat; `where` is a port or the path of a socket."""
    body = json.dumps(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": prefix},
                {"role": "user", "content": question},
            ],
            "max_tokens": 8,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\n"
        f"authorization: Bearer {KEY}\r\nx-tiffin-tenant: bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    began = time.perf_counter()
    if where.isdigit():
        reader, writer = await asyncio.open_connection("127.0.0.1", int(where))
    else:
        reader, writer = await asyncio.open_unix_connection(where)
    writer.write(head.encode() + body)
    answer, first = b"", 0.0
    while data := await reader.read(65_536):
        answer += data
        if not first and (b'"content":"' in answer.replace(b'"content":""', b"")):
            first = time.perf_counter() - began
    writer.close()
    usage = json.loads(answer.rpartition(b'"usage":')[2].partition(b"}}")[0] + b"}}")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    seen.first.append(first)
    seen.asked += 1
    seen.hits += cached >= HIT * usage["prompt_tokens"]


def prefixes(draw: random.Random) -> list[str]:
    """System prompts that share nothing from their first words on."""
    return [
        f"Case {draw.getrandbits(64):x}. " + " ".join(draw.choices(WORDS, k=PREFIX_WORDS))
        for _ in range(PREFIXES)
    ]


async def work(
    where: Callable[[], str], requests: int, at: int, draw: random.Random, seen: Seen
) -> None:
    """One round of one side: `at` callers, each asks again when it has its answer."""
    known = prefixes(draw)
    order = [draw.randrange(PREFIXES) for _ in range(requests)]

    async def caller() -> None:
        while order:
            number = order.pop()
            await ask(where(), known[number], f"Question {draw.getrandbits(40):x}?", seen)

    await asyncio.gather(*(caller() for _ in range(at)))


async def answered(sockets: list[Path]) -> Counter[str]:
    """How many requests each replica has answered."""
    counts: Counter[str] = Counter()
    for socket in sockets:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(b"GET /metrics.json HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n")
        told = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        writer.close()
        for family in told["families"]:
            if family["name"] == "vllm:request_success_total":
                counts[socket.name] = sum(int(sum(numbers)) for _, numbers in family["series"])
    return counts


def replicas(run: Path) -> list[Path]:
    """The sockets of the model's replicas."""
    found = (path for path in run.glob("r-m-*.sock") if not path.name.endswith(".engine.sock"))
    return sorted(found)


async def measure(port: int, run: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Rounds of both sides in turns."""
    sockets = replicas(run)
    if len(sockets) != 2:
        raise SystemExit(f"there are {len(sockets)} replicas instead of 2")
    draw = random.Random(options.seed)
    sides = {"placed": Seen(), "random": Seen()}
    choose = {
        "placed": lambda: str(port),
        "random": lambda: str(draw.choice(sockets)),
    }
    for turn in range(options.rounds):
        for side in list(sides) if turn % 2 else list(sides)[::-1]:
            before = await answered(sockets)
            await work(choose[side], options.requests, options.at, draw, sides[side])
            after = await answered(sockets)
            served = [after[name] - before[name] for name in after]
            sides[side].skews.append(max(served) / (sum(served) / len(served)))
    return {side: seen.told() for side, seen in sides.items()}


async def wait_ready(port: int, process: subprocess.Popen[bytes], run: Path) -> None:
    """Until both replicas answer."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("the server ended while starting")
        try:
            sockets = replicas(run)
            for where in [str(port), *map(str, sockets)]:
                await ask(where, "Hello.", "Hello?", Seen())
            if len(sockets) == 2:
                return
        except (OSError, ValueError):  # nobody listens yet, or an error is answered
            pass
        await asyncio.sleep(0.2)
    raise SystemExit("the replicas didn't become ready")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=120, help="of each side in a round")
    parser.add_argument("--at", type=int, default=4, help="callers at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=18082)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiffin-bench-") as folder:
        data, file = Path(folder) / "data", Path(folder) / "tiffin.toml"
        file.write_text(config(options.gguf.resolve(), data, options.port))
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("tiffin")), "serve", "--config", str(file)],
            stdout=subprocess.DEVNULL,
        )
        try:
            asyncio.run(wait_ready(options.port, process, data / "run"))
            report = asyncio.run(measure(options.port, data / "run", options))
        finally:
            process.terminate()
            process.wait(60)
    for side, figures in report.items():
        print(side, json.dumps(figures))
    ratio = report["placed"]["ttft_p95_ms"] / report["random"]["ttft_p95_ms"]
    print(f"TTFT p95, placed / random: {ratio:.3f}")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
