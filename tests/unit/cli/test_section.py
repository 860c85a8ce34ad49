"""A model's section goes into a configuration and out of it; nothing else moves."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.cli import template
from tiffin.cli.section import section, with_section, write_whole
from tiffin.config.models import Decision, File
from tiffin.errors import Conflict

FILE = File(sources=["file:/srv/a.onnx"], sha256="0" * 64, size_bytes=3)


def fraud(remark: str = "a test", name: str = "fraud") -> str:
    decision = Decision(threshold=0.3, labels=("ok", 'b"ad'), features=["a", "b"])
    return section(name, "onnx", {"task": "tensors"}, {"model.onnx": FILE}, decision, remark)


def test_a_section_is_what_it_says() -> None:
    tree = tomllib.loads(fraud())["models"]["fraud"]
    assert tree["runtime"] == "onnx"
    assert tree["files"]["model.onnx"]["sources"] == ["file:/srv/a.onnx"]
    assert tree["decision"] == {
        "threshold": 0.3,
        "labels": ["ok", 'b"ad'],
        "features": ["a", "b"],
    }


def test_a_language_model_has_its_file_in_the_section() -> None:
    text = section("talk", "llamacpp", {"context": 1}, {"model.gguf": FILE}, None, "a test")
    assert tomllib.loads(text)["models"]["talk"]["sha256"] == "0" * 64


def test_putting_in_and_replacing_leaves_the_rest_as_it_was() -> None:
    before = template.text()
    once = with_section(before, "fraud", fraud(), replace=False)
    assert once.startswith(before)
    twice = with_section(once, "fraud", fraud("another"), replace=True)
    assert twice == once.replace("a test", "another")
    with pytest.raises(Conflict, match="--replace"):
        with_section(once, "fraud", fraud(), replace=False)


def test_a_section_in_the_middle_is_replaced_where_it_stands() -> None:
    text = "# mine\n[models.a]\nruntime = 'echo'\n\n# fraud's\n" + fraud()
    text += "#queue = 1\n\n# the next one's\n[models.b]\nruntime = 'echo'\n# the end\n"
    found = with_section(text, "fraud", "[models.fraud]\nruntime = 'echo'\n", replace=True)
    assert found == (
        "# mine\n[models.a]\nruntime = 'echo'\n\n# fraud's\n[models.fraud]\nruntime = 'echo'\n"
        "\n# the next one's\n[models.b]\nruntime = 'echo'\n# the end\n"
    )


def test_a_starter_model_of_the_template_can_be_replaced() -> None:
    found = with_section(template.text(), "embed", fraud(name="embed"), replace=True)
    before, after = tomllib.loads(template.text()), tomllib.loads(found)
    assert after["models"].pop("embed")["decision"]
    before["models"].pop("embed")
    assert after == before


@pytest.mark.parametrize(
    "text",
    ["models.fraud.runtime = 'echo'\n", "[models]\nfraud = { runtime = 'echo' }\n"],
)
def test_a_section_that_is_written_otherwise_is_left_alone(text: str) -> None:
    with pytest.raises(Conflict, match="by hand"):
        with_section(text, "fraud", fraud(), replace=True)


@given(name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True), said=st.text())
def test_whatever_a_section_says_can_be_read_back(name: str, said: str) -> None:
    said = said.encode("utf-8", "replace").decode()
    decision = Decision(features=[said])
    text = section(name, "onnx", {"graph": said}, {"m": FILE}, decision, said)
    tree = tomllib.loads(with_section("", name, text, replace=False))["models"][name]
    assert tree["graph"] == said
    assert tree["decision"]["features"] == [said]


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "tiffin.toml"
    path.write_text("old")
    path.chmod(0o600)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    write_whole(link, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert link.is_symlink()
    with pytest.raises(Conflict, match="can't be written"):
        write_whole(tmp_path / "no" / "tiffin.toml", "new")
