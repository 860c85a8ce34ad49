"""Transcription forms: what is read, what is refused, what goes on, and the five formats."""

from typing import Any

import msgspec
import pytest

from tests.unit.dialects.test_forms import TYPE
from tiffin.dialects.dialect import Told
from tiffin.dialects.openai.transcriptions import TranscriptionAsked, read_transcription
from tiffin.dialects.openai.transcripts import rendered
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Target
from tiffin.types.sound import Segment, Transcript
from tiffin.types.usage import Usage

SOUND = b"RIFF\r\n--not a boundary\x00\xff"
LOCAL = Target(model="m", revision="r", kind="whisper", sockets=("s",))
CLOUD = Target(model="m", revision="r", kind="remote", upstream_model="whisper-1")
HEARD = Transcript(
    language="en",
    audio_ms=3_723_456,
    segments=(
        Segment(start_s=0.0, end_s=1.5, text=" Hello."),
        Segment(start_s=3661.25, end_s=3723.456, text=" World.", tokens=(1, 2)),
    ),
)


def form(*fields: tuple[str, bytes], file: bytes | None = SOUND) -> bytes:
    parts = [
        b'--B\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value)
        for name, value in fields
    ]
    if file is not None:
        head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        parts.append(head + file + b"\r\n")
    return b"".join(parts) + b"--B--\r\n"


def ask(*fields: tuple[str, bytes], file: bytes | None = SOUND) -> TranscriptionAsked:
    body = form(*fields, file=file)
    exchange = FakeExchange(b"POST", b"/", headers=[(b"content-type", TYPE)], body=body)
    return read_transcription(exchange, body)


MODEL = ("model", b"m")


def test_a_form_goes_on_unchanged() -> None:
    fields = (MODEL, ("language", b"EN"), ("temperature", b"0.5"), ("prompt", "नमस्ते".encode()))
    asked = ask(*fields, ("response_format", b"srt"), ("stream", b"false"))
    assert (asked.model, asked.operation, asked.streaming) == ("m", "transcription", False)
    path, headers, body = asked.forward(LOCAL)
    assert path == b"/v1/audio/transcriptions"
    assert headers == b"content-type: %b\r\n" % TYPE
    assert body == form(*fields, ("response_format", b"srt"), ("stream", b"false"))
    assert [(piece.param, piece.text) for piece in asked.pieces()] == [
        ("prompt", "नमस्ते"),
        ("file", None),
    ]


def test_only_the_models_name_changes_for_an_upstream() -> None:
    path, _, body = ask(MODEL, ("language", b"en")).forward(CLOUD)
    assert path == b"/audio/transcriptions"
    assert body == form(("model", b"whisper-1"), ("language", b"en"))


@pytest.mark.parametrize(
    ("fields", "slug", "param"),
    [
        ([], "invalid_value", "model"),
        ([("model", b"")], "invalid_value", "model"),
        ([MODEL, MODEL], "invalid_value", "model"),
        ([MODEL, ("file", b"x")], "invalid_value", "file"),
        ([("model", b"\xff")], "invalid_value", "model"),
        ([("model", b"m" * 300)], "invalid_value", "model"),
        ([MODEL, ("lang", b"en")], "unknown_parameter", "lang"),
        ([MODEL, ("language", b"en-US")], "invalid_value", "language"),
        ([MODEL, ("response_format", b"xml")], "invalid_value", "response_format"),
        ([MODEL, ("temperature", b"2")], "invalid_value", "temperature"),
        ([MODEL, ("temperature", b"nan")], "invalid_value", "temperature"),
        ([MODEL, ("temperature", b"hot")], "invalid_value", "temperature"),
        ([MODEL, ("prompt", b"x" * 20_000)], "invalid_value", "prompt"),
        ([MODEL, ("stream", b"true")], "unsupported_parameter", "stream"),
        ([MODEL, ("include[]", b"logprobs")], "unsupported_parameter", "include[]"),
        ([MODEL, ("chunking_strategy", b"auto")], "unsupported_parameter", "chunking_strategy"),
        (
            [MODEL, ("timestamp_granularities[]", b"word")],
            "unsupported_parameter",
            "timestamp_granularities[]",
        ),
        (
            [MODEL, ("timestamp_granularities[]", b"segment")],
            "invalid_value",
            "timestamp_granularities[]",
        ),
    ],
)
def test_refused_by_name(fields: list[tuple[str, bytes]], slug: str, param: str) -> None:
    with pytest.raises(TiffinError) as refused:
        ask(*fields)
    assert (refused.value.slug, refused.value.param) == (slug, param)
    assert f"'{param}'" in refused.value.message


@pytest.mark.parametrize("file", [None, b""], ids=["none", "empty"])
def test_a_file_is_needed(file: bytes | None) -> None:
    with pytest.raises(TiffinError) as refused:
        ask(MODEL, file=file)
    assert refused.value.param == "file"


def test_a_text_isnt_a_file() -> None:
    with pytest.raises(TiffinError, match="as a file"):
        ask(MODEL, ("file", b"x"), file=None)


def test_a_replicas_word_on_usage_counts() -> None:
    told = Told(b'{"text":"hi"}', b"application/json", usage=Usage(audio_ms=5))
    whole = ask(MODEL).whole(told, LOCAL)
    assert whole.usage.audio_ms == 5
    assert whole.headers == [(b"content-type", b"application/json")]
    assert ask(MODEL).answer_text(whole.body) == "hi"


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"text": "a", "usage": {"type": "duration", "seconds": 2}}, Usage(audio_ms=2000)),
        ({"text": "a", "duration": 1.5}, Usage(audio_ms=1500)),
        (
            {"text": "a", "usage": {"type": "tokens", "input_tokens": 3, "output_tokens": 4}},
            Usage(prompt_tokens=3, completion_tokens=4),
        ),
        ({"text": "a"}, Usage(measured=False)),
    ],
)
def test_an_upstreams_usage_is_read(reply: dict[str, Any], usage: Usage) -> None:
    told = Told(msgspec.json.encode(reply), b"application/json")
    assert ask(MODEL).whole(told, CLOUD).usage == usage


def test_text_has_no_usage_to_read() -> None:
    told = Told(b"hello\n", b"text/plain")
    whole = ask(MODEL, ("response_format", b"text")).whole(told, CLOUD)
    assert (whole.body, whole.usage.measured) == (b"hello\n", False)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"text":1}'])
def test_what_is_no_transcript_is_the_upstreams_failure(body: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        ask(MODEL).whole(Told(body, b"application/json"), CLOUD)


def test_json_and_verbose_json() -> None:
    _, body = rendered(HEARD, "json")
    assert msgspec.json.decode(body) == {
        "text": "Hello. World.",
        "usage": {"type": "duration", "seconds": 3724},
    }
    kind, body = rendered(HEARD, "verbose_json")
    verbose = msgspec.json.decode(body)
    assert kind == b"application/json"
    assert (verbose["language"], verbose["duration"]) == ("en", 3723.456)
    assert verbose["segments"][1]["tokens"] == [1, 2]


def test_subtitles() -> None:
    assert rendered(HEARD, "text")[1] == b"Hello. World.\n"
    assert rendered(HEARD, "srt")[1].decode() == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:01:01,250 --> 01:02:03,456\nWorld.\n"
    )
    assert rendered(HEARD, "vtt")[1].decode() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n01:01:01.250 --> 01:02:03.456\nWorld.\n"
    )
