"""`[models.NAME]`: what a model is and what runs it, a section for each runtime."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tiffin.config.fields import (
    Count,
    Digest,
    Milliseconds,
    Positive,
    Replicas,
    Seconds,
    SecondsOrNone,
    TensorName,
    Text,
)
from tiffin.config.model_sections import ModelCommon as ModelCommon
from tiffin.config.objectives import Share
from tiffin.config.remote import RemoteModel as RemoteModel


class LocalCommon(ModelCommon, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model has that runs in replicas of ours.

    `replicas` processes answer side by side. One that is kept `on-demand` is loaded when a request
    comes and unloaded after `idle_s` without one; no other takes its memory before it has been
    there for `hold_s`; a request may be held for `cold_start_s` (0: `load_timeout_s`) meanwhile.
    `memory_mb` is what one replica takes (0: estimated from its files, then as measured).
    `devices` are `auto`, or those that each replica may compute on by name: `cpu`, `cuda:0`, or an
    id; it takes `device_memory_mb` of each (0: by its files, or all of it where it's launched).
    A request waits for its turn in a replica for at most `queue_timeout_s` (0: as long as it has).
    """

    replicas: Replicas = 1
    keep: Literal["loaded", "on-demand"] = "loaded"
    idle_s: Seconds = 300.0
    hold_s: SecondsOrNone = 10.0
    cold_start_s: SecondsOrNone = 0.0
    memory_mb: Count = 0
    queue_timeout_s: SecondsOrNone = 0.0
    devices: str | list[Text] = "auto"
    device_memory_mb: Count = 0


