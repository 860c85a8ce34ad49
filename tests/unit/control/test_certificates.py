"""Certificates that end are told of in time."""

import time
from pathlib import Path

import pytest

from tests.certificates import Authority
from tiffin.control.certificates import check_certificates
from tiffin.errors import ConfigInvalid
from tiffin.types.tls import Tls


def tls_for(folder: Path, days: int) -> Tls:
    signed = Authority(folder).sign("server", days=days)
    return Tls(certificate=str(signed.certificate), key_file=str(signed.key))


@pytest.mark.parametrize(
    ("days", "said"), [(13, "it ends at 20"), (-1, "it has ended")], ids=["soon", "ended"]
)
def test_one_that_ends_is_told_of(tmp_path: Path, days: int, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said) as told:
        check_certificates(tls_for(tmp_path, days), time.time())
    assert told.value.where == "server.tls.certificate"


def test_one_that_lasts_is_well(tmp_path: Path) -> None:
    check_certificates(tls_for(tmp_path, 15), time.time())
    check_certificates(Tls(), time.time())
