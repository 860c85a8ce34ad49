import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.app.log_file import FILES, LogFile, Voice


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[LogFile]:
    log_file = LogFile(tmp_path, max_bytes=4000)
    yield log_file
    log_file.close()


def lines(folder: Path) -> list[bytes]:
    newest_last = sorted(folder.iterdir(), key=lambda path: path.suffix, reverse=True)
    oldest = [path for path in newest_last if path.suffix != ".jsonl"]
    return b"".join(
        path.read_bytes() for path in [*oldest, folder / "tiffin.jsonl"] if path.exists()
    ).splitlines()


def test_it_keeps_the_newest_lines_and_stays_within_its_bound(
    log_file: LogFile, tmp_path: Path
) -> None:
    for n in range(1000):
        log_file.write(b"%06d %s\n" % (n, b"x" * 50))
    kept = [int(line.split()[0]) for line in lines(tmp_path)]
    assert kept == list(range(kept[0], 1000))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    assert len(list(tmp_path.iterdir())) == FILES
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_another_start_appends(log_file: LogFile, tmp_path: Path) -> None:
    log_file.write(b"one\n")
    log_file.close()
    LogFile(tmp_path, max_bytes=4000).write(b"two\n")
    assert lines(tmp_path) == [b"one", b"two"]


def test_a_line_that_is_longer_than_the_log_is_dropped(log_file: LogFile, tmp_path: Path) -> None:
    log_file.write(b"x" * 1001 + b"\n")
    assert log_file.dropped == 1
    log_file.write(b"after\n")
    note, after = lines(tmp_path)
    assert (json.loads(note)["count"], after) == (1, b"after")


def test_what_cant_be_written_is_counted_and_the_count_is_logged_later(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    log_file = LogFile(folder, max_bytes=4000)
    for _ in range(3):
        log_file.write(b"lost\n")
    folder.mkdir()
    log_file.write(b"kept\n")
    log_file.close()
    note, kept = lines(folder)
    assert (json.loads(note)["count"], kept, log_file.dropped) == (3, b"kept", 3)


def test_a_line_that_fits_only_in_part_leaves_no_torn_line(tmp_path: Path) -> None:
    # A limit on the size of files makes the kernel take a part of a write, as a full disk does.
    program = (
        "import resource, sys; from pathlib import Path; from tiffin.app.log_file import LogFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (25, 25))\n"
        "log_file = LogFile(Path(sys.argv[1]), max_bytes=4000)\n"
        "for _ in range(3): log_file.write(b'0123456789\\n')\n"
        "sys.exit(log_file.dropped)"
    )
    ended = subprocess.run([sys.executable, "-B", "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == 1
    assert lines(tmp_path) == [b"0123456789"] * 2


@given(st.binary(max_size=200))
def test_whatever_a_process_prints_becomes_one_line_that_names_it(printed: bytes) -> None:
    written: list[bytes] = []
    Voice("r-chat", written.append)(printed.replace(b"\n", b""))
    assert json.loads(written[0])["process"] == "r-chat"
    assert written[0].count(b"\n") == 1


def test_our_own_lines_pass_and_foreign_ones_are_wrapped_and_both_are_redacted() -> None:
    written: list[bytes] = []
    voice = Voice("r-chat", written.append)
    voice(b'{"at":"then","level":"error","event":"mail a@example.com","n":[1]}')
    voice(b"llama_load: prompt of a@example.com")
    voice(b'{"prompt":"a@example.com"}')
    ours, foreign, json_of_another = [json.loads(line) for line in written]
    assert (ours["at"], ours["level"], ours["n"], ours["process"]) == (
        "then",
        "error",
        [1],
        "r-chat",
    )
    assert foreign["event"].startswith("llama_load: prompt of ")
    assert json_of_another["event"].startswith('{"prompt":')
    assert b"a@example.com" not in b"".join(written)


def test_the_last_thing_said_explains_an_end() -> None:
    voice = Voice("control", lambda line: None)
    voice(b'{"event":"crashed","error":"OSError: no disk"}')
    assert voice.last == "OSError: no disk"
    voice(b"Segmentation fault")
    assert voice.last == "Segmentation fault"