class LanguageCommon(LocalCommon, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every language model has that runs in replicas of ours.

    An answer is broken off where its first token takes longer than `first_token_timeout_s` once its
    turn has come, or a further one longer than `between_tokens_timeout_s` (0: as long as it has).
    """

    first_token_timeout_s: SecondsOrNone = 0.0
    between_tokens_timeout_s: SecondsOrNone = 0.0


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a model: `sources` are tried in order, all against `sha256`."""

    sources: list[str]
    sha256: Digest
    size_bytes: Count = 0


class LlamacppModel(
    LanguageCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="llamacpp",
):
    """A GGUF file run by llama.cpp, or by another engine that reads it, in a replica of ours.

    `engine` is `llamacpp`, `openvino` (the extra of that name), or `auto`: what was measured to be
    best here for the model's `slo`, and llama.cpp until then. `cache_type` is what keys and values
    are kept in. `sources` are tried in order, all against `sha256`. `context` is tokens per slot;
    `slots` are answers at once; `queue` is how many may wait; `threads` 0 shares the cores among
    replicas. `tools` says that the model's template offers tools. Tokens that come faster than
    `stream_interval_ms` are sent several at once, 0 sends each alone.

    `task` is what it does: `generate` text, or `embed` or `rerank` texts, of which `context` is the
    longest and `slots` are computed together. `pooling` makes one vector of a text's tokens where
    the file doesn't say how; `dimensions` allows shorter vectors on request.
    """

    sources: list[str]
    sha256: Digest
    size_bytes: Count = 0
    task: Literal["generate", "embed", "rerank"] = "generate"
    pooling: Literal["", "mean", "last", "cls"] = ""
    dimensions: bool = False
    context: Positive = 4096
    slots: Positive = 4
    queue: Count = 64
    threads: Count = 0
    tools: bool = False
    engine: Literal["llamacpp", "openvino", "auto"] = "llamacpp"
    cache_type: Literal["f16", "f32", "q8_0"] = "f16"
    stream_interval_ms: Annotated[float, Meta(ge=0, le=1000)] = 20.0
    load_timeout_s: Seconds = 300.0


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.decision]`: what a score means, given on request as extra outputs.

    `output` names the output that holds scores (empty: the only one of a floating type), `column`
    the one of the class in question. A score of at least `threshold` is decided as `labels[1]`,
    else `labels[0]`. `features` names the columns of the input; `reference` has the value of each
    that stands for an ordinary case: `reasons` tell which features move this score most away from
    where it would be with that value.
    """

    output: str = ""
    column: Count = 1
    threshold: float = 0.5
    labels: tuple[str, str] = ("0", "1")
    features: list[str] = []
    reference: list[float] = []
    reasons: Positive = 3


class OnnxModel(
    LocalCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="onnx",
):
    """An ONNX graph run by onnxruntime in a replica of ours.

    `files` are the model's files by name; `graph` says which of them is the graph. `task` is what
    it serves: `tensors` (its inputs and outputs as they are), `embed` or `rerank` (texts, through
    `tokenizer.json`; `pooling` and `normalize` make one vector of a text's tokens, `max_tokens` is
    the longest text, `dimensions` allows shorter vectors on request). `best_of` names an output of
    which two more are made: `classes`, where its last axis is largest, and `confidence`, how large.
    `providers` are tried in order, by onnxruntime's names or short ones (`cuda`, `tensorrt`,
    `openvino`, `cpu`). `queue` is how many requests may wait, `max_batch` how many rows run as one,
    `threads` 0 shares the cores among replicas. With `parallel_runs`, on processors, each thread
    has a run of its own where many wait; the weights are in memory twice then.
    """

    files: dict[str, File]
    graph: Text = "model.onnx"
    task: Literal["tensors", "embed", "rerank"] = "tensors"
    pooling: Literal["cls", "mean", "none"] = "mean"
    normalize: bool = True
    max_tokens: Positive = 512
    dimensions: bool = False
    best_of: str = ""
    decision: Decision | None = None
    providers: tuple[Text, ...] = ("cpu",)
    max_batch: Positive = 32
    queue: Count = 1024
    threads: Count = 0
    parallel_runs: bool = True
    load_timeout_s: Seconds = 120.0


class PythonModel(
    LocalCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="python",
):
    """Your own class in a process of its own, with `load` and `predict`.

    `files` are its files by name, the code among them; `code` says which file that is and
    `class_name` which class in it. `trusted` must be true: the code does whatever it likes with
    the rights of the server's user.
    """

    files: dict[str, File]
    code: Text = "model.py"
    class_name: Text = "Model"
    trusted: bool = False
    max_batch: Positive = 32
    queue: Count = 1024
    threads: Count = 0
    load_timeout_s: Seconds = 120.0


class PipelineStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[models.NAME.steps]]`: one step, done by a `model` of ours or by a `function`.

    `function` is one of Tiffin's own by name (`ocr.read`), or `FILE.py:NAME` of the pipeline's
    files. `inputs` say for each of its inputs where that comes from: `request.INPUT` or
    `STEP.OUTPUT`, or several of these: those that ran, joined along the first dimension. `when`
    (`STEP.OUTPUT >= 0.5`) runs the step only if it holds for that one value. `options` are a
    function's settings.
    """

    name: Text
    model: str = ""
    function: str = ""
    inputs: dict[TensorName, str | list[str]] = {}
    when: str = ""
    options: dict[str, str | bool | int | float] = {}


class PipelineModel(
    LocalCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="pipeline",
):
    """A small graph of other models and functions, in a process of its own.

    `outputs` say where each output comes from, as a step's `inputs` do. `files` are read by its
    functions; those that are code run only where `trusted` is true. `concurrency` requests are in
    work at once, `queue` more may wait; `parallel` runs of steps go on at once in each.
    `load_timeout_s` covers waiting for its models.
    """

    steps: list[PipelineStep]
    outputs: dict[TensorName, str | list[str]]
    files: dict[str, File] = {}
    trusted: bool = False
    concurrency: Positive = 4
    parallel: Positive = 4
    queue: Count = 64
    threads: Count = 0
    load_timeout_s: Seconds = 600.0


class WhisperModel(
    LocalCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="whisper",
):
    """A Whisper model as CTranslate2 reads it, run by faster-whisper in a replica of ours.

    `files` are its folder's files by name. `precision` is what it computes in; `max_audio_s` the
    longest sound that it takes; `no_speech_threshold` from which probability that nobody speaks,
    as the model says it of a part of a sound, its words there are left out (1: never, OpenAI's own
    is 0.6); `queue` how many requests may wait, as it hears one at a time; `threads` 0 shares the
    cores among replicas.
    """

    files: dict[str, File]
    precision: Literal["int8", "float32"] = "int8"
    max_audio_s: Seconds = 1800.0
    no_speech_threshold: Share = 0.6
    queue: Count = 16
    threads: Count = 0
    load_timeout_s: Seconds = 120.0


class LaunchedModel(
    LanguageCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="launched",
):
    """A language model in an engine that is installed here and that a replica of ours launches.

    `model` is a folder, or a name that the engine finds by itself; or else `files` are the model's
    files by name. `executable` is run instead of the engine's usual one, `args` go after its flags;
    `command` is any program that speaks OpenAI's API, and must be `trusted`. In `args`, `{model}`,
    `{name}`, `{context}`, `{slots}`, `{tensor_parallel}`, `{port}`, `{socket}` and `{key}` are
    filled in. `context` is tokens of prompt and answer, `slots` are answers at once, `queue` may
    wait; `chat` and `tools` say what its template offers; `threads` 0 leaves them to the engine.
    """

    engine: Literal["vllm", "sglang", "tgi", "command"]
    model: str = ""
    files: dict[str, File] = {}
    executable: str = ""
    args: list[str] = []
    tensor_parallel: Positive = 1
    context: Positive = 4096
    slots: Positive = 16
    queue: Count = 256
    chat: bool = True
    tools: bool = False
    trusted: bool = False
    threads: Count = 0
    load_timeout_s: Seconds = 900.0


class AnswerRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[models.NAME.rules]]`: says `answer` to a message with all of these `words` in it."""

    words: Annotated[list[Text], Meta(min_length=1)]
    answer: Text


