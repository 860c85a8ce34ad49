"""Requests as the terminal shows them."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from tiffin.cli.connect import Unreachable
from tiffin.cli.requests_lines import show_request, show_requests
from tiffin.errors import NotFound
from tiffin.ports.accounts import Entry

ATTEMPTS = (
    b'[{"n":1,"target":"big","started_ns":1000000,"ended_ns":21000000,"status":503,'
    b'"error":"overloaded","placed":""},'
    b'{"n":2,"target":"small","started_ns":30000000,"ended_ns":90000000,"status":200}]'
)
NOTHING: dict[str, Any] = {
    name: 0 if kind is int else "" for name, kind in Entry.__annotations__.items()
}


def entry(seq: int, **more: Any) -> dict[str, Any]:
    told = NOTHING | {
        "seq": seq,
        "id": f"req_{seq}",
        "tenant": "acme",
        "key": "web",
        "attempts": [],
    }
    told |= {"outcome": "ok", "status": 200, "model": "chat", "measured": True, "endpoint": "chat"}
    return told | more


class Admin:
    """Answers as the admin API does, at most two entries at once; ends at Ctrl-C."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = list(entries)
        self.coming: list[dict[str, Any] | Exception] = []

    def __call__(self, path: str) -> dict[str, Any]:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if "after" in asked and "before" not in asked:
            if not self.coming:
                raise KeyboardInterrupt
            new = self.coming.pop(0)
            if isinstance(new, Exception):
                raise new
            self.entries += [new, entry(new["seq"] + 1), entry(new["seq"] + 2)]
        after, before = int(asked.get("after", 0)), int(asked.get("before", 99))
        found = [one for one in self.entries if after < one["seq"] < before]
        if "id" in asked:
            found = [one for one in found if one["id"] == asked["id"]]
        return {"data": found[::-1][:2], "has_more": len(found) > 2}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiffin.cli.requests_lines.FOLLOW_EVERY_S", 0)


def test_the_newest_are_last_and_what_clients_said_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = entry(
        1, outcome="failed", error="run_failed", key="we\x1b[2Jb", duration_ns=25 * 10**6
    )
    paid = entry(2, prompt_tokens=3, completion_tokens=4, cost_pico=25 * 10**10, currency="INR")
    show_requests({}, 20, Admin(failed, paid), follow=False, as_json=False)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "ended"
    assert first.split()[1:] == [
        "failed",
        "acme/we?[2Jb",
        *["chat", "run_failed", "25", "ms", "-", "-", "-", "req_1"],
    ]
    assert second.split()[-7:] == ["-", "3", "→", "4", "0.2500", "INR", "req_2"]


def test_following_shows_each_once_and_outlives_a_restart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = Admin(entry(1))
    admin.coming = [entry(2), Unreachable("it starts anew"), entry(5)]
    with pytest.raises(KeyboardInterrupt):
        show_requests({"tenant": "acme"}, 20, admin, follow=True, as_json=True)
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line)["seq"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]


def test_one_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    tries = msgspec.json.decode(ATTEMPTS)
    one = entry(1, attempts=tries, duration_ns=95 * 10**6, ttft_ns=40 * 10**6, queue_ns=10**6)
    one |= {"retried_ns": 2 * 10**7, "cache": "miss", "tag": "nightly", "prompt_tokens": 7}
    show_request("req_1", Admin(one), as_json=False)
    told = capsys.readouterr().out
    for line in (
        "by acme/web for chat",
        "tag      nightly",
        "outcome  ok, 200",
        "95 ms: 40 ms until the first of the answer, 1.0 ms waiting for a slot, 20 ms in tries",
        "used     7 tokens in",
        "try 1    big: overloaded (503) after 20 ms, begun at 1.0 ms",
        "try 2    small: answered (200) after 60 ms, begun at 30 ms",
    ):
        assert line in told, told


def test_one_that_isnt_there_says_where_to_look() -> None:
    with pytest.raises(NotFound, match=r"no request 'req_9'.*tiffin requests list"):
        show_request("req_9", Admin(), as_json=False)
