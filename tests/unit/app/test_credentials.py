"""Credentials that follow their files, and stay where these can't be used."""

from pathlib import Path

import msgspec
import pytest

from tests.certificates import Authority, Signed
from tiffin.app.credentials import AGAIN_AFTER_S, PortCredentials
from tiffin.errors import ConfigInvalid
from tiffin.types.tls import Tls


class Scene:
    """Credentials of one certificate, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.authority = Authority(folder)
        self.signed = self.authority.sign("server")
        self.shown = folder / "shown.pem"
        self.tls = tls_of(self.signed)
        self.kept = PortCredentials(self.tls, self.shown, lambda: self.now_s)


def tls_of(signed: Signed) -> Tls:
    return Tls(certificate=str(signed.certificate), key_file=str(signed.key))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_files_that_are_others_are_read_again(scene: Scene) -> None:
    assert await scene.kept.look() is None
    scene.authority.renew(scene.signed)
    fresh = await scene.kept.look()
    assert fresh is not None
    assert fresh is scene.kept.current
    assert scene.shown.read_bytes() == scene.signed.certificate.read_bytes()
    assert scene.shown.stat().st_mode & 0o077 == 0
    assert await scene.kept.look() is None


async def test_what_cannot_be_used_changes_nothing_and_is_tried_again(scene: Scene) -> None:
    before = scene.kept.current
    key = scene.signed.key.read_text()
    scene.signed.key.write_text("x")
    assert await scene.kept.look() is None
    assert "server.tls.key_file" in scene.kept.fault
    assert scene.kept.current is before
    scene.now_s += AGAIN_AFTER_S
    assert await scene.kept.look() is None
    scene.signed.key.write_text(key)
    assert await scene.kept.look() is None, "it is the same as before"
    assert scene.kept.fault == ""


async def test_a_key_from_a_program_comes_with_the_next_certificate(scene: Scene) -> None:
    asked = Tls(certificate=scene.tls.certificate, key_command=["/bin/cat", scene.tls.key_file])
    kept = PortCredentials(asked, scene.shown, lambda: scene.now_s)
    scene.authority.renew(scene.signed)
    fresh = await kept.look()
    assert fresh is not None
    assert fresh.key == scene.signed.key.read_bytes()


async def test_the_configuration_in_force_says_where_files_are_but_not_whom_to_ask(
    scene: Scene,
) -> None:
    signed = scene.authority.sign("other")
    other = tls_of(signed)
    strict = msgspec.structs.replace(other, client="required", client_ca=str(scene.authority.path))
    fresh = await scene.kept.look(strict)
    assert fresh is not None
    assert fresh.certificate == signed.certificate.read_bytes()
    assert fresh.client == "none"
    assert await scene.kept.look(Tls()) is None, "TLS that was switched off stays until the end"


def test_what_cannot_be_read_at_first_is_refused(scene: Scene) -> None:
    scene.signed.certificate.unlink()
    with pytest.raises(ConfigInvalid, match=r"server\.tls\.certificate"):
        PortCredentials(scene.tls, scene.shown)
