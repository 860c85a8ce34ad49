"""What is committed names no index host, no machine's paths, and only permissive dependencies."""

import re
import tomllib
from importlib import metadata

import pytest

from tests.arch.tree import ROOT, tracked

# In parts, so that this file doesn't contain what it looks for.
HOSTS = ["py" + "pi.org", "pythonhost" + "ed.org", "npm" + "js.", "deb.deb" + "ian.org"]
FOLDERS = ["/wo" + "rk/", "/fa" + "rm/", "/tmp/" + "lab/", "/ro" + "ot/"]
FORBIDDEN = re.compile("|".join([*map(re.escape, HOSTS), *FOLDERS]))

LICENCES = re.compile(
    r"\b(MIT|MIT-0|BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|ISCL)\b"
)
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EUPL|SSPL|BUSL)\b|Affero|General Public")


def locked(name: str) -> dict[str, str]:
    """Package names and versions of a lock file."""
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", text, re.MULTILINE))


def test_no_tracked_file_names_an_index_host_or_a_machine_path() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in FORBIDDEN.finditer(text)]
    assert found == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_are_hashed_and_name_no_index(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "index-url" not in text
    assert "://" not in text


def test_the_locks_agree_and_hold_every_declared_dependency() -> None:
    runtime, dev = locked("requirements.lock"), locked("requirements-dev.lock")
    assert {name: dev.get(name) for name in runtime} == runtime
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for lock, wanted in [(runtime, project["dependencies"]), (dev, extras["dev"])]:
        names = {re.split(r"[<>=!\[; ]", spec)[0].lower().replace("_", "-") for spec in wanted}
        assert names - lock.keys() == set()


def test_runtime_dependencies_have_permissive_licences() -> None:
    for name in locked("requirements.lock"):
        try:
            about = metadata.distribution(name).metadata.json
        except metadata.PackageNotFoundError:
            continue  # only for other systems
        said = [str(about.get("license_expression", "")), str(about.get("license", ""))[:80]]
        said += [line for line in about.get("classifier", []) if line.startswith("License")]
        words = " ".join(said)
        assert LICENCES.search(words), f"{name}: {words}"
        assert not COPYLEFT.search(words), f"{name}: {words}"


def test_the_licence_and_the_notices_are_here() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    notice = (ROOT / "NOTICE").read_text()
    assert "SmolLM2" in notice
    assert "Qwen2.5" in notice
