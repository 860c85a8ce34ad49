"""The import contracts of pyproject.toml hold, and a module outside the layers breaks them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch.tree import ROOT, SOURCE


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts over the package that lies in `folder`."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); "
        "from importlinter.cli import lint_imports; "
        f"sys.exit(lint_imports(config_filename={str(ROOT / 'pyproject.toml')!r}, no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_import_contracts_hold() -> None:
    done = lint_imports(SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("grabbag.py", "", id="a new top-level module"),
        pytest.param("gateway/shortcut.py", "import tiffin.control", id="gateway to control"),
        pytest.param("serving/shortcut.py", "import httpx", id="a client library inside"),
        pytest.param("types/shortcut.py", "import tiffin.ports.clock", id="upward"),
        pytest.param("api/shortcut.py", "import tiffin.adapters.stores", id="edge to edge"),
    ],
)
def test_a_wrong_import_fails(tmp_path: Path, path: str, text: str) -> None:
    shutil.copytree(SOURCE / "tiffin", tmp_path / "tiffin", ignore=shutil.ignore_patterns("__py*"))
    (tmp_path / "tiffin" / path).write_text(text + "\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
