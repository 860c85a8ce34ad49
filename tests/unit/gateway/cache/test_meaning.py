"""What is taken for the same question, and what never is."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.app.pairs import Pair, sample_pairs
from tiffin.gateway.cache.wording import language as lists
from tiffin.gateway.cache.wording.language import WORDS, ways, words_of
from tiffin.gateway.cache.wording.meaning import meaning_of, opposed, same

LANGUAGES = ("bn", "en", "hi", "hinglish", "mr", "ta")
RECALL = {"bn": 0.9, "en": 0.65, "hi": 0.8, "hinglish": 0.8, "mr": 0.8, "ta": 0.9}

ALIKE = """
turn on the light | turn off the light
Turn the light on | Turn the light off
How do I say hello in Hindi? | How do I say thanks in Hindi?
How do you say please? | How do you say?
Why A fails and how B works | How A fails and why B works
Can Ravi tell me how to sing? | How can Ravi tell me to sing?
Can a customer refund a merchant? | Can a merchant refund a customer?
How do I pay you? | How do I get you to pay me?
Deliver to US | deliver to us
Is IT down? | Is it down?
Don't stop the server | Stop the server
Don't stop | Don't, stop
No, delete it | No delete it
What is 5 - 3? | What is 5 + 3?
What is -5 squared? | What is 5 squared?
Is 3.10 newer than 3.9? | Is 3.1 newer than 3.9?
How do I sort in C? | How do I sort in C++?
How do I disable auto-renew? | How do I enable auto-renew?
How many grams in 5 kg? | How many kg in 5 grams?
What does `x = 1` do? | What does `x == 1` do?
Mail a@b.com | Mail a@c.com
Open https://a.in/x | Open https://a.in/y
How do I download 5 Mb files? | How do I download 5 MB files?
What is m? | What is M?
Was my order cancelled? | Is my order cancelled?
I cancel my order | I cancelled my order
Delete my file | Delete my files
a few options | few options
Only I can see it | I can only see it
How to open a closed door | How to close an open door
What's my balance? | What's balance?
Is my balance low? | My balance is low
Who paid me? | Who did I pay?
Does A cause B? | Does B cause A?
Increase my limit by 10% | Increase my limit to 10%
Send 500 to Ravi from Meena | Send 500 to Meena from Ravi
Explain how to sing, not dance | Explain how to dance, not sing
help me write a poem about rain | how do I write a poem about rain
What is the cost of goods sold? | What is the price of goods sold?
How do I reach the station? | How do I contact the station?
How do I make money? | How do I create money?
Where is my loan application? | Where is my loan app?
When does the exam start? | What time does the exam start?
Can we bring two bags? | Can I bring two bags?
What is the deadline? | What is a deadline?
Who is a president? | Who is the president?
A number of users failed | The number of users failed
Where is Town Hall? | Where is City Hall?
Is Bill there? | Is the invoice there?
What is big data? | What is large data?
How to cancel? I want to keep my points. | How to keep my points? I want to cancel.
मेरा ऑर्डर चालू करो | मेरा ऑर्डर बंद करो
राम ने सीता को पैसे कैसे भेजे? | सीता ने राम को पैसे कैसे भेजे?
क्या मैं दवा खा सकता हूँ? | क्या मैं दवा नहीं खा सकता हूँ?
५ किलो चावल की कीमत क्या है? | ६ किलो चावल की कीमत क्या है?
mera main account band kaise kare | mera account band kaise kare
sirf mera order cancel karo | mera order cancel karo
मी फोन चालू कसा करू? | मी फोन बंद कसा करू?
আমি কীভাবে ফোন চালু করব? | আমি কীভাবে ফোন বন্ধ করব?
போனை எப்படி ஆன் செய்வது? | போனை எப்படி ஆஃப் செய்வது?
"""
EQUAL = """
How do I reset my Gmail password? | can you tell me how to reset my gmail password
How do I turn on the WiFi? | how to switch on the wifi
What's the cost of 1,00,000 units? | what is the cost of 100000 units
How do I boil two eggs? | how to boil 2 eggs
How can I cancel my order, please? | Hi! How do I cancel my order?
५ किलो चावल की कीमत क्या है? | 5 किलो चावल की कीमत कितनी है
apna order kese cancel karun | apna order cancel kaise kare?
"""


def lines(text: str) -> list[tuple[str, str]]:
    return [tuple(line.split(" | ", 1)) for line in text.strip().splitlines()]  # type: ignore[misc]


def are_same(a: str, b: str) -> bool:
    one, other = meaning_of(a), meaning_of(b)
    return one is not None and other is not None and same(one, other)


@pytest.mark.parametrize(("a", "b"), lines(ALIKE))
def test_what_only_looks_alike_isnt_the_same(a: str, b: str) -> None:
    assert not are_same(a, b)


@pytest.mark.parametrize(("a", "b"), lines(EQUAL))
def test_another_wording_is_the_same(a: str, b: str) -> None:
    assert are_same(a, b)


@pytest.mark.parametrize("language", LANGUAGES)
def test_of_all_pairs_none_that_differs_is_taken_for_the_same(language: str) -> None:
    """As if all of them had the very same vector."""
    pairs = sample_pairs(language)
    alike = [pair for pair in pairs if pair.same]
    near = [pair for pair in pairs if not pair.same]
    assert (len(alike) >= 150, len(near) >= 300) == (True, True)
    assert {"negation", "polarity", "number", "unit", "date", "name", "entity", "scope"} <= {
        pair.kind for pair in near
    }
    assert [pair for pair in near if are_same(pair.a, pair.b)] == []
    recall = sum(are_same(pair.a, pair.b) for pair in alike) / len(alike)
    assert recall >= RECALL[language]


def test_pairs_are_in_the_language_that_they_say() -> None:
    told: Counter[tuple[str, str]] = Counter()
    for pair in sample_pairs():
        for text in (pair.a, pair.b):
            meaning = meaning_of(text)
            told[pair.language, meaning.language if meaning else ""] += 1
    for (said, found), count in told.items():
        assert said == found or count < 20, (said, found, count)


@pytest.mark.parametrize("path", sorted(WORDS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_list_never_makes_opposites_the_same(path: Path) -> None:
    words = words_of(path)
    sides: dict[str, set[str]] = {}
    for word, side in lists._poles(words):
        sides.setdefault(word, set()).add(side)
    for line in [*words.same, *(line for said in words.intents.values() for line in said)]:
        said = [frozenset().union(*(sides.get(w, ()) for w in way.split())) for way in ways(line)]
        assert not any(opposed(one, other) for one in said for other in said), line
        turned = {sum(w in words.negations for w in way.split()) for way in ways(line)}
        assert len(turned) == 1 or line in words.intents["how"], line


@pytest.mark.parametrize("path", sorted(WORDS.glob("*.toml")), ids=lambda path: path.stem)
def test_a_way_of_saying_stands_for_one_thing(path: Path) -> None:
    words = words_of(path)
    said = Counter((one.head, one.tail) for one in lists._patterns(words))
    assert [ways for ways, count in said.items() if count > 1] == []


@pytest.mark.parametrize(
    "text",
    ["", "?", "how do I", "x" * 401, "word " * 49, "Wie geht es", "你好吗", "Как дела", "123"],
    ids=lambda text: text[:12],
)
def test_what_cant_be_told_has_no_meaning(text: str) -> None:
    assert meaning_of(text) is None


SWAPS = st.sampled_from(["not", "only", "7", "tomorrow", "Ravi", "without", "off", "$5", "`x`"])
QUESTIONS = st.sampled_from([pair for pair in sample_pairs("en") if pair.same])


@given(pair=QUESTIONS, word=SWAPS, at=st.integers(0, 12))
def test_one_word_more_is_another_question(pair: Pair, word: str, at: int) -> None:
    words = pair.b.split()
    words.insert(min(at, len(words)), word)
    assert not are_same(pair.b, " ".join(words))


@given(pair=QUESTIONS, data=st.data())
def test_a_name_or_number_changed_is_another_question(pair: Pair, data: st.DataObject) -> None:
    words = pair.a.split()
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] = data.draw(st.sampled_from(["Zanzibar", "90210", "2031-01-01"]))
    assert not are_same(pair.a, " ".join(words))


@given(text=st.text(max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    meaning = meaning_of(text)
    assert meaning is None or same(meaning, meaning)
