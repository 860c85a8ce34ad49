"""OpenVINO GenAI's continuous batching, driven by one thread of this process.

A step computes one batch of all answers and **holds the interpreter** meanwhile, so a batch has few
tokens: between two steps everything else of the process gets its turn. Memory for every slot's
whole context is taken at the start, so nothing is ever thrown out to be computed again.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tiffin.adapters.runtimes.engine import Extent
from tiffin.errors import LoadFailed

# Tokens whose keys and values lie together; the library's own number for processors.
BLOCK: Final = 32
# Tokens of prompts and answers that one step takes: as long others wait for their next.
BATCH_TOKENS: Final = 64
# Greedy steps of a few lengths, since the first of each kind compiles what the next ones use.
WARMING_TOKENS: Final = 4

Emit = Callable[["Emitted"], None]


@dataclass(slots=True)
class Emitted:
    """What came of an answer since the last time; `finish` is `stop`, `length` or empty.

    `fault` is why it broke off, where it did. `held_ns` is how long it has been in the engine.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    fault: str = ""
    held_ns: int = 0


@dataclass(slots=True, eq=False)
class Work:
    """One answer: its prompt, the library's settings by name, and where its tokens go.

    `emit` is called in the engine's thread, at most every `interval_s` after the first token.
    """

    prompt: list[int]
    settings: dict[str, Any]
    emit: Emit
    interval_s: float = 0.0
    handle: Any = None
    began: float = 0.0
    told: float = 0.0
    ready: Emitted = field(default_factory=Emitted)


