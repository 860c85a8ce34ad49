"""Whatever is done to an audit log's lines afterwards is found."""

from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.audit.chain import (
    BROKEN,
    Entry,
    Finding,
    Head,
    digest,
    linked,
    verify,
)

Log = tuple[list[bytes], Head]


def log_of(actions: list[str]) -> Log:
    """A log as control writes one, without newlines, and where it ends."""
    lines, head = [], Head()
    for action in actions:
        entry = Entry(n=head.n + 1, at_ns=1, by="t/k", action=action, prev=head.hash)
        line, head = linked(entry)
        lines.append(line[:-1])
    return lines, head


logs = st.lists(st.sampled_from(["key.create", "key.revoke", "x", BROKEN + "?"]), min_size=1).map(
    log_of
)


@given(logs)
def test_a_log_as_it_was_written_is_intact(log: Log) -> None:
    lines, head = log
    verdict = verify(lines, head)
    assert (verdict.intact, verdict.lines, verdict.head) == (True, len(lines), head)


@given(logs, st.data())
def test_any_byte_that_was_changed_is_found(log: Log, data: st.DataObject) -> None:
    lines, head = log
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != lines[at][place]))
    lines[at] = lines[at][:place] + bytes([other]) + lines[at][place + 1 :]
    assert not verify(lines, head).intact


@given(logs, st.data())
def test_any_line_that_is_gone_is_found(log: Log, data: st.DataObject) -> None:
    lines, head = log
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    assert not verify(lines[:start] + lines[end:], head).intact


@given(st.integers(2, 20).map(lambda n: log_of(["x"] * n)), st.data())
def test_any_other_order_is_found(log: Log, data: st.DataObject) -> None:
    lines, head = log
    order = data.draw(st.permutations(range(len(lines))).filter(lambda o: o != sorted(o)))
    assert not verify([lines[at] for at in order], head).intact


@given(logs, st.data())
def test_a_line_that_is_made_up_is_found(log: Log, data: st.DataObject) -> None:
    """Even with its hash made anew: the next line, or the head, has the old one."""
    lines, head = log
    at = data.draw(st.integers(0, len(lines) - 1))
    prev = lines[at - 1][:64].decode() if at else Head().hash
    forged, _ = linked(Entry(n=at + 1, at_ns=2, by="t/k", action="forged", prev=prev))
    lines[at] = forged[:-1]
    assert not verify(lines, head).intact


@given(logs, st.data())
def test_a_head_that_was_noted_earlier_catches_who_writes_all_anew(
    log: Log, data: st.DataObject
) -> None:
    lines, _ = log
    noted = data.draw(st.integers(1, len(lines)))
    earlier = Head(n=noted, hash=lines[noted - 1][:64].decode())
    assert verify(lines, earlier).intact
    anew, head = log_of(["other"] * len(lines))
    assert verify(anew, head).intact
    assert not verify(anew, head, earlier).intact


def test_findings_say_where() -> None:
    lines, head = log_of(["a", "b", "c", "d"])
    verdict = verify([lines[0], lines[2], lines[3]], head)
    assert verdict.findings == [
        Finding(line=2, problem="entry 2 is missing before it, 3 stands here")
    ]
    assert verify(lines[:2], head).findings == [
        Finding(line=0, problem="it ends with entry 2, and there were 4")
    ]


def test_what_control_found_at_its_start_stays_a_finding() -> None:
    lines, _ = log_of(["a"])
    line, head = linked(
        Entry(n=2, at_ns=1, by="control", action=BROKEN, what="9 abc", prev=lines[0][:64].decode())
    )
    [finding] = verify([*lines, line[:-1]], head).findings
    assert "9 abc" in finding.problem


def test_digests_tell_states_apart_whatever_their_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1})
