"""A stop text ends an answer wherever pieces fall, and nothing else is lost or delayed for ever."""

from hypothesis import given
from hypothesis import strategies as st

from tiffin.adapters.runtimes.stops import Stops

LETTERS = st.text(alphabet="ab ", max_size=6)
STOPS = st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), max_size=3)


@given(pieces=st.lists(LETTERS, max_size=12), stops=STOPS)
def test_what_is_shown_is_the_text_up_to_the_first_stop(
    pieces: list[str], stops: list[str]
) -> None:
    reader = Stops(stops)
    shown, read = "", ""
    for piece in pieces:
        read += piece
        shown += reader.read(piece)
        assert read.startswith(shown)
        if reader.found:
            break
    if reader.found:
        assert any(read[len(shown) :].startswith(stop) for stop in stops)
        assert not any(stop in shown for stop in stops)
    else:
        assert shown + reader.end() == "".join(pieces)
        assert not any(stop in read for stop in stops)


def test_the_beginning_of_a_stop_waits() -> None:
    reader = Stops(["END"])
    assert reader.read("the E") == "the "
    assert reader.read("N") == ""
    assert reader.read("ough") == "ENough"
    assert not reader.found
