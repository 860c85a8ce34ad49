"""NVML without a driver: recorded answers under the names of its bindings, call by call.

A recording is a JSON object from calls such as `nvmlDeviceGetName(gpu0)` to what they return; a
handle is the name that `nvmlDeviceGetHandleByIndex(0)` returned, `{"error": 3}` is the failure of
that number, another object is a structure with these fields. What isn't recorded isn't supported.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED = 3


class RecordedError(Exception):
    """What a call fails with; `value` is NVML's number for it."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class RecordedNvml:
    """Stands for the module `pynvml`; `answers` may be changed between calls, `calls` are counted.

    Like the real one it refuses everything before `nvmlInit` and after `nvmlShutdown`.
    """

    NVMLError = RecordedError

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.calls: dict[str, int] = {}
        self.open = False

    @classmethod
    def read(cls, path: Path) -> "RecordedNvml":
        """A recording's stand-in."""
        return cls(json.loads(path.read_text()))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def ask(*given: Any) -> Any:
            call = f"{name}({', '.join(map(str, given))})"
            self.calls[name] = self.calls.get(name, 0) + 1
            return self._answer(name, call)

        return ask

    def _answer(self, name: str, call: str) -> Any:
        opening = name == "nvmlInit"
        if not opening and not self.open:
            raise RecordedError(1)
        silent = name in ("nvmlInit", "nvmlShutdown")
        answer = self.answers.get(call, None if silent else {"error": NOT_SUPPORTED})
        if isinstance(answer, dict):
            if "error" in answer:
                raise RecordedError(answer["error"])
            return SimpleNamespace(**answer)
        if silent:
            self.open = opening
        return answer
