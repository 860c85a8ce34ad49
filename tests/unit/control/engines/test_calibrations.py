"""Calibrations are kept by revision and machine, and decide the models that ask for it."""

from pathlib import Path

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.models import EchoModel, LlamacppModel
from tiffin.config.schema import Config
from tiffin.control.catalogue.revision import revision_of
from tiffin.control.engines.calibrations import Calibrations, machine_id
from tiffin.types.calibration import Calibration, Measured

VERSIONS = {"llamacpp": "1", "openvino": "2"}
AUTO = LlamacppModel(sources=["file:x"], sha256="0" * 64, engine="auto")


def calibration(engine: str = "openvino") -> Calibration:
    return Calibration(
        revision=revision_of(AUTO),
        machine="m",
        taken_ns=1,
        versions=VERSIONS,
        measured=[Measured(engine="openvino", tokens_per_s={1: 2.5})],
        engine=engine,
        why="it's faster",
    )


def loaded(**models: LlamacppModel | EchoModel) -> Loaded:
    return Loaded(config=Config(models=dict(models)), tree={}, sha256="", source="")


def engine_of(kept: Calibrations) -> str:
    model = kept.decided(loaded(chat=AUTO)).config.models["chat"]
    assert isinstance(model, LlamacppModel)
    return model.engine


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    kept = Calibrations(tmp_path / "c", "m", VERSIONS)
    before = kept.mark()
    path = kept.keep(calibration())
    assert kept.of(revision_of(AUTO)) == calibration()
    assert path.name == f"{revision_of(AUTO).removeprefix('sha256:')}.m.json"
    assert kept.mark() != before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_llamacpp_serves_until_something_else_was_chosen(tmp_path: Path) -> None:
    kept = Calibrations(tmp_path, "m", VERSIONS)
    assert engine_of(kept) == "llamacpp"
    assert kept.undecided({"chat": AUTO, "echo": EchoModel()}) == ["chat"]
    kept.keep(calibration())
    assert engine_of(kept) == "openvino"
    assert kept.undecided({"chat": AUTO}) == []


def test_it_is_told_why_an_engine_is_the_one(tmp_path: Path) -> None:
    kept = Calibrations(tmp_path, "m", VERSIONS)
    assert kept.why(AUTO) == "nothing has been measured yet"
    kept.keep(calibration())
    assert kept.why(AUTO) == "chosen: it's faster"
    assert kept.why(msgspec.structs.replace(AUTO, engine="openvino")) == "its section says so"
    assert kept.why(msgspec.structs.replace(AUTO, task="embed")) == ""
    assert kept.why(EchoModel()) == kept.why(None) == ""


def test_another_machine_or_version_decides_nothing_here(tmp_path: Path) -> None:
    Calibrations(tmp_path, "m", VERSIONS).keep(calibration())
    assert engine_of(Calibrations(tmp_path, "other", VERSIONS)) == "llamacpp"
    assert engine_of(Calibrations(tmp_path, "m", {"llamacpp": "2"})) == "llamacpp"


def test_a_file_that_is_none_or_names_no_engine_decides_nothing(tmp_path: Path) -> None:
    kept = Calibrations(tmp_path, "m", VERSIONS)
    path = kept.keep(calibration("rm -rf"))
    assert engine_of(kept) == "llamacpp"
    path.write_text("{")
    assert engine_of(kept) == "llamacpp"


def test_what_a_model_says_itself_stands(tmp_path: Path) -> None:
    kept = Calibrations(tmp_path, "m", VERSIONS)
    plain = loaded(chat=msgspec.structs.replace(AUTO, engine="llamacpp"), echo=EchoModel())
    assert kept.decided(plain) is plain


def test_the_engine_is_part_of_the_revision_and_known_revisions_keep_their_names() -> None:
    plain = msgspec.structs.replace(AUTO, engine="llamacpp")
    other = msgspec.structs.replace(AUTO, engine="openvino")
    assert len({revision_of(model) for model in (plain, other, AUTO)}) == 3
    kept_in = msgspec.structs.replace(plain, cache_type="q8_0")
    assert revision_of(kept_in) != revision_of(plain)


def test_a_machine_is_its_processors_and_how_many(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("model name\t: Fast\nflags: a\nmodel name\t: Fast\n")
    other.write_text("model name\t: Slow\n")
    assert machine_id(one) == machine_id(one) != machine_id(other)
    assert len(machine_id(tmp_path / "none")) == 8
