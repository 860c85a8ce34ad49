import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.telemetry import log
from tiffin.telemetry.log import MAX_LINE, MAX_STRING, render, set_up, to_stderr


class Lines:
    """A sink that reads what is written to it."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.raw.append(line)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw]


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    lines = Lines()
    set_up(process="gateway", level="info", write=lines.write)
    yield lines
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)


def test_an_event_is_one_json_line_that_names_its_process(lines: Lines) -> None:
    log.warning("snapshot refused", number=7)
    event = lines.events[0]
    assert event.pop("at").endswith("Z")
    assert event == {
        "level": "warning", "process": "gateway", "event": "snapshot refused", "number": 7,
    }  # fmt: skip
    assert lines.raw[0].endswith(b"\n")


def test_events_below_the_level_are_not_written(lines: Lines) -> None:
    logging.getLogger("tiffin").debug("quiet")
    logging.getLogger("uvicorn.error").debug("quiet")
    assert lines.raw == []


def test_what_libraries_log_takes_the_same_way(lines: Lines) -> None:
    logging.getLogger("uvicorn.error").info("Started %s", "server")
    logging.getLogger("asyncio").error("slow", extra={"fields": {"took_s": 2}})
    started, slow = lines.events
    assert (started["event"], started["logger"]) == ("Started server", "uvicorn.error")
    assert (slow["level"], slow["took_s"]) == ("error", 2)


def test_a_message_that_doesnt_fit_its_arguments_is_still_logged(lines: Lines) -> None:
    record = logging.LogRecord("uvicorn.error", 40, __file__, 1, "%d tokens", ("many",), None)
    logging.getLogger().handlers[0].emit(record)
    assert lines.events[0]["event"] == "%d tokens"


def test_access_lines_are_not_written(lines: Lines) -> None:
    logging.getLogger("uvicorn.access").info("127.0.0.1 GET /v1/models")
    assert lines.raw == []


def test_an_exception_is_logged_with_its_trace(lines: Lines) -> None:
    try:
        raise ValueError("bad thing of a@example.com")
    except ValueError:
        log.error("failed", exc_info=True)
    event = lines.events[0]
    assert event["error"].startswith("ValueError: bad thing")
    assert "test_log.py" in event["trace"]
    assert "a@example.com" not in lines.raw[0].decode()


def test_an_uncaught_exception_is_logged_but_an_interrupt_is_not(lines: Lines) -> None:
    crashed = set_up(process="gateway", level="info", write=lines.write).crashed
    crashed(KeyError, KeyError("x"), None)
    crashed(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert [event["event"] for event in lines.events] == ["crashed"]


def test_a_group_of_exceptions_is_told_by_what_is_in_it(lines: Lines) -> None:
    group = ExceptionGroup("tasks", [OSError("a"), ExceptionGroup("more", [ValueError("b")])])
    log.error("failed", exc_info=group)
    assert lines.events[0]["error"] == "OSError: a; ValueError: b"


def test_warnings_are_logged(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "old" in lines.events[0]["event"]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "write to asha@example.com now"},
        {"deep": {"list": [["asha@example.com"]]}},
        {"asha@example.com": 1},
        {"bytes": b"asha@example.com"},
        {"object": ValueError("asha@example.com")},
        {"deeper": [[[[[[[["asha@example.com"]]]]]]]]},
        {"late": "x " * (2 * MAX_STRING) + "asha@example.com"},
        {"cut": "x " * (2 * MAX_STRING - 5) + "asha@example.com"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_personal_is_in_any_string(fields: dict[str, Any]) -> None:
    line = render({"event": "x", **fields})
    assert b"asha" not in line


def test_what_we_write_ourselves_is_not_taken_for_personal() -> None:
    head = {"at": log.stamp(), "level": "info", "process": "r-chat-0f1e2d3c", "event": "ready"}
    assert json.loads(render(head)) == head


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), json_like, max_size=5))
def test_any_fields_give_one_bounded_line_of_json(fields: dict[str, Any]) -> None:
    line = render(fields)
    assert line.count(b"\n") == 1
    assert len(line) <= MAX_LINE + 1
    json.loads(line)


def test_a_line_is_bounded_however_much_is_logged() -> None:
    assert len(render({"event": "x", "much": ["y" * MAX_STRING] * 1000})) < MAX_LINE
    assert len(render({"event": "\ud800" * 10**6})) < MAX_LINE


def test_a_reader_that_doesnt_read_costs_lines_not_time() -> None:
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        write = to_stderr()
        for n in range(2000):
            write(b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * 1000))
        first = os.read(reading, 10**6)
        write(b'{"n":"after"}\n')
    finally:
        os.dup2(kept, 2)
        os.set_blocking(2, True)
        os.close(kept)
        os.close(writing)
    got = (first + os.read(reading, 10**6)).splitlines()
    os.close(reading)
    whole = [json.loads(line) for line in got if line.endswith(b"}")]
    dropped = next(event["count"] for event in whole if "count" in event)
    assert whole[-1] == {"n": "after"}
    assert dropped + sum("pad" in event for event in whole) == 2000


def test_nothing_of_this_writes_to_the_standard_output(
    lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    log.info("here")
    sys.stdout.flush()
    assert capsys.readouterr().out == ""
