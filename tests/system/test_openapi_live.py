"""The served OpenAPI documents are what the server does, by schemathesis from the outside."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.system.conftest import ECHO, Serve
from tests.system.server import KEY as ADMIN

CONFIG = Path(__file__).with_name("schemathesis.toml")
# Not an admin's: it would find the models in the answers, and unload them.
KEY = "sk-tiffin-schemathesis"
PLAIN = f"""
[tenants.others.keys.plain]
key_sha256 = "{sha256(KEY.encode()).hexdigest()}"
"""
# What a day or a group is no schema tells; the gateway doesn't pass on control's `Allow`.
BUT = ["--exclude-checks", "positive_data_acceptance,unsupported_method"]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@pytest.mark.parametrize(
    ("document", "key", "limits"),
    [
        ("/openapi.json", KEY, ["--max-examples", "10", "--max-time", "12"]),
        # Only what asks: the rest would apply and unload.
        ("/admin/openapi.json", ADMIN, ["--max-examples", "8", "--include-method", "GET", *BUT]),
    ],
    ids=["public", "admin"],
)
def test_the_server_keeps_what_its_document_promises(
    serve: Serve, tmp_path: Path, document: str, key: str, limits: list[str]
) -> None:
    server = serve(ECHO + PLAIN)
    server.until_ready("echo")
    server.until_ready("control")
    done = subprocess.run(
        [
            SCHEMATHESIS,
            "--config-file",
            CONFIG,
            "run",
            f"{server.status().address}{document}",
            "--header",
            f"Authorization: Bearer {key}",
            *limits,
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
