"""Reading sound files: every usual format, nothing that leads elsewhere, no crash on any bytes."""

import contextlib
import io
import random
import resource
import struct
import sys
import wave
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.errors import InvalidRequest, LoadFailed

av = pytest.importorskip("av")
np = pytest.importorskip("numpy")

from tiffin.adapters.runtimes.whisper import RATE, WhisperRuntime, read_sound  # noqa: E402
from tiffin.config.models import WhisperModel  # noqa: E402

SECONDS = 1.5


def always() -> bool:
    return True


def wav(seconds: float = SECONDS, rate: int = 44_100, channels: int = 2) -> bytes:
    file = io.BytesIO()
    moments = np.arange(int(seconds * rate)) / rate
    samples = (8_000 * np.sin(2 * np.pi * 440 * moments)).astype("<i2")
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(np.repeat(samples, channels).tobytes())
    return file.getvalue()


def encoded(container: str, codec: str, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out, av.open(io.BytesIO(wav())) as source:
        stream = out.add_stream(codec, rate=rate)
        resampler = av.AudioResampler(
            format=stream.format.name, layout=stream.layout.name, rate=stream.rate
        )
        for frame in [*source.decode(audio=0), None]:
            for part in resampler.resample(frame):
                out.mux(stream.encode(part))
        out.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    "make",
    [
        wav,
        lambda: wav(rate=8_000, channels=1),
        lambda: encoded("flac", "flac"),
        lambda: encoded("mp3", "libmp3lame"),
        lambda: encoded("mp4", "aac"),
        lambda: encoded("webm", "libopus", 48_000),
        lambda: encoded("ogg", "libopus", 48_000),
    ],
    ids=["wav", "telephone", "flac", "mp3", "mp4", "webm", "ogg"],
)
def test_every_usual_format_is_read(make: Callable[[], bytes]) -> None:
    samples = read_sound(make(), 10, always)
    assert samples.dtype == np.float32
    assert abs(len(samples) / RATE - SECONDS) < 0.1
    middle = samples[len(samples) // 4 : len(samples) // 2]
    assert 0.1 < float(np.sqrt((middle**2).mean())) < 0.25
    spectrum = np.abs(np.fft.rfft(middle))
    assert abs(float(spectrum.argmax()) * RATE / len(middle) - 440) < 5


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:%b\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense" * 100,
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        PLAYLIST % b"/dev/zero",
        b"ffconcat version 1.0\nfile '/dev/zero'\n",
        b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'></MPD>",
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nm=audio 9 RTP/AVP 0\r\n",
    ],
    ids=["nonsense", "picture", "playlist", "concat", "dash", "session"],
)
def test_what_is_no_sound_or_leads_elsewhere_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="can't be read as a sound") as refused:
        read_sound(body, 10, always)
    assert refused.value.param == "file"


def test_a_sound_without_samples_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        read_sound(wav(0), 10, always)


def test_what_is_too_long_is_refused_before_it_is_read_to_the_end() -> None:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return True

    with pytest.raises(InvalidRequest, match="longer than 2 seconds"):
        read_sound(encoded_silence(600), 2, count)
    assert 0 < steps < 600


def encoded_silence(seconds: int) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="flac") as out:
        stream = out.add_stream("flac", rate=8_000)
        stream.layout = "mono"
        for _ in range(seconds):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 8_000), "int16"), "s16", "mono")
            frame.rate = 8_000
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


def test_reading_stops_when_nobody_wants_it() -> None:
    assert len(read_sound(wav(30), 60, lambda: False)) < RATE


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_damaged_file_is_read_or_refused(seed: int, count: int) -> None:
    chance = random.Random(seed)
    body = bytearray(FLAC)
    for _ in range(count):
        body[chance.randrange(len(body))] = chance.randrange(256)
    with contextlib.suppress(InvalidRequest):
        read_sound(bytes(body[: chance.randrange(1, len(body) + 1)]), 10, always)


FLAC = encoded("flac", "flac")


async def test_without_its_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(LoadFailed, match=r"tiffin\[audio\]"):
        await WhisperRuntime({}, WhisperModel(files={}), 1).load()


def slow_sound(samples: int) -> bytes:
    """A Matroska file with one frame of so many samples, of which each is a second."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("pcm_s16le", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, samples), np.int16), "s16", "mono")
        frame.sample_rate, frame.pts = RATE, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])
    told = b"\xb5\x88" + struct.pack(">d", RATE)
    assert file.getvalue().count(told) == 1
    return file.getvalue().replace(told, b"\xb5\x88" + struct.pack(">d", 1))


def test_a_frame_that_says_to_be_hours_long_is_refused_before_it_fills_the_memory() -> None:
    sound = slow_sound(10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidRequest, match="longer than 10 seconds"):
        read_sound(sound, 10, always)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
