"""Launched engines under test: each engine's flags and API, with a fake in its place."""

import functools
import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from tiffin.adapters.launchers import tether
from tiffin.adapters.launchers.process import ProcessLauncher
from tiffin.adapters.runtimes.launched import LaunchedRuntime
from tiffin.adapters.runtimes.launched_child import Address, Place
from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.config.models import LaunchedModel

FAKE = Path(__file__).parents[1] / "fake_engine.py"
EngineName = Literal["vllm", "sglang", "tgi", "command"]


def connect(address: Address) -> Http1Backend:
    """Connections as the composition root makes them."""
    bearer = b"authorization: Bearer %b\r\n" % address.key.encode() if address.key else b""
    endpoint = Endpoint(
        authority=b"engine",
        path=address.path,
        host="" if address.path else "127.0.0.1",
        port=address.port,
        headers=bearer,
    )
    return Http1Backend(endpoint, Timeouts(first_byte_s=math.inf, between_bytes_s=math.inf))


def spec(engine: EngineName, script: Path, *args: str, **given: Any) -> LaunchedModel:
    """An engine's section; its usual executable is replaced by the fake."""
    if engine == "command":
        given["trusted"] = True
        args = ("--port", "{port}", *args)
    plain: dict[str, Any] = {
        "model": "fake/model",
        "executable": str(script),
        "context": 1024,
        "slots": 4,
        "load_timeout_s": 10.0,
    }
    return LaunchedModel(engine=engine, args=list(args), **(plain | given))


def script(folder: Path) -> Path:
    """An executable that is the fake engine."""
    path = folder / "engine"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o700)
    return path


def runtime(folder: Path, engine: EngineName, *args: str, **given: Any) -> LaunchedRuntime:
    """One that isn't loaded yet; call it where a loop runs."""
    place = Place(
        model="fake/model",
        name="m",
        socket=folder / "e.engine.sock",
        tether=functools.partial(tether.command, os.getpid()),
        beside=folder / "e.files",
    )
    own = spec(engine, script(folder), *args, **given)
    return LaunchedRuntime(own, place, ProcessLauncher(), connect)


@asynccontextmanager
async def loaded(
    folder: Path, engine: EngineName, *args: str, **given: Any
) -> AsyncIterator[LaunchedRuntime]:
    """One that is loaded."""
    made = runtime(folder, engine, *args, **given)
    await made.load()
    try:
        yield made
    finally:
        await made.close()
