"""`/v1/audio/transcriptions` as a dialect of the walk: a form with a sound in it.

Of a form the gateway reads the fields. The file's bytes, and the form around them, go on as they
came; only the model's name is exchanged where the target calls it otherwise.
"""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Literal, NamedTuple

import msgspec

from tiffin.dialects.dialect import Extent, Forward, Portion, Told, Whole
from tiffin.dialects.faults import shown
from tiffin.dialects.forms import FormPart, read_form
from tiffin.dialects.openai.parameters import not_supported
from tiffin.dialects.openai.usage import StreamScanner
from tiffin.errors import SchemaViolation, UnknownParameter, UpstreamFailed
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.guard import Piece
from tiffin.types.snapshot import Plan, Target
from tiffin.types.sound import Hearing
from tiffin.types.usage import Usage

PATH = b"/v1/audio/transcriptions"
MAX_NAME = 256
MAX_PROMPT = 4_096
MAX_VALUE = 64

Format = Literal["json", "text", "verbose_json", "srt", "vtt"]
FORMATS: tuple[Format, ...] = ("json", "text", "verbose_json", "srt", "vtt")

_FIELDS = (
    *("file", "model", "language", "prompt", "response_format", "temperature", "stream"),
    "timestamp_granularities[]",
)
# Known fields that ask for what no model here does.
_REFUSED = (
    *("include[]", "chunking_strategy", "keywords[]", "languages[]", "timestamp_granularities"),
    *("known_speaker_names[]", "known_speaker_references[]"),
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}")
_NOTHING = FormPart("", None, 0, 0)


class Asking(NamedTuple):
    """The fields of a form, checked. `file` and `model_at` are where they stand in the body."""

    model: str
    hearing: Hearing
    format: Format
    file: FormPart
    model_at: FormPart


def read_asking(content_type: bytes | None, body: bytes) -> Asking:
    """The fields of a form; raises an `InvalidRequest` that names the one at fault."""
    fields = _Fields(content_type, body)
    file = fields.parts.get("file", _NOTHING)
    if file.filename is None:
        raise SchemaViolation("'file' is required, as a file", param="file")
    if file.start == file.end:
        raise SchemaViolation("'file' is empty", param="file")
    model = fields.text("model", MAX_NAME)
    if not model:
        raise SchemaViolation("'model' is required", param="model")
    wanted = fields.text("response_format")
    if wanted is None:
        wanted = "json"
    if wanted not in FORMATS:
        raise _wrong("response_format", f"one of {', '.join(FORMATS)}", wanted)
    if fields.text("stream") not in (None, "false"):
        raise not_supported("stream")
    granularity = fields.text("timestamp_granularities[]")
    if granularity not in (None, "segment"):
        raise not_supported("timestamp_granularities[]")
    if granularity is not None and wanted != "verbose_json":
        raise SchemaViolation(
            "'timestamp_granularities[]' needs 'response_format': verbose_json",
            param="timestamp_granularities[]",
        )
    language = fields.text("language")
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise _wrong("language", "a language's code, such as en", language)
    hearing = Hearing(
        language=(language or "").lower(),
        prompt=fields.text("prompt", MAX_PROMPT) or "",
        temperature=_temperature(fields.text("temperature")),
    )
    return Asking(model, hearing, wanted, file, fields.parts["model"])


class _Fields:
    """A form's fields by name, each known and given once."""

    def __init__(self, content_type: bytes | None, body: bytes) -> None:
        self._body = body
        self.parts: dict[str, FormPart] = {}
        for part in read_form(content_type, body):
            if part.name in _REFUSED:
                raise not_supported(part.name)
            if part.name not in _FIELDS:
                name = shown(part.name)
                raise UnknownParameter(f"there is no parameter '{name}'", param=name)
            if part.name in self.parts:
                raise SchemaViolation(f"'{part.name}' is given twice", param=part.name)
            self.parts[part.name] = part

    def text(self, name: str, most: int = MAX_VALUE) -> str | None:
        """A field's text of at most so many characters, if it is given."""
        part = self.parts.get(name)
        if part is None:
            return None
        try:
            text = self._body[part.start : min(part.end, part.start + 4 * most + 4)].decode()
        except UnicodeDecodeError:
            raise SchemaViolation(
                f"'{name}' is not UTF-8, or has over {most} characters", param=name
            ) from None
        if len(text) > most:
            raise SchemaViolation(f"'{name}' may have at most {most} characters", param=name)
        return text


