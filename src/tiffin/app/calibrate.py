"""Measures the engines that could run a model, each in a process of its own, and chooses one.

`python -m tiffin.app.calibrate '<Order as JSON>'` measures one engine and prints its figures. An
engine that crashes on a file ends its own process, and that is a figure too.
"""

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tiffin.app.adapters import llamacpp
from tiffin.app.clock import SystemClock
from tiffin.config.models import GGUF, LlamacppModel
from tiffin.control.engines.calibrations import engine_versions, machine_id, measured_as
from tiffin.control.engines.choice import REFERENCE, Aim, agrees, choose
from tiffin.errors import TiffinError
from tiffin.serving.engines.measure import (
    CONTEXT,
    PLACES,
    SPEED_S,
    Figures,
    First,
    choices,
    drift,
    speeds,
)
from tiffin.types.calibration import Calibration, Measured
from tiffin.types.snapshot import Deployment, PlacedFile

ENGINES: Final = (REFERENCE, "openvino")
SLOTS: Final = 16
BOUND_S: Final = 60.0
"""The longest that all of it may take; what isn't done by then has failed."""
TRUTH: Final = "reference"
OUT_OF_TIME: Final = "it took too long to measure"


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured: the defaults take some 30 s for a small model.

    What is `lean` measures only what the choice depends on: no more answers at once than the
    model has slots, and no speeds where no engine could take the reference's place.
    """

    slots: int = SLOTS
    places: int = PLACES
    speed_s: float = SPEED_S
    within_s: float = BOUND_S
    lean: bool = False


LEAN: Final = Effort(speed_s=0.75, lean=True)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to measure: `engine` is one of ours, or `reference` for choices alone.

    Where there are `firsts`, one that doesn't choose like them isn't measured any further. What it
    needs on disk meanwhile lies in `folder`, which goes with whoever ordered it.
    """

    engine: str
    model: LlamacppModel
    path: str
    threads: int
    effort: Effort = Effort()
    firsts: list[tuple[list[int], float]] = []
    folder: str = ""


class Found(msgspec.Struct, kw_only=True):
    """What one process measured; `firsts` are its choices, as bytes and log-probability."""

    measured: Measured
    firsts: list[tuple[list[int], float]] = []


Measure = Callable[[Order, float], Awaitable[Found]]
"""Measures what an order says until a monotonic moment; never raises."""


async def calibrate(
    model: LlamacppModel,
    path: Path,
    threads: int,
    effort: Effort | None = None,
    measure: Measure | None = None,
) -> Calibration:
    """Measure every engine, one after another, and choose; cancelling it ends what measures.

    `measure` is how one is: in a process of its own.
    """
    measure = measure or in_a_process
    effort = effort or Effort()
    if effort.lean:
        effort = msgspec.structs.replace(effort, slots=min(effort.slots, model.slots))
    until = time.monotonic() + effort.within_s
    order = Order(engine=TRUTH, model=model, path=str(path), threads=threads, effort=effort)
    truth = await measure(order, until)
    firsts = truth.firsts if effort.lean else []
    rivals = []
    for engine in ENGINES:
        if engine != REFERENCE:
            asked = msgspec.structs.replace(order, engine=engine, firsts=firsts)
            rivals.append(_compared(await measure(asked, until), truth))
    if firsts and not any(not one.failed and agrees(one) for one in rivals):
        own = msgspec.structs.replace(truth.measured, engine=REFERENCE)
    else:
        asked = msgspec.structs.replace(order, engine=REFERENCE)
        own = _compared(await measure(asked, until), truth)
    measured = [own, *rivals]
    choice = choose(measured, Aim(ttft_ms=model.slo.ttft_p95_ms, slots=model.slots))
    return Calibration(
        revision=measured_as(model),
        machine=machine_id(),
        taken_ns=time.time_ns(),
        versions=engine_versions(),
        measured=measured,
        engine=choice.engine,
        why=choice.why,
    )


async def in_a_process(order: Order, until: float) -> Found:
    """Measure one engine in a process, which is killed at the monotonic moment `until`."""
    with tempfile.TemporaryDirectory(prefix="tiffin-", ignore_cleanup_errors=True) as folder:
        return await _told(msgspec.structs.replace(order, folder=folder), until)


async def _told(order: Order, until: float) -> Found:
    left = until - time.monotonic()
    if left <= 0:
        return _failed(order.engine, OUT_OF_TIME)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tiffin.app.calibrate", msgspec.json.encode(order).decode()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(left):
            assert process.stdout is not None  # noqa: S101 - it was asked for
            said = await process.stdout.read()
            code = await process.wait()
    except TimeoutError:
        return _failed(order.engine, OUT_OF_TIME)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code < 0:
        return _failed(order.engine, f"its process died of {signal.Signals(-code).name}")
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(said.rpartition(b"\n")[2], type=Found)
    return _failed(order.engine, f"its process ended with status {code}")


