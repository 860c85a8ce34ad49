"""Limits and times as they are typed."""

from datetime import UTC, datetime

import pytest
import typer

from tiffin.cli.spellings import given, limits_of, moment_of, path_of, seconds_of

NOW = datetime(2026, 12, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("10s", 10), ("30m", 1800), ("24h", 86_400), ("2d", 172_800)]
)
def test_lengths(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1d", "2026-12-04T00:00:00+00:00"),
        ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00+00:00"),
        ("2027-01-31T18:00:00+05:30", "2027-01-31T18:00:00+05:30"),
    ],
)
def test_moments(text: str, moment: str) -> None:
    assert moment_of(text, NOW) == moment


@pytest.mark.parametrize("text", ["tomorrow", "2027-01-31T18:00:00", "5 weeks"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        moment_of(text, NOW)


def test_limits_are_as_in_the_configuration() -> None:
    assert limits_of("concurrency = 2, burst = 3") == {"concurrency": 2, "burst": 3}
    with pytest.raises(typer.BadParameter):
        limits_of("concurrency: 2")


def test_what_was_not_given_stays_away() -> None:
    assert given(a="", b=None, c=[], d=False, e=0.5) == {"d": False, "e": 0.5}
    assert path_of("tenants", "a b") == "/admin/v1/tenants/a%20b"
