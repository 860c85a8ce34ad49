"""JSON logs of every process, one object a line, with nothing personal in any string of them.

Our own events, the standard library's loggers (uvicorn, asyncio), warnings and crashes all take
the same way: one dict, redacted, bounded, encoded. Use it as `log.warning("what", name=value)`.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import msgspec

from tiffin.telemetry.redact import redact

Write = Callable[[bytes], None]

MAX_STRING = 8_192
MAX_LINE = 65_536

_OURS = "tiffin"
_MAX_DEPTH = 6
_MAX_ITEMS = 64
_MAX_READ = 4 * MAX_STRING
_MAX_FINDING = 256


def set_up(*, process: str, level: str, write: Write) -> "Route":
    """Send everything that this process logs at `level` or above through `write`, a line a call.

    Loggers of the standard library add fields by `extra={"fields": {…}}`. Calling it again replaces
    what was set up before. The route's `crashed` is fit for `sys.excepthook`.
    """
    route = Route(process, write)
    root = logging.getLogger()
    root.handlers = [_Bridge(route)]
    root.setLevel(_number(level))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
    # An access line a request would cost more than the request and names the client's address.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    return route


def to_stderr() -> Write:
    """Lines to this process's stderr that are dropped, and counted, rather than waited for."""
    os.set_blocking(2, False)
    return _Unblocked(2)


def info(event: str, **fields: Any) -> None:
    """Log that something went as it should; the text is constant, what varies are fields."""
    _emit("info", event, fields)


def warning(event: str, **fields: Any) -> None:
    """Log something that a person may want to look at."""
    _emit("warning", event, fields)


def error(event: str, **fields: Any) -> None:
    """Log a failure; `exc_info=True` adds the exception being handled."""
    _emit("error", event, fields)


def _emit(level: str, event: str, fields: dict[str, Any]) -> None:
    failure = fields.pop("exc_info", None)
    logging.getLogger(_OURS).log(_number(level), event, exc_info=failure, extra={"fields": fields})


def render(event: Mapping[str, Any]) -> bytes:
    """One log line with its newline: every string redacted and bounded, keys in their order."""
    line = msgspec.json.encode(_clean(event, 0))
    if len(line) > MAX_LINE:
        line = msgspec.json.encode({"event": "a log line was too long", "bytes": len(line)})
    return line + b"\n"


def stamp() -> str:
    """This moment in UTC as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Route:
    """Turns events into lines."""

    def __init__(self, process: str, write: Write) -> None:
        self._process = process
        self._write = write

    def log(self, level: str, event: str, *, exc_info: Any = None, **fields: Any) -> None:
        """One event; `exc_info` is an exception in any of the forms that loggers accept."""
        head = {"at": stamp(), "level": level, "process": self._process, "event": event}
        self._write(render({**head, **fields, **_failure(exc_info)}))

    def crashed(
        self, kind: type[BaseException], failure: BaseException, trace: TracebackType | None
    ) -> None:
        """Log an exception that nobody caught."""
        if not issubclass(kind, KeyboardInterrupt):
            self.log("critical", "crashed", exc_info=(kind, failure, trace))


class _Bridge(logging.Handler):
    """Standard library records onto the route."""

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._route = route

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: a message whose arguments don't fit is logged unformatted."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = str(record.msg)
        whose = {} if record.name == _OURS else {"logger": record.name}
        fields = {**whose, **getattr(record, "fields", {})}
        self._route.log(record.levelname.lower(), message, exc_info=record.exc_info, **fields)


class _Unblocked:
    """Writes to a non-blocking descriptor: a full pipe loses lines, never time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._dropped = 0
        self._torn = False

    def __call__(self, line: bytes) -> None:
        if self._dropped:
            note = {"at": stamp(), "level": "warning", "event": "log lines dropped"}
            line = render({**note, "count": self._dropped}) + line
        if self._torn:
            line = b"\n" + line
        try:
            sent = os.write(self._fd, line)
        except OSError:
            self._dropped += 1
            return
        self._dropped = 0
        self._torn = sent < len(line)
        if self._torn:
            self._dropped = 1


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _failure(exc_info: Any) -> dict[str, Any]:
    """The kind, message and trace of an exception, in any of the forms that loggers accept."""
    if exc_info is True:
        exc_info = sys.exc_info()
    if isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    if not exc_info or exc_info[1] is None:
        return {}
    import traceback

    kind, failure, trace = exc_info
    lines = traceback.format_exception(kind, failure, trace, limit=-20)
    return {"error": "; ".join(_causes(failure)), "trace": "".join(lines)}


def _causes(failure: BaseException) -> list[str]:
    """What went wrong, without the groups around it."""
    if isinstance(failure, BaseExceptionGroup):
        return [cause for inner in failure.exceptions for cause in _causes(inner)]
    return [f"{type(failure).__name__}: {failure}"]


def _clean(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {_text(key): _clean(inner, depth + 1) for key, inner in items}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_clean(inner, depth + 1) for inner in list(value)[:_MAX_ITEMS]]
    return _text(value)


def _text(value: Any) -> str:
    """Redacted before it is cut, so that a cut never hides half of what should be found."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.encode("utf-8", "replace").decode()
    text = redact(text[:_MAX_READ])[:-_MAX_FINDING] if len(text) > _MAX_READ else redact(text)
    return text if len(text) <= MAX_STRING else text[:MAX_STRING] + "…"