class OpenvinoEngine:
    """One loaded model; `start` and `stop` take their time, all else returns at once.

    `link` is a path ending in `.gguf` that leads to the model while it is loaded.
    """

    def __init__(self, model: str, link: Path, extent: Extent) -> None:
        self._model = model
        self._link = link
        self._extent = extent
        self._pipeline: Any = None
        self._thread: threading.Thread | None = None
        self._turn = threading.Condition()
        self._waiting: list[Work] = []
        self._left: list[Work] = []
        self._running: list[Work] = []
        self._numbers = 0
        self._closing = False

    @property
    def busy(self) -> bool:
        """Whether anything is computed or will be."""
        with self._turn:
            return bool(self._waiting or self._left or self._running)

    def start(self) -> None:
        """Load the model and compute a little; raises `LoadFailed` with the library's reason."""
        self._pipeline = self._open()
        self._thread = threading.Thread(target=self._drive, name="openvino", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and give the memory back; whatever runs gets a fault. Idempotent."""
        with self._turn:
            self._closing = True
            self._turn.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._pipeline = None

    def begin(self, work: Work) -> None:
        """Compute this with the next step."""
        with self._turn:
            self._waiting.append(work)
            self._turn.notify()

    def leave(self, work: Work) -> None:
        """Compute no more of it after the step that is running; nothing of it is emitted then."""
        with self._turn:
            if work in self._waiting:
                self._waiting.remove(work)
            elif work in self._running:
                self._left.append(work)
                self._turn.notify()

    def _open(self) -> Any:
        # The library knows the format by the file's name alone.
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(self._model)
        try:
            return self._opened()
        finally:
            self._link.unlink(missing_ok=True)

    def _opened(self) -> Any:
        try:
            # Serving reports to nobody: where this can't be imported, the library goes without.
            sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
            import openvino_genai  # type: ignore[import-untyped]  # an extra, and 200 MB

            extent = self._extent
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.max_num_batched_tokens = max(BATCH_TOKENS, extent.slots)
            scheduler.max_num_seqs = extent.slots
            scheduler.num_kv_blocks = extent.slots * (-(-extent.context // BLOCK) + 1)
            scheduler.dynamic_split_fuse = True
            # Its prefix cache has no owners: one tenant's prompt would answer another's sooner.
            scheduler.enable_prefix_caching = False
            properties = {
                "INFERENCE_NUM_THREADS": extent.threads,
                "KV_CACHE_PRECISION": _CACHES[extent.cache],
            }
            pipeline = openvino_genai.ContinuousBatchingPipeline(
                str(self._link), scheduler, "CPU", properties
            )
            for width in {1, extent.slots}:
                self._warm(pipeline, width)
        except ImportError as error:
            raise LoadFailed(
                "openvino-genai isn't installed: pip install 'tiffin[openvino]'"
            ) from error
        except (RuntimeError, ValueError) as error:
            raise LoadFailed(f"OpenVINO can't load the model: {_reason(error)}") from error
        return pipeline

    def _warm(self, pipeline: Any, width: int) -> None:
        handles = [
            _add(pipeline, number, [1] * BATCH_TOKENS, {"max_new_tokens": WARMING_TOKENS})
            for number in range(width)
        ]
        while pipeline.has_non_finished_requests():
            pipeline.step()
        del handles

    def _drive(self) -> None:
        while self._take_turn():
            try:
                if self._pipeline is None:
                    self._pipeline = self._open()
                self._admit()
                if self._running:
                    self._pipeline.step()
                    self._tell()
            except Exception as error:  # noqa: BLE001 - whatever the library raises ends answers
                self._broken(_reason(error))
        self._end_all("the engine ends")

    def _take_turn(self) -> bool:
        """Wait for something to do; false once the engine closes."""
        with self._turn:
            while not (self._waiting or self._left or self._running or self._closing):
                self._turn.wait()
            return not self._closing

    def _admit(self) -> None:
        with self._turn:
            left, self._left = self._left, []
            fresh, self._waiting = self._waiting, []
            self._running += fresh
        for work in left:
            if work in self._running:
                work.handle.cancel()
                self._remove(work)
        for work in fresh:
            self._numbers += 1
            work.began = time.monotonic()
            work.handle = _add(self._pipeline, self._numbers, work.prompt, work.settings)
        if left and not self._running:
            # What was cancelled gives its memory back in the next step.
            while self._pipeline.has_non_finished_requests():
                self._pipeline.step()

    def _tell(self) -> None:
        now = time.monotonic()
        for work in list(self._running):
            ready = work.ready
            while work.handle.can_read():
                for output in work.handle.read().values():
                    ready.tokens += output.generated_ids
                    ready.logprobs += output.generated_log_probs
                    ready.finish = _FINISH.get(output.finish_reason.name, "")
            if not ready.tokens and not ready.finish:
                continue
            if ready.finish or now - work.told >= work.interval_s:
                self._emit(work, now)

    def _emit(self, work: Work, now: float) -> None:
        ready, work.ready, work.told = work.ready, Emitted(), now
        ready.held_ns = int((now - work.began) * 1e9)
        if ready.finish or ready.fault:
            self._remove(work)
        with contextlib.suppress(RuntimeError):  # the loop that it goes to has ended
            work.emit(ready)

    def _remove(self, work: Work) -> None:
        with self._turn:
            self._running.remove(work)

    def _broken(self, reason: str) -> None:
        """The library doesn't recover from an error in a step, so it is opened anew."""
        self._pipeline = None
        self._end_all(reason)

    def _end_all(self, reason: str) -> None:
        with self._turn:
            self._running += self._waiting
            self._waiting, self._left = [], []
        for work in list(self._running):
            work.ready.fault = reason
            self._emit(work, time.monotonic())


_CACHES: Final = {"f16": "f16", "f32": "f32", "q8_0": "u8"}
_FINISH: Final = {"STOP": "stop", "LENGTH": "length"}


def _add(pipeline: Any, number: int, prompt: list[int], settings: dict[str, Any]) -> Any:
    import numpy as np
    import openvino  # type: ignore[import-untyped]
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    config.apply_chat_template = False
    for name, value in settings.items():
        setattr(config, name, value)
    return pipeline.add_request(number, openvino.Tensor(np.array([prompt], np.int64)), config)


def _reason(error: Exception) -> str:
    """The library's message without the places in its own sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Check ", "Exception from"))]
    return " ".join(said or lines)[:300] or type(error).__name__
