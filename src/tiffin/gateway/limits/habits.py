"""What requests of a tenant to a model usually come to, learnt from those that were: for estimates.

Everything is a mean that forgets and how far single ones are off it, as TCP estimates round trips
(RFC 6298): what is expected is the mean and twice that. A tenant's own requests alone teach it, so
that nobody sees in its limits what others ask for.
"""

from collections import OrderedDict

from tiffin.types.usage import Usage

MAX_HABITS = 10_000
WEIGHT = 1 / 8
# Before anything was seen: a token has about three bytes, with what is JSON around the text; an
# answer is a few hundred tokens, work takes about a second.
TOKENS_A_BYTE = 1 / 3
AROUND_TOKENS = 8
ANSWER_TOKENS = 512
DEVICE_NS = 10**9
# What is seen beyond that is taken for that: one odd answer, or an upstream that claims anything,
# may not make everything look unaffordable.
MOST_TOKENS_A_BYTE = 2.0
MOST_ANSWER_TOKENS = 100_000
MOST_DEVICE_NS = 600 * 10**9


class Usual:
    """One number: what it usually is at most."""

    __slots__ = ("_mean", "_off", "_seen")

    def __init__(self, first: float) -> None:
        self._mean = first
        self._off = 0.0
        self._seen = False

    def learn(self, value: float) -> None:
        """See one."""
        if not self._seen:
            self._seen, self._mean, self._off = True, value, value / 2
            return
        self._off += WEIGHT * (abs(value - self._mean) - self._off)
        self._mean += WEIGHT * (value - self._mean)

    def most(self) -> float:
        """What few are above."""
        return self._mean + 2 * self._off


class Habit:
    """One tenant's requests of one kind to one model."""

    __slots__ = ("_answer", "_audio_ms", "_device_ns", "_pages", "_tokens_a_byte")

    def __init__(self) -> None:
        self._tokens_a_byte = Usual(TOKENS_A_BYTE)
        self._answer = Usual(ANSWER_TOKENS)
        self._device_ns = Usual(DEVICE_NS)
        self._pages = Usual(1)
        self._audio_ms = Usual(0)

    def prompt(self, size: int) -> int:
        """How many tokens a body of `size` bytes probably has."""
        return int(size * self._tokens_a_byte.most()) + AROUND_TOKENS

    def answer(self) -> int:
        """How many tokens an answer probably has."""
        return int(self._answer.most())

    def pages(self) -> int:
        """How many pages a document probably has."""
        return int(self._pages.most())

    def expected(self, prompt: int, answer: int, pages: int, rows: int) -> Usage:
        """A use of so much, with what else it takes."""
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=answer,
            pages=pages,
            rows=rows,
            device_ns=int(self._device_ns.most()),
            audio_ms=int(self._audio_ms.most()),
            measured=False,
        )

    def learn(self, size: int, usage: Usage) -> None:
        """See what a body of `size` bytes used."""
        tokens_a_byte = max(0, usage.prompt_tokens) / max(size, 1)
        self._tokens_a_byte.learn(min(tokens_a_byte, MOST_TOKENS_A_BYTE))
        self._answer.learn(min(max(0, usage.completion_tokens), MOST_ANSWER_TOKENS))
        self._device_ns.learn(min(max(0, usage.device_ns), MOST_DEVICE_NS))
        if usage.pages:
            self._pages.learn(usage.pages)
        if usage.audio_ms:
            self._audio_ms.learn(usage.audio_ms)


class Habits:
    """Those of all tenants and models; where there are too many, the oldest unused is forgotten."""

    def __init__(self, most: int = MAX_HABITS) -> None:
        self._most = most
        self._habits: OrderedDict[tuple[str, str, str], Habit] = OrderedDict()

    def of(self, tenant: str, model: str, operation: str) -> Habit:
        """One tenant's with one model, of one kind."""
        key = (tenant, model, operation)
        habit = self._habits.get(key)
        if habit is None:
            if len(self._habits) >= self._most:
                self._habits.popitem(last=False)
            habit = self._habits[key] = Habit()
        else:
            self._habits.move_to_end(key)
        return habit
