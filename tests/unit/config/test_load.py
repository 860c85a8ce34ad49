"""Loading a configuration: what is accepted, and how what isn't is named."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.config.load import Loaded, load, load_text, load_tree
from tiffin.config.models import Decision, EchoModel, LlamacppModel, OnnxModel
from tiffin.config.schema import Config, config_schema
from tiffin.errors import ConfigInvalid

DIGEST = "ab" * 32


def loaded(text: str, **environ: str) -> Loaded:
    return load_text(text.encode(), environ)


def refusal(text: str) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(text)
    return refused.value


def test_no_file_gives_the_defaults() -> None:
    assert load(None, {}).config == Config()


def test_a_file_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "tiffin.toml"
    path.write_text('[models.parrot]\nruntime = "echo"\nslots = 2\ntoken_ms = 5\n')
    got = load(path, {})
    assert got.config.models == {"parrot": EchoModel(slots=2, token_ms=5.0)}
    assert got.source == str(path)
    assert got.tree["models"]["parrot"]["queue"] == 64


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("[servr]", "servr", "did you mean server?"),
        ("[models.chat]\nruntime='echo'\ncontxt=1", "models.chat.contxt", "did you mean context?"),
        ("[server]\nzzz=1", "server.zzz", "known are"),
        ("[server]\nport='x'", "server.port", 'found "x", expected an integer from 0 up to 65535'),
        ("[server]\nport=true", "server.port", "found true"),
        ('[server]\ndata="/a\\u0000b"', "server.data", 'found "/a<00>b", expected a text'),
        ('[server]\nhost="h\\nx"', "server.host", 'found "h<0a>x"'),
        ("[server]\nport=70000", "server.port", "found 70000"),
        ("[server]\ndrain_s=-1", "server.drain_s", "found -1"),
        ("[server]\nkeep_alive_s=nan", "server.keep_alive_s", "found nan"),
        ("[server]\nkeep_alive_s=inf", "server.keep_alive_s", "found inf"),
        ("[server]\nhost=1979-05-27", "server.host", "expected a text"),
        ("server=1", "server", "expected a section"),
        ("[telemetry]\nlog_level='loud'", "telemetry.log_level", "expected one of"),
        ("[models.m]\ncontext=1", "models.m.runtime", 'missing, expected one of "llamacpp"'),
        ("[models.m]\nruntime='vllm'", "models.m.runtime", 'found "vllm"'),
        ("[models.m]\nruntime='llamacpp'", "models.m.sources", "missing"),
        ("models=[1]", "models", "found a list, expected a section"),
        ("[models]\nm=1", "models.m", "found 1, expected a section"),
        ("[models.'a b']\nruntime='echo'", "models.a b", "names have"),
        (
            "[models.m]\nruntime='llamacpp'\nsha256='AB'\nsources=['file:/x']",
            "models.m.sha256",
            "64",
        ),
        ("version=2", "version", "a newer Tiffin is needed"),
        ("version=0", "version", "found 0"),
        ("version='1'", "version", 'found "1"'),
    ],
)
def test_what_is_wrong_is_named_by_its_path(text: str, where: str, words: str) -> None:
    error = refusal(text)
    assert error.where == where
    assert words in error.message


def test_every_problem_is_told_at_once() -> None:
    message = refusal("[server]\nport='x'\nhosst='y'").message
    assert "server.port" in message
    assert "server.hosst" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a = 1\nb = = 2\n", "at line 2"),
        (b"a = 1\nb =", "at line 2, the last"),
        (b"[server]\nport = 1\nport = 2\n", "at line 3"),
        (b"[server]\nport = " + b"9" * 5000, "4300 digits"),
        (b"a = 1\nb = '\xff'\n", "not UTF-8 in line 2"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
    ],
    ids=["syntax", "end", "duplicate", "digits", "encoding", "depth"],
)
def test_what_is_not_toml_is_named_by_its_line(text: bytes, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        load_text(text, {}, source="tiffin.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"no\.toml: can't be read: No such file"):
        load(tmp_path / "no.toml", {})


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigInvalid, match="is a pipe"):
        load(tmp_path / "pipe", {})


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="longer than"):
        load(Path("/dev/zero"), {})


def test_the_hash_ignores_order_and_layout_but_nothing_else() -> None:
    one = loaded(
        "[server]\nport=1\nhost='a'\n[models.a]\nruntime='echo'\n[models.b]\nruntime='echo'"
    )
    two = loaded(
        "models.b.runtime='echo'\nmodels.a.runtime='echo'\n[server]\nhost = 'a'\nport = 1  # x"
    )
    other = loaded("[server]\nport=2\nhost='a'")
    assert one.sha256 == two.sha256 != other.sha256


def test_credentials_in_addresses_are_masked() -> None:
    got = loaded(
        f"[models.m]\nruntime='llamacpp'\nsha256='{DIGEST}'\n"
        "sources=['https://me:s3cret@host/x?sig=s3cret', 's3://bucket/x']"
    )
    model = got.config.models["m"]
    assert isinstance(model, LlamacppModel)
    assert "s3cret" in model.sources[0]
    assert got.tree["models"]["m"]["sources"] == ["https://***@host/x?***", "s3://bucket/x"]


def test_the_schema_says_what_loading_says() -> None:
    schema = config_schema()
    server = schema["$defs"]["Server"]
    assert server["additionalProperties"] is False
    assert server["properties"]["port"]["maximum"] == 65_535


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["server", "port", "models", "runtime", "a", "tenants", "keys", "routes", "sources"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(tree=st.dictionaries(st.sampled_from(["server", "models", "tenants", "x"]), trees))
def test_any_tree_is_loaded_or_refused_with_a_place(tree: dict[str, object]) -> None:
    where = ""
    try:
        got = load_tree(tree, {})
    except ConfigInvalid as refused:
        where = refused.where
    assert where or load_tree(got.tree, {}).sha256 == got.sha256


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ("task='embed'", "tokenizer.json"),
        ("task='rerank'\ngraph='other.onnx'", "other.onnx, tokenizer.json"),
        ("graph='other.onnx'", "other.onnx"),
    ],
)
def test_a_graph_without_its_files_is_refused(settings: str, missing: str) -> None:
    files = f"[models.m.files.'model.onnx']\nsources=['file:/m']\nsha256='{DIGEST}'\n"
    refused = refusal(f"[models.m]\nruntime='onnx'\n{settings}\n{files}")
    assert refused.where == "models.m.files"
    assert refused.message.endswith(f"expected also {missing}")


def test_lists_of_a_fixed_kind_are_read_from_a_file() -> None:
    files = f"[models.m.files.'model.onnx']\nsources=['file:/m']\nsha256='{DIGEST}'\n"
    section = f"[models.m]\nruntime='onnx'\nproviders=['cpu']\n{files}"
    decision = section + "[models.m.decision]\nlabels=['good', 'bad']\n"
    model = loaded(decision).config.models["m"]
    assert isinstance(model, OnnxModel)
    assert model.providers == ("cpu",)
    assert model.decision == Decision(labels=("good", "bad"))
    assert "expected a list of 2" in refusal(decision.replace(", 'bad'", "")).message
    assert refusal(section.replace("'cpu'", "1")).where == "models.m.providers[0]"