class RulesModel(
    LanguageCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="rules",
):
    """Answers by rules, at once: the first of `rules` whose words are in the last message, whole
    and in upper or lower case, else `answer`. As the last model of a route it answers where all
    others fail.

    `slots` are answers at once, `queue` may wait; a token is a byte.
    """

    answer: Text
    rules: list[AnswerRule] = []
    context: Positive = 1_048_576
    slots: Positive = 64
    queue: Count = 256
    load_timeout_s: Seconds = 60.0


class EchoModel(
    LanguageCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="echo",
):
    """A deterministic model for tests: it says the last message back, word by word.

    Delays are milliseconds; `fail_after` breaks off after that many words (0: never);
    `fail_load` makes loading fail with this reason; `spin_ms` holds the GIL that long before
    the first word.
    """

    context: Positive = 4096
    slots: Positive = 4
    queue: Count = 64
    tools: bool = False
    load_ms: Milliseconds = 0.0
    prefill_ms: Milliseconds = 0.0
    token_ms: Milliseconds = 0.0
    fail_after: Count = 0
    fail_load: str = ""
    spin_ms: Milliseconds = 0.0
    load_timeout_s: Seconds = 60.0


LocalModel = (
    LlamacppModel
    | OnnxModel
    | PythonModel
    | PipelineModel
    | WhisperModel
    | LaunchedModel
    | RulesModel
    | EchoModel
)
Model = LocalModel | RemoteModel

GGUF = "model.gguf"


def files_of(model: Model) -> dict[str, File]:
    """The files that a model needs here, by the name that its runtime knows them under."""
    match model:
        case LlamacppModel():
            file = File(sources=model.sources, sha256=model.sha256, size_bytes=model.size_bytes)
            return {GGUF: file}
        case OnnxModel() | PythonModel() | PipelineModel() | WhisperModel() | LaunchedModel():
            return model.files
        case _:
            return {}
