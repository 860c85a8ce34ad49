"""The served OpenAPI document is what the server does, by schemathesis from the outside."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.system.conftest import ECHO, Serve

CONFIG = Path(__file__).with_name("schemathesis.toml")
# Not an admin's: it would find the models in the answers, and unload them.
KEY = "sk-tiffin-schemathesis"
PLAIN = f"""
[tenants.others.keys.plain]
key_sha256 = "{sha256(KEY.encode()).hexdigest()}"
"""
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


def test_the_server_keeps_what_its_document_promises(serve: Serve, tmp_path: Path) -> None:
    server = serve(ECHO + PLAIN)
    server.until_ready("echo")
    done = subprocess.run(
        [
            SCHEMATHESIS,
            "--config-file",
            CONFIG,
            "run",
            f"{server.status().address}/openapi.json",
            "--header",
            f"Authorization: Bearer {KEY}",
            "--max-examples",
            "10",
            "--max-time",
            "40",
            "--seed",
            "7",
            "--request-timeout",
            "10",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
