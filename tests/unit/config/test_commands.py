"""Programs that print secrets: bounded in time and size, and nothing of them is told."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from tiffin.config.commands import output_of, outputs_of
from tiffin.config.load import load_text
from tiffin.config.secrets import hashed, key_hashes, upstream_keys
from tiffin.errors import ConfigInvalid


def test_what_is_printed_is_the_secret() -> None:
    assert output_of(["/bin/sh", "-c", "echo '  sk-1 '; echo noise >&2"]) == "sk-1"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/no/such"], "/no/such can't be run: No such file or directory"),
        (["/etc/passwd"], "/etc/passwd can't be run: Permission denied"),
        (["/bin/sh", "-c", "echo hidden; exit 3"], "/bin/sh failed with exit code 3"),
        (["/bin/sh", "-c", "kill -9 $$"], "/bin/sh failed with exit code -9"),
        (["/bin/echo"], "/bin/echo printed nothing"),
        (["/bin/cat", "/dev/zero"], "/bin/cat printed more than 65536 bytes"),
        (["/bin/printf", r"\377"], "/bin/printf printed something else than UTF-8"),
        (["/bin/echo", "a\0b"], "/bin/echo can't be run: it has a NUL in it"),
    ],
    ids=["missing", "no program", "fails", "killed", "nothing", "endless", "bytes", "nul"],
)
def test_a_program_that_gives_none_is_named_without_what_it_said(
    command: list[str], said: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        output_of(command)
    assert str(refused.value) == said


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; sleep 60"
    began = time.monotonic()
    with pytest.raises(ConfigInvalid, match=r"took longer than 0\.5 s"):
        output_of(["/bin/sh", "-c", script], within_s=0.5)
    assert time.monotonic() - began < 10
    child = Path(f"/proc/{int((tmp_path / 'child').read_text())}/stat")
    with suppress(OSError):  # it has been taken away, too
        while child.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() - began < 10


def test_each_program_runs_once_and_all_at_the_same_time(tmp_path: Path) -> None:
    # Each waits for the other's file.
    script = "touch $0; while [ ! -e $1 ]; do :; done; echo $0"
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    there, back = ("/bin/sh", "-c", script, one, two), ("/bin/sh", "-c", script, two, one)
    assert outputs_of([there, back, there]) == {there: one, back: two}
    assert outputs_of([]) == {}


def test_keys_that_programs_print_are_keys() -> None:
    config = load_text(
        b"""
        [tenants.a.keys.one]
        key_command = ["/bin/echo", "sk-1"]
        [models.cloud]
        runtime = "remote"
        url = "https://host/v1"
        key_command = ["/bin/echo", "sk-2"]
        """,
        {},
    ).config
    assert key_hashes(config, {}) == {hashed("sk-1"): ("a", "one")}
    assert upstream_keys(config, {}) == {"cloud": "sk-2"}


def test_a_program_that_fails_is_told_by_its_place_in_the_file() -> None:
    config = load_text(b"[tenants.a.keys.one]\nkey_command = ['/bin/false', 'x']", {}).config
    with pytest.raises(ConfigInvalid, match="exit code 1") as refused:
        key_hashes(config, {})
    assert refused.value.where == "tenants.a.keys.one"


def test_arguments_are_shown_to_nobody() -> None:
    loaded = load_text(b"[tenants.a.keys.one]\nkey_command = ['/bin/echo', 'sk-1', 'x']", {})
    shown = loaded.tree["tenants"]["a"]["keys"]["one"]["key_command"]
    assert shown == ["/bin/echo", "***", "***"]