def _temperature(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and 0 <= value <= 1):
        raise _wrong("temperature", "a number from 0 to 1", text)
    return value


def _wrong(name: str, expected: str, found: str) -> SchemaViolation:
    return SchemaViolation(f"'{name}' must be {expected}, not '{shown(found)}'", param=name)


def read_transcription(exchange: Exchange, body: bytes) -> "TranscriptionAsked":
    """The request that a form spells; raises `InvalidRequest`."""
    content_type = exchange.header(b"content-type") or b""
    return TranscriptionAsked(read_asking(content_type, body), content_type, body)


class _Length(msgspec.Struct):
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class _Reply(msgspec.Struct):
    text: str
    usage: _Length | None = None
    duration: float | None = None


_REPLIES = msgspec.json.Decoder(_Reply)


class TranscriptionAsked:
    """One request for a transcript; satisfies `dialects.dialect.Asked`."""

    timeout_s = 0.0
    batch = False
    leaves_prefix = False
    offers_tools = False
    end_user = ""

    def __init__(self, asking: Asking, content_type: bytes, body: bytes) -> None:
        self._asking = asking
        self._content = b"content-type: %b\r\n" % content_type
        self._body = body
        self.operation = "transcription"
        self.model = asking.model
        self.streaming = False
        self.cached_as = ""

    def check(self, plan: Plan) -> None:
        """Its fields say all."""

    def pieces(self) -> Iterator[Piece]:
        """The prompt; and a sound, which can't be looked into."""
        if self._asking.hearing.prompt:
            yield Piece("prompt", self._asking.hearing.prompt)
        yield Piece("file", None)

    def extent(self) -> Extent:
        """A sound, of which nothing is known before it is heard."""
        return Extent(answer_tokens=None)

    def portions(self) -> Iterator[Portion]:
        """The sound."""
        file = self._asking.file
        yield Portion("files", "file", 1)
        yield Portion("file_bytes", "file", file.end - file.start)

    def shorten(self, tokens: int) -> None:
        """A transcript is as long as what was said."""

    def canonical(self) -> bytes:
        """The form as it came."""
        return self._body

    def forward(self, target: Target) -> Forward:
        """The form, with the target's name for the model."""
        remote = target.kind == "remote"
        name = target.upstream_model or target.model
        body, at = self._body, self._asking.model_at
        if name != self.model:
            body = b"%b%b%b" % (body[: at.start], name.encode(), body[at.end :])
        return Forward(PATH.removeprefix(b"/v1") if remote else PATH, self._content, body)

    def whole(self, told: Told, target: Target) -> Whole:
        """The transcript as it came."""
        usage = told.usage
        if self._is_json:
            reported = self._reported(told.body)
            usage = usage or reported
        headers: Headers = [(b"content-type", told.content_type or b"text/plain")]
        return Whole(headers, told.body, usage or Usage(measured=False))

    def reading(self, target: Target) -> StreamScanner:
        """Never asked for: there are no streams of this."""
        return StreamScanner()

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """All that was heard."""
        if self._is_json:
            return _REPLIES.decode(body).text
        return body.decode()

    @property
    def _is_json(self) -> bool:
        return self._asking.format in ("json", "verbose_json")

    def _reported(self, body: bytes) -> Usage:
        try:
            reply = _REPLIES.decode(body)
        except msgspec.DecodeError as error:
            raise UpstreamFailed("the answer is no transcript") from error
        length = reply.usage or _Length()
        seconds = length.seconds or reply.duration or 0.0
        measured = reply.usage is not None or reply.duration is not None
        return Usage(
            audio_ms=max(0, round(seconds * 1000)),
            prompt_tokens=max(0, length.input_tokens),
            completion_tokens=max(0, length.output_tokens),
            measured=measured,
        )