def _failed(engine: str, why: str) -> Found:
    return Found(measured=Measured(engine=engine, failed=why))


def _compared(found: Found, truth: Found) -> Measured:
    measured = found.measured
    if measured.failed:
        return measured
    if truth.measured.failed:
        if measured.engine == REFERENCE:
            return measured
        return msgspec.structs.replace(measured, failed=truth.measured.failed)
    apart, same = drift(_as_firsts(found.firsts), _as_firsts(truth.firsts))
    return msgspec.structs.replace(measured, drift=apart, same=same)


def _as_firsts(told: Sequence[tuple[list[int], float]]) -> list[First]:
    return [First(bytes(token), logprob) for token, logprob in told]


async def _measure(order: Order) -> Found:
    clock = SystemClock()
    is_truth = order.engine == TRUTH
    effort = order.effort
    spec = msgspec.structs.replace(
        order.model,
        context=CONTEXT,
        slots=1 if is_truth else effort.slots,
        engine=REFERENCE if is_truth else order.engine,
        cache_type="f32" if is_truth else order.model.cache_type,
        stream_interval_ms=0.0,
    )
    deployment = Deployment(
        model="calibration",
        revision="",
        socket=f"{order.folder}/r.sock",
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        files={GGUF: PlacedFile(path=order.path, sha256=spec.sha256)},
        # Alone, a thread needn't wait for others that a busy neighbour holds up.
        threads=1 if is_truth else order.threads,
    )
    runtime = llamacpp(deployment)
    try:
        began = clock.monotonic()
        await runtime.load()
        load_ms = int((clock.monotonic() - began) * 1000)
        firsts = await choices(runtime, effort.places)
        figures = Figures()
        if not is_truth and _is_worth(firsts, order):
            figures = await speeds(runtime, clock, effort.slots, effort.speed_s)
    except TiffinError as error:
        return _failed(order.engine, error.message)
    finally:
        await runtime.close()
    return Found(
        measured=Measured(
            engine=order.engine,
            load_ms=load_ms,
            ttft_ms=figures.ttft_ms,
            tokens_per_s=figures.tokens_per_s,
            memory_bytes=_peak_bytes(),
        ),
        firsts=[(list(first.token), first.logprob) for first in firsts],
    )


def _is_worth(firsts: list[First], order: Order) -> bool:
    """Whether an engine that chooses these could be chosen, so that its speed matters."""
    if not order.firsts:
        return True
    apart, same = drift(firsts, _as_firsts(order.firsts))
    return agrees(Measured(engine=order.engine, drift=apart, same=same))


def _peak_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_whole(calibration: Calibration) -> bool:
    """Whether every engine had the time that it needed, so that the choice may stand."""
    return all(one.failed != OUT_OF_TIME for one in calibration.measured)


def table(calibration: Calibration) -> list[str]:
    """The figures as lines for a terminal, the choice last."""
    rows: list[tuple[str, ...]] = [
        ("engine", *(f"tok/s at {many}" for many in _numbers(calibration.measured))),
    ]
    rows[0] += ("first token", "load", "memory", "off by", "same choice")
    for one in calibration.measured:
        if not one.failed:
            rows.append(_row(one, _numbers(calibration.measured)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    lines += [f"{one.engine}: {one.failed}" for one in calibration.measured if one.failed]
    return [*lines, f"{calibration.engine} is the one: {calibration.why}"]


def _numbers(measured: Sequence[Measured]) -> list[int]:
    return sorted({many for one in measured for many in one.tokens_per_s})


def _row(one: Measured, numbers: Sequence[int]) -> tuple[str, ...]:
    rates = (
        f"{one.tokens_per_s[many]:.0f}" if many in one.tokens_per_s else "" for many in numbers
    )
    memory = f"{one.memory_bytes / 2**20:.0f} MB"
    rest = (f"{one.ttft_ms:.0f} ms" if one.ttft_ms else "", f"{one.load_ms / 1000:.1f} s", memory)
    return (one.engine, *rates, *rest, f"{one.drift:.3f}", f"{one.same:.0%}")


def _enter(argv: Sequence[str]) -> Any:
    """End with whoever started this; an engine whose threads are niced collapses, so it isn't."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    return msgspec.json.decode(argv[1], type=Order)


def main() -> None:
    """Entry of a process that measures one engine."""
    order = _enter(sys.argv)
    found = uvloop.run(_measure(order))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
