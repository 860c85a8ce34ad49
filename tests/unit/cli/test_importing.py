"""`tiffin models import` without a server: the file, the store, and what is left alone."""

import hashlib
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.unit.adapters.importers.test_folders import CODE, gguf
from tests.unit.adapters.importers.test_graphs import doubled
from tiffin.adapters.importers.order import Order
from tiffin.app.starter import starter_config
from tiffin.cli import template
from tiffin.cli.connect import Unreachable
from tiffin.cli.importing import Wish, import_model, two_labels
from tiffin.config.load import load
from tiffin.errors import ArtifactError, ConfigInvalid, Conflict
from tiffin.types.paths import DataFolder


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.onnx"
    onnx.save(doubled(), path)
    return path


def bring(folder: Path, path: Path, name: str = "fraud", **wished: Any) -> str:
    trusted = wished.pop("trusted", False)
    order = Order(path=path, scratch=folder, trusted=trusted)
    wish = Wish(name=name, config=folder / "tiffin.toml", data=folder / "data", **wished)
    return "\n".join(import_model(order, wish))


def test_the_first_import_writes_a_configuration_that_loads(tmp_path: Path, graph: Path) -> None:
    said = bring(tmp_path, graph)
    text = (tmp_path / "tiffin.toml").read_text()
    assert text.startswith(template.text()[:500])
    config = load(tmp_path / "tiffin.toml", {}).config
    [file] = config.models["fraud"].files.values()  # type: ignore[union-attr]
    assert file.sources == [f"file:{graph}"]
    kept = tmp_path / "data" / "artifacts" / "sha256" / file.sha256
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == file.sha256
    assert kept.stat().st_ino != graph.stat().st_ino
    key = config.tenants["starter"].keys["main"].key_file
    assert key == str(tmp_path / "data" / "key")
    assert "tiffin serve starts one" in said
    assert "/v2/models/fraud/infer" in said
    assert '"name": "x"' in said


def test_what_is_written_first_is_what_a_server_without_a_file_has(
    tmp_path: Path, graph: Path
) -> None:
    """So that the import is applied to it, and takes nothing away from it."""
    bring(tmp_path, graph)
    tree = load(tmp_path / "tiffin.toml", {}).tree
    tree["models"].pop("fraud")
    starter = starter_config(DataFolder(tmp_path / "data"), {}).tree
    assert tree | {"server": None} == starter | {"server": None}


def test_a_name_that_is_taken_is_left_alone_unless_replaced(tmp_path: Path, graph: Path) -> None:
    bring(tmp_path, graph)
    before = (tmp_path / "tiffin.toml").read_text()
    with pytest.raises(Conflict, match="--replace"):
        bring(tmp_path, graph)
    assert (tmp_path / "tiffin.toml").read_text() == before
    bring(tmp_path, graph, replace=True)
    assert (tmp_path / "tiffin.toml").read_text() == before


def test_nothing_changes_where_a_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no")
    with pytest.raises(ArtifactError):
        bring(tmp_path, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx"]


def test_every_runtime_gets_its_section(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    bring(tmp_path, tmp_path / "mine.py", "own", trusted=True)
    said = bring(tmp_path, gguf(tmp_path / "talk.gguf"), "talk")
    models = tomllib.loads((tmp_path / "tiffin.toml").read_text())["models"]
    assert models["own"]["class_name"] == "Mine"
    assert models["own"]["files"]["model.py"]["sources"] == [f"file:{tmp_path}/mine.py"]
    assert models["talk"]["runtime"] == "llamacpp"
    assert models["talk"]["sources"] == [f"file:{tmp_path}/talk.gguf"]
    assert "/v1/chat/completions" in said


def test_an_own_file_is_added_to_and_not_formatted(tmp_path: Path, graph: Path) -> None:
    own = "# mine\n[models.a]\nruntime = 'echo'   # odd"
    (tmp_path / "tiffin.toml").write_text(own)
    bring(tmp_path, graph)
    text = (tmp_path / "tiffin.toml").read_text()
    assert text.startswith(own + "\n\n# Imported by")
    assert set(load(tmp_path / "tiffin.toml", {}).config.models) == {"a", "fraud"}


def test_applying_where_nobody_serves_is_an_error_only_when_asked(
    tmp_path: Path, graph: Path
) -> None:
    assert "not applied" in bring(tmp_path, graph, apply=False)
    with pytest.raises(Unreachable):
        bring(tmp_path, graph, "again", apply=True)


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 65])
def test_names_that_no_section_can_have_are_refused(name: str, tmp_path: Path, graph: Path) -> None:
    with pytest.raises(ConfigInvalid, match="--name"):
        bring(tmp_path, graph, name)


@pytest.mark.parametrize("text", ["a", "a,b,c", "a,"])
def test_labels_are_two(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="--labels"):
        two_labels(text)
    assert two_labels("ok, bad") == ("ok", "bad")


def test_imports_at_the_same_time_all_stay(tmp_path: Path, graph: Path) -> None:
    names = [f"m{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: bring(tmp_path, graph, name), names))
    assert set(names) <= set(load(tmp_path / "tiffin.toml", {}).config.models)
