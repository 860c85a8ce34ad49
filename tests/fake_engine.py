"""An engine that speaks vLLM's API and has no model: it says the last text back, word by word.

A program of its own, started as an engine would be: it understands the flags of each that we
launch. A token is a byte of UTF-8 plus one, 0 comes first. `--fault` makes it misbehave.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

WORD = re.compile(r"\S+\s*|\s+")
FAULTS = ("crash-on-start", "never-healthy", "mute", "crash-serving", "ignore-term", "no-tokens")


class Engine:
    """Everything that it knows; `running` are answers in work, `seen` the bodies that came."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running = 0
        self.generated = 0
        self.seen = 0
        self.last: dict[str, Any] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while (line := await reader.readline()).strip():
                method, path, _ = line.decode().split(" ", 2)
                headers = {}
                while (field := await reader.readline()).strip():
                    name, _, value = field.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self.answer(method, path, headers, body, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One request."""
        if path.startswith("/v1/") and not self.knows(headers.get("authorization", "")):
            reply(writer, 401, {"error": {"message": "who are you?"}})
            return
        given: dict[str, Any] = json.loads(body or b"{}")
        if path in ("/tokenize", "/detokenize", "/chat_tokenize"):
            self.tokens(path, given, writer)
        elif path in ("/v1/completions", "/v1/chat/completions"):
            await self.generate(given, writer)
        elif path == "/health":
            reply(writer, 503 if self.options.fault == "never-healthy" else 200, {})
        else:
            told: dict[str, Any] = {
                "/v1/models": {"data": [{"id": "m", "max_model_len": self.options.context}]},
                "/metrics": self.metrics(),
                "/last": self.last,
            }
            reply(writer, 200 if path in told else 404, told.get(path, {"detail": "Not Found"}))

    def knows(self, authorization: str) -> bool:
        """Whether that is the key that it was started with, if it was."""
        own = [os.environ.get(name, "") for name in ("TIFFIN_ENGINE_KEY", "API_KEY")]
        key = self.options.api_key or own[0] or own[1]
        return not key or authorization == f"Bearer {key}"

    def metrics(self) -> str:
        """What Prometheus would read."""
        label = '{engine="0",model_name="m"}'
        return (
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{label} {float(self.running)}\n"
            f"vllm:num_requests_waiting{label} 0.0\n"
            f"vllm:kv_cache_usage_perc{label} 0.25\n"
            f"vllm:prefix_cache_queries_total{label} {10.0 * self.seen}\n"
            f"vllm:prefix_cache_hits_total{label} {4.0 * self.seen}\n"
            f"vllm:iteration_tokens_total_sum{label} {float(self.generated)}\n"
        )

    def tokens(self, path: str, given: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """The tokenizer's endpoints."""
        if self.options.fault == "no-tokens":
            return reply(writer, 404, {"detail": "Not Found"})
        if path == "/detokenize":
            if any(not 0 <= token <= 256 for token in given["tokens"]):
                return reply(writer, 400, {"error": {"message": "no such token"}})
            data = bytes(token - 1 for token in given["tokens"] if token)
            return reply(writer, 200, {"prompt": data.decode("utf-8", "replace")})
        if "inputs" in given:
            return reply(writer, 200, [{"id": one} for one in ids(given["inputs"])])
        if path == "/chat_tokenize":
            told = [{"id": one} for one in chat_ids(given["messages"])]
            return reply(writer, 200, {"tokenize_response": told})
        if "messages" in given:
            found = chat_ids(given["messages"])
        else:
            found = [0] * given["add_special_tokens"] + ids(given["prompt"])
        return reply(writer, 200, {"tokens": found, "count": len(found)})

    async def generate(self, given: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """An answer as a stream."""
        self.seen += 1
        if self.options.fault == "mute":
            return reply(writer, 500, {"error": {"message": "CUDA error"}})
        if given.get("temperature") == 1.5:
            return reply(writer, 400, {"error": {"message": "temperature 1.5 is too hot"}})
        self.last = given
        text, count = read(given)
        words = WORD.findall(text)
        most = given.get("max_tokens", 10**6)
        start(writer)
        if given.get("logit_bias"):
            event(writer, {"error": {"message": "token 9 is out of vocabulary", "code": 400}})
            chunk(writer, b"data: [DONE]\n\n")
            return chunk(writer, b"")
        self.running += 1
        try:
            for number, word in enumerate(words[:most], 1):
                await asyncio.sleep(self.options.token_s)
                if self.options.fault == "crash-serving" and number > 2:
                    os._exit(9)
                self.generated += 1
                step = choice(word, given)
                event(writer, {"choices": [step], "usage": used(count, number)})
                await writer.drain()
            finish(writer, given, "stop" if len(words) <= most else "length")
            event(writer, {"choices": [], "usage": used(count, min(len(words), most))})
            chunk(writer, b"data: [DONE]\n\n")
            chunk(writer, b"")
        finally:
            self.running -= 1


def read(given: dict[str, Any]) -> tuple[str, int]:
    """The text that is said back, and how many tokens the prompt has."""
    prompt = given.get("prompt")
    if "messages" in given:
        return said(given["messages"]), len(chat_ids(given["messages"]))
    if isinstance(prompt, list):
        return bytes(token - 1 for token in prompt if token).decode(), len(prompt)
    return str(prompt), 1 + len(ids(str(prompt)))


def finish(writer: asyncio.StreamWriter, given: dict[str, Any], reason: str) -> None:
    """The last step, after a call of the first tool where there are tools."""
    if given.get("tools"):
        name = given["tools"][0]["function"]["name"]
        for piece in ({"name": name}, {"arguments": '{"a":'}, {"arguments": "1}"}):
            call = {"index": 0, "function": piece}
            event(writer, {"choices": [{"delta": {"tool_calls": [call]}}]})
    event(writer, {"choices": [{"delta": {}, "text": "", "finish_reason": reason}]})


def choice(word: str, given: dict[str, Any]) -> dict[str, Any]:
    """A step of an answer, with what was asked beside it."""
    chat = "messages" in given
    found: dict[str, Any] = {"delta": {"content": word}} if chat else {"text": word}
    if given.get("logprobs") not in (None, False):
        one = {"token": word, "logprob": -0.5}
        in_texts = {"tokens": [word], "token_logprobs": [-0.5], "top_logprobs": [{word: -0.5}]}
        found["logprobs"] = {"content": [one | {"top_logprobs": [one]}]} if chat else in_texts
    return found


def used(prompt: int, completion: int) -> dict[str, Any]:
    """A usage."""
    details = {"cached_tokens": 3}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": details,
    }


def ids(text: str) -> list[int]:
    """A text's tokens."""
    return [byte + 1 for byte in text.encode()]


def said(messages: list[dict[str, Any]]) -> str:
    """The last message's text."""
    return str(messages[-1]["content"])


def chat_ids(messages: list[dict[str, Any]]) -> list[int]:
    """The tokens of a conversation."""
    return [token for one in messages for token in [0, *ids(str(one["content"]))]]


def start(writer: asyncio.StreamWriter) -> None:
    """The head of a stream."""
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )


