"""AWS as its specifications have it, written apart from what it tests: signatures and streams."""

import hashlib
import hmac
import json
from struct import pack
from typing import Any
from urllib.parse import quote
from zlib import crc32

from tests.system.upstream_fake import Asked

ACCESS = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def signature_of(asked: Asked, secret: str = SECRET) -> str:
    """What the signature of a POST without a query must be, by the headers that it names."""
    fields = dict(
        part.strip().split("=", 1)
        for part in asked.headers["authorization"].partition(" ")[2].split(",")
    )
    day, region, service, end = fields["Credential"].split("/")[1:]
    names = fields["SignedHeaders"].split(";")
    lines = [f"{name}:{asked.headers[name].strip()}" for name in names]
    digest = hashlib.sha256(asked.body).hexdigest()
    canonical = ["POST", quote(asked.path), "", *lines, "", ";".join(names), digest]
    hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    scope = f"{day}/{region}/{service}/{end}"
    text = f"AWS4-HMAC-SHA256\n{asked.headers['x-amz-date']}\n{scope}\n{hashed}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, end, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def message(payload: bytes, **headers: str) -> bytes:
    """One message of a binary event stream; in names of headers `_` stands for `-`."""
    told = {":message-type": "event", ":event-type": "PayloadPart"}
    told |= {f":{name.replace('_', '-')}": value for name, value in headers.items()}
    lines = b"".join(
        pack(">B", len(name)) + name.encode() + pack(">BH", 7, len(value)) + value.encode()
        for name, value in told.items()
    )
    head = pack(">II", 16 + len(lines) + len(payload), len(lines))
    body = head + pack(">I", crc32(head)) + lines + payload
    return body + pack(">I", crc32(body))


def json_lines(*words: str, finish: str | None = "stop") -> bytes:
    """A chat's stream as a container that sends JSON lines tells it."""
    deltas: list[dict[str, Any]] = [{"content": word} for word in words]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"".join(json.dumps({**chunk, "choices": [one]}).encode() + b"\n" for one in choices)
