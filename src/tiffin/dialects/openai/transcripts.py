"""Transcripts as the five formats of `/v1/audio/transcriptions`."""

from typing import Any, Final

import msgspec

from tiffin.dialects.openai.transcriptions import Format
from tiffin.types.sound import Segment, Transcript

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
VTT: Final = b"text/vtt; charset=utf-8"


def rendered(transcript: Transcript, wanted: Format) -> tuple[bytes, bytes]:
    """The content type and the body."""
    if wanted == "text":
        return TEXT, transcript.text.encode() + b"\n"
    if wanted == "srt":
        cues = [
            f"{number}\n{_span(segment, ',')}\n{segment.text.strip()}\n"
            for number, segment in enumerate(transcript.segments, start=1)
        ]
        return TEXT, "\n".join(cues).encode()
    if wanted == "vtt":
        cues = [
            f"{_span(segment, '.')}\n{segment.text.strip()}\n" for segment in transcript.segments
        ]
        return VTT, "\n".join(["WEBVTT\n", *cues]).encode()
    usage = {"type": "duration", "seconds": -(-transcript.audio_ms // 1000)}
    answer: dict[str, Any] = {"text": transcript.text, "usage": usage}
    if wanted == "verbose_json":
        answer = {
            "task": "transcribe",
            "language": transcript.language,
            "duration": transcript.audio_ms / 1000,
            "segments": [
                _segment(number, segment) for number, segment in enumerate(transcript.segments)
            ],
            **answer,
        }
    return JSON, msgspec.json.encode(answer)


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _span(segment: Segment, point: str) -> str:
    return f"{_moment(segment.start_s, point)} --> {_moment(segment.end_s, point)}"


def _moment(seconds: float, point: str) -> str:
    whole, thousandths = divmod(max(0, round(seconds * 1000)), 1000)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}{point}{thousandths:03}"
