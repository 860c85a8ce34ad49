"""Whisper through faster-whisper and CTranslate2; satisfies `ports.sound_runtime.SoundRuntime`.

Files are read by FFmpeg, which knows formats that lead to other files and to the network. Only
plain containers are allowed here, and no protocol at all.
"""

import asyncio
import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiffin.config.models import WhisperModel
from tiffin.errors import InvalidRequest, LoadFailed, RunFailed, SchemaViolation
from tiffin.types.sound import Hearing, Segment, Transcript

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RATE = 16_000  # samples a second, which is what Whisper hears
MAX_BAD_FRAMES = 100
CONTAINERS = "aac,aiff,caf,flac,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,mpeg,ogg,wav"

# Asked for a temperature of 0, Whisper tries again with more where what it heard looks wrong.
_RISING = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class WhisperRuntime:
    """A model of the files in `files` (by name), which must have a tokenizer among them."""

    def __init__(self, files: Mapping[str, str], model: WhisperModel, threads: int) -> None:
        self._files = dict(files)
        self._settings = model
        self._threads = threads
        self._model: Any = None

    async def load(self) -> None:
        """Make the model ready; raises `LoadFailed`."""
        await asyncio.to_thread(self._load)

    def hear(self, sound: bytes, hearing: Hearing, go_on: Callable[[], bool]) -> Transcript:
        """What is said in a sound file."""
        model = self._model
        if model is None:
            raise RunFailed("the model isn't loaded")
        language = self._language(hearing.language)
        began = time.monotonic_ns()
        samples = read_sound(sound, self._settings.max_audio_s, go_on)
        decode_ns = time.monotonic_ns() - began
        audio_ms = len(samples) * 1000 // RATE
        found = []
        silent = self._settings.no_speech_threshold
        try:
            segments, told = model.transcribe(
                samples,
                language=language,
                initial_prompt=hearing.prompt or None,
                temperature=hearing.temperature or _RISING,
                no_speech_threshold=silent,
            )
            for segment in segments if go_on() else ():
                # The library keeps what the model is sure of, and of "You" in silence it is.
                if segment.no_speech_prob <= silent:
                    found.append(_segment(segment))
                if not go_on():
                    break
        except Exception as error:
            raise RunFailed(f"the model failed on this sound: {error}") from error
        return Transcript(
            language=told.language,
            audio_ms=audio_ms,
            segments=tuple(found),
            decode_ns=decode_ns,
        )

    async def close(self) -> None:
        """Give the model back; idempotent."""
        self._model = None

    def _load(self) -> None:
        try:
            from faster_whisper import WhisperModel as Engine  # type: ignore[import-untyped]
        except ImportError as error:
            raise LoadFailed("runtime whisper needs: pip install 'tiffin[audio]'") from error
        with tempfile.TemporaryDirectory(prefix="tiffin-whisper-") as folder:
            for name, path in self._files.items():
                (Path(folder) / name).symlink_to(path)
            try:
                self._model = Engine(
                    folder,
                    device="cpu",
                    compute_type=self._settings.precision,
                    cpu_threads=self._threads,
                    num_workers=1,
                    local_files_only=True,
                )
            except Exception as error:
                raise LoadFailed(f"CTranslate2 can't load this model: {error}") from error

    def _language(self, asked: str) -> str | None:
        known = set(self._model.supported_languages)
        if asked and asked not in known:
            some = ", ".join(sorted(known)) if len(known) < 20 else f"{len(known)} others"
            raise SchemaViolation(
                f"'language' is '{asked}'; this model knows {some}", param="language"
            )
        return asked or None


def read_sound(sound: bytes, most_s: float, go_on: Callable[[], bool]) -> "NDArray[np.float32]":
    """A file's samples, mono at `RATE`; those so far where `go_on` says to stop.

    Raises `InvalidRequest` where it is no sound, or one of more than `most_s` seconds.
    """
    import numpy as np

    pieces: list[bytes] = []
    size, most = 0, int(most_s * RATE) * 2
    with contextlib.closing(_decoded(sound, most_s)) as decoded:
        for piece in decoded:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise _too_long(most_s)
            if not go_on():
                break
    if not size:
        raise InvalidRequest("the file has no sound in it", param="file")
    samples = np.frombuffer(b"".join(pieces), dtype=np.int16)
    return samples.astype(np.float32) / np.float32(32_768)


def _decoded(sound: bytes, most_s: float) -> Generator[bytes, None, None]:
    """The samples of a file, frame by frame, as 16-bit integers; no frame is over `most_s` long."""
    import av

    allowed = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
    bad = 0
    with contextlib.ExitStack() as held:
        try:
            container = held.enter_context(
                av.open(io.BytesIO(sound), "r", options=allowed, metadata_errors="ignore")
            )
            if not container.streams.audio:
                raise InvalidRequest("the file has no sound in it", param="file")
            resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
            frames = container.decode(audio=0)
            while True:
                try:
                    frame = next(frames, None)
                except av.error.InvalidDataError:
                    bad += 1
                    if bad > MAX_BAD_FRAMES:
                        raise
                    continue
                # A frame may say that each of its samples is a second: that would fill the memory.
                if frame is not None and frame.samples > most_s * frame.sample_rate:
                    raise _too_long(most_s)
                for part in resampler.resample(frame):
                    yield part.to_ndarray().tobytes()
                if frame is None:
                    return
        except (av.error.FFmpegError, ValueError) as error:
            raise InvalidRequest(
                "the file can't be read as a sound: it is corrupt, or of a format that isn't"
                " known here (flac, mp3, mp4, m4a, ogg, wav and webm are)",
                param="file",
            ) from error


def _too_long(most_s: float) -> InvalidRequest:
    return InvalidRequest(f"the sound is longer than {most_s:g} seconds", param="file")


def _segment(found: Any) -> Segment:
    return Segment(
        start_s=round(found.start, 3),
        end_s=round(found.end, 3),
        text=found.text,
        tokens=tuple(found.tokens),
        seek=found.seek,
        temperature=found.temperature or 0.0,
        avg_logprob=found.avg_logprob,
        compression_ratio=found.compression_ratio,
        no_speech_prob=found.no_speech_prob,
    )
