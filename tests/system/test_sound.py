"""OpenAI's unmodified client and a real Whisper model through the whole of Tiffin."""

import io
import random
import subprocess
import wave
from collections.abc import Iterator
from math import pi, sin
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI

from tests.real_sounds import SAID, speech, whisper_files
from tests.system.server import KEY, Server, until
from tiffin.serving.sound import silence

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("sound")]


def section() -> str:
    files = "".join(
        f'[models.listen.files."{name}"]\nsources = ["file:{path}"]\nsha256 = "{path.name}"\n'
        for name, path in whisper_files().items()
    )
    return f'[models.listen]\nruntime = "whisper"\nmax_audio_s = 20\nthreads = 1\n{files}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sound"), section())
    try:
        server.start()
        server.until_ready("listen", within_s=60)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(api_key=KEY, base_url=f"{server.status().address}/v1", max_retries=3) as client:
        yield client


def words(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalpha() or c == " ").strip()


def tone(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        samples = (int(9_000 * sin(2 * pi * 440 * n / 8_000)) for n in range(int(8_000 * seconds)))
        sound.writeframes(b"".join(n.to_bytes(2, "little", signed=True) for n in samples))
    return file.getvalue()


def test_speech_becomes_text(server: Server, client: OpenAI) -> None:
    heard = client.audio.transcriptions.create(
        model="listen", file=("beckett.wav", speech()), language="en"
    )
    assert words(heard.text) == SAID
    entry = until(lambda: next((e for e in server.accounts() if e["audio_ms"] == 9963), None))
    assert (entry["endpoint"], entry["outcome"]) == ("transcriptions", "ok")


@pytest.mark.parametrize("seconds", [1, 5, 18])
def test_silence_has_no_words(client: OpenAI, seconds: int) -> None:
    file = ("silence.wav", silence(seconds))
    heard = client.audio.transcriptions.create(
        model="listen", file=file, language="en", response_format="verbose_json"
    )
    assert heard.text == ""
    assert not heard.segments
    assert heard.duration == pytest.approx(seconds, abs=0.1)


def test_segments_and_subtitles(client: OpenAI) -> None:
    file = ("beckett.wav", speech())
    verbose = client.audio.transcriptions.create(
        model="listen", file=file, response_format="verbose_json"
    )
    assert verbose.segments
    assert 9 < verbose.duration < 10
    assert all(0 <= segment.start <= segment.end <= 10 for segment in verbose.segments)
    subtitles = client.audio.transcriptions.create(model="listen", file=file, response_format="srt")
    assert str(subtitles).startswith("1\n00:00:00,000 --> 00:00:")


def test_curl_sends_a_form(server: Server, tmp_path: Path) -> None:
    (tmp_path / "hush.wav").write_bytes(tone(0.3))
    done = subprocess.run(
        [
            *("curl", "-s", f"{server.status().address}/v1/audio/transcriptions"),
            *("-H", f"Authorization: Bearer {KEY}", "-F", "model=listen"),
            *("-F", f"file=@{tmp_path / 'hush.wav'}", "-F", "response_format=text"),
            *("-F", "temperature=0.1"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stdout.startswith("{")


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///dev/zero\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"RIFF of nonsense" * 100, "can't be read as a sound"),
        (PLAYLIST, "can't be read as a sound"),
        (tone(21), "longer than 20 seconds"),
    ],
    ids=["noise", "a playlist", "too long"],
)
def test_what_is_no_sound_is_refused(client: OpenAI, content: bytes, says: str) -> None:
    with pytest.raises(openai.BadRequestError, match=says) as refused:
        client.audio.transcriptions.create(model="listen", file=("a.wav", content))
    assert refused.value.param == "file"


def noise(seconds: int) -> bytes:
    """What Whisper tries again and again to hear something in."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8_000)
        sound.writeframes(random.Random(1).randbytes(8_000 * seconds))
    return file.getvalue()


def test_a_client_that_leaves_frees_the_model(server: Server, client: OpenAI) -> None:
    form = {"data": {"model": "listen"}, "files": {"file": ("noise.wav", noise(19))}}
    with pytest.raises(httpx.ReadTimeout):
        server.http.post("/v1/audio/transcriptions", **form, timeout=0.3)  # type: ignore[arg-type]
    left = until(lambda: next((e for e in server.accounts() if e["outcome"] == "cancelled"), None))
    assert left["model"] == "listen"
    heard = client.audio.transcriptions.create(model="listen", file=("a.wav", speech()))
    assert words(heard.text) == SAID
    until(lambda: server.in_flight() == 0)


def test_what_the_model_cant_do_is_refused_by_name(server: Server, client: OpenAI) -> None:
    file = ("a.wav", tone(0.1))
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model="listen", file=file, language="hi")
    assert refused.value.param == "language"
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model="listen", file=file, include=["logprobs"])
    assert refused.value.param == "include[]"
    assert server.chat("listen").status_code == 400
