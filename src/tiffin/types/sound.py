"""What is asked of a sound, and what was heard in it."""

import msgspec


class Hearing(msgspec.Struct, frozen=True, kw_only=True):
    """How a sound is to be heard. An empty `language` leaves it to the model."""

    language: str = ""
    prompt: str = ""
    temperature: float = 0.0


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of speech; times are seconds from the sound's start."""

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...] = ()
    seek: int = 0
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_prob: float = 0.0


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was heard. `audio_ms` is the sound's length, `decode_ns` what reading its file took."""

    language: str
    audio_ms: int
    segments: tuple[Segment, ...] = ()
    decode_ns: int = 0

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "".join(segment.text for segment in self.segments).strip()