def event(writer: asyncio.StreamWriter, value: Any) -> None:
    """One event."""
    chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One piece of a body."""
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def reply(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    """A whole answer."""
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


def options_of(argv: list[str]) -> argparse.Namespace:
    """The flags of all engines that matter here; others are let pass."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--uds", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key", default="")
    for name in ("--max-model-len", "--context-length", "--max-total-tokens"):
        parser.add_argument(name, dest="context", type=int, default=4096)
    parser.add_argument("--fault", default="", choices=("", *FAULTS))
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--token-s", type=float, default=0.0)
    parser.add_argument("--pids", default="")
    return parser.parse_known_args(argv)[0]


async def main(options: argparse.Namespace) -> None:
    """Serve for ever."""
    await asyncio.sleep(options.load_s)
    engine = Engine(options)
    if options.uds:
        server = await asyncio.start_unix_server(engine.serve, options.uds)
    else:
        server = await asyncio.start_server(engine.serve, "127.0.0.1", options.port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    OPTIONS = options_of(sys.argv[1:])
    sys.stderr.write("loading, for jane.doe@example.com\n")
    sys.stderr.flush()
    if OPTIONS.fault == "crash-on-start":
        sys.exit("ValueError: this model doesn't fit")
    if OPTIONS.fault == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if OPTIONS.pids:
        # As engines do: a worker that nobody but its process group knows.
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path(OPTIONS.pids).write_text(f"{os.getpid()} {worker.pid}")
    asyncio.run(main(OPTIONS))
