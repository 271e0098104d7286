"""Small talk to the assistant, as opposed to questions to the documents: greetings, thanks, sums, talk about
the assistant, and requests about the conversation.

By rule, in both languages, without a model: a text counts only if phrases of talk.toml cover all of it. The
rest, which nobody wrote down, is judged from the question's own vector: one linear model says whether a text
is talk at all, and one per kind which it is. It is fitted by scripts/training/talk.py for the bundled
embedding and shipped as data; other embeddings have none, and phrases alone decide.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from core.memory.statements import is_introduction
from core.relevance.amounts import amounts
from core.relevance.features import Matrix
from core.relevance.names import identifiers
from core.relevance.query import own_words, wording
from core.relevance.sparse import CACHED_TEXTS, folded
from core.text import fold_width, standard

MAX_TALK_CHARS = 120  # longer texts have content
# A passage this probable answers what only sounds like talk; for real talk the best has .1, once .2.
ANSWERS_TALK = 0.2


class Talk(StrEnum):
    """If a text has several kinds, the later one here counts (hello, and thanks!)."""

    CLOSING = "closing"
    GREETING = "greeting"
    INTRODUCTION = "introduction"  # what the asker says about themselves
    THANKS = "thanks"
    ASSISTANT = "assistant"
    PRIVATE = "private"  # who sees the conversation, and whether it is stored
    TODAY = "today"
    REPEAT = "repeat"
    CERTAIN = "certain"
    SIMPLER = "simpler"
    REWORDED = "reworded"
    SHORTER = "shorter"
    TRANSLATED = "translated"
    SOURCES = "sources"
    SUMMARY = "summary"
    QUESTIONS = "questions"
    ARITHMETIC = "arithmetic"

    @property
    def needs_answer(self) -> bool:
        """Whether it asks for something to be done with an answer. Without one, its words are searched."""
        return self in (
            Talk.SIMPLER,
            Talk.REWORDED,
            Talk.SHORTER,
            Talk.TRANSLATED,
            Talk.SOURCES,
            Talk.SUMMARY,
        )

    @property
    def is_about_conversation(self) -> bool:
        return self.needs_answer or self in (Talk.REPEAT, Talk.CERTAIN, Talk.QUESTIONS)

    @property
    def is_polite(self) -> bool:
        return self in (Talk.CLOSING, Talk.GREETING, Talk.THANKS)


@lru_cache(maxsize=CACHED_TEXTS)  # takes 0.3 ms, and each turn asks it of the last few questions
def talk_of(text: str) -> Talk | None:
    """Return the kind of talk that all of `text` is; None for a question, and whenever that is uncertain."""
    if len(text) > MAX_TALK_CHARS:
        return None
    if _is_sum(text):
        return Talk.ARITHMETIC
    spoken = _normalised(text)
    if _ASKS.search(text) and wording("objects").fullmatch(spoken):
        return Talk.CERTAIN
    if not spoken:
        return Talk.CLOSING if _SMILEY.search(text) else None
    table = _table()
    standing = table.linked(spoken)
    kinds = [kind for kind, phrases in table.kinds.items() if standing and _is_covered(standing, phrases)]
    if not kinds or (kinds[-1] is Talk.CLOSING and _ASKS.search(text)):  # "hm?" asks for more
        return Talk.INTRODUCTION if is_introduction(text) else None
    return None if kinds[-1].needs_answer and (asks_how(text) or asks_whether(text)) else kinds[-1]


def asks_how(text: str) -> bool:
    """Whether it asks how something is done, or about answers in general, without addressing the assistant
    ("how do I make answers shorter?"): the documents may say so, whatever the last answer was."""
    plain = fold_width(text)
    asks = wording("how").search(plain) or wording("answers").search(plain)
    return bool(asks and not wording("you").search(plain))


def asks_whether(text: str) -> bool:
    """Whether it asks what is possible, allowed or charged ("can I delete a single answer?"), without
    addressing the assistant: the documents may say so."""
    plain = fold_width(text)
    return bool(wording("allowed").search(plain) and not wording("you").search(plain))


def is_about_languages(text: str, before: Sequence[str]) -> bool:
    """Whether it names a language and little else ("and in English?") after a question, small talk skipped,
    that is about languages, too: then it asks about that language, not for a translation."""
    named = _table().language
    if len(text) > MAX_TALK_CHARS or not wording("bare_language").match(named.sub("@", _normalised(text))):
        return False
    asked = next((_normalised(each) for each in reversed(before) if talk_of(each) is None), "")
    return bool(named.search(asked) or wording("languages").search(asked))


_APOSTROPHE = re.compile("['’‘´`]")
_NON_WORD = re.compile(r"[\W_]+")
_REPEATED_LETTERS = re.compile(r"([^\W\d])\1{2,}")
_BESIDE_CHINESE = re.compile("(?<=[一-鿿]) +| +(?=[一-鿿])")
_ASKS = re.compile("[?？]")
_SMILEY = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]|[:;]-?[)(DP]")


def _normalised(text: str) -> str:
    """Normalise: lower case without punctuation, no space beside a Chinese character, hellooo as helloo;
    standard Chinese in simplified characters."""
    plain = _NON_WORD.sub(" ", _APOSTROPHE.sub("", folded(standard(text)).lower()))
    return _BESIDE_CHINESE.sub("", _REPEATED_LETTERS.sub(r"\1\1", plain)).strip()


@dataclass(frozen=True, slots=True)
class _Phrases:
    """The phrases that express a kind of talk, and all that may occur with them."""

    says: frozenset[str]
    all: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Table:
    """The phrases by kind; the phrases of any kind, and their lengths by first character."""

    kinds: Mapping[Talk, _Phrases]
    any: frozenset[str]
    lengths: Mapping[str, list[int]]
    language: re.Pattern[str]

    def standing(self, spoken: str) -> Standing:
        return [list(self._at(spoken, at)) for at in range(len(spoken))]

    def linked(self, spoken: str) -> Standing:
        """Return the phrases that begin the text or follow another of these; nothing if they do not reach its
        end, as in most questions."""
        reached, standing = {0}, list[list[tuple[int, str]]]()
        for at in range(len(spoken)):
            standing.append(list(self._at(spoken, at)) if at in reached else [])
            reached.update(end for end, _ in standing[-1])
        return standing if len(spoken) in reached else []

    def _at(self, spoken: str, at: int) -> Iterator[tuple[int, str]]:
        if at and _cuts_word(spoken, at):
            return
        for length in self.lengths.get(spoken[at], ()):
            phrase, end = spoken[at : at + length], at + length
            if end <= len(spoken) and phrase in self.any and not _cuts_word(spoken, end):
                yield end + (spoken[end : end + 1] == " "), phrase


Standing = Sequence[Sequence[tuple[int, str]]]
"""By index in a text, the phrases of any kind that begin there, each as (its end, with a space after it;
phrase): searched once for all kinds."""


def _cuts_word(spoken: str, end: int) -> bool:
    return spoken[end - 1 : end + 1].isascii() and spoken[end - 1 : end + 1].isalnum() and end < len(spoken)


def _is_covered(standing: Standing, phrases: _Phrases) -> bool:
    """Whether phrases cover it completely, at least one of which expresses the kind."""
    reached = {(0, False)}
    for at, here in enumerate(standing):
        for is_named in (False, True):
            if (at, is_named) in reached:
                reached.update(
                    (end, is_named or phrase in phrases.says) for end, phrase in here if phrase in phrases.all
                )
    return (len(standing), True) in reached


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a text phrases cover, 0…1, each the best of all kinds: any phrases of a kind, those that
    express it, and the product of both in one kind."""

    any: float
    says: float
    both: float


def coverage(text: str) -> Coverage:
    spoken = _normalised(text[:MAX_TALK_CHARS])
    if not spoken:
        return Coverage(0.0, 0.0, 0.0)
    table = _table()
    standing = table.standing(spoken)
    # questions to the documents often ask about today, too
    kinds = [phrases for kind, phrases in table.kinds.items() if kind is not Talk.TODAY]
    shares = [_covered(standing, phrases) for phrases in kinds]
    return Coverage(
        max(every for every, _ in shares),
        max(says for _, says in shares),
        max(every * says for every, says in shares),
    )


def _covered(standing: Standing, phrases: _Phrases) -> tuple[float, float]:
    """Return the largest share of characters that non-overlapping phrases cover: all, and those that express
    the kind."""
    length = len(standing)
    most, saying = [0] * (length + 1), [0] * (length + 1)
    for at, here in enumerate(standing):
        most[at + 1] = max(most[at], most[at + 1])
        saying[at + 1] = max(saying[at], saying[at + 1])
        for end, phrase in here:
            if phrase in phrases.all:
                most[end] = max(most[end], most[at] + end - at)
                saying[end] = max(saying[end], saying[at] + (end - at if phrase in phrases.says else 0))
    return most[-1] / length, saying[-1] / length


@lru_cache(maxsize=1)
def _table() -> _Table:
    """About 22,000 short strings, built in 30 ms when the first text is judged."""
    read = tomllib.loads(folded(files("core.relevance").joinpath("talk.toml").read_text(encoding="utf-8")))
    words = {name: tuple(_split(text)) for name, text in read["words"].items()}
    weightless = {phrase for text in read["weightless"].values() for phrase in _expanded(text, words)}
    for polite in (Talk.GREETING, Talk.THANKS, Talk.CLOSING):
        weightless.update(*(_expanded(text, words) for text in read[polite]["says"].values()))
    kinds = {kind: _of_kind(read[kind], weightless, words) for kind in Talk if kind in read}
    phrases = frozenset[str]().union(*(kind.all for kind in kinds.values()))
    lengths: dict[str, set[int]] = {}
    for phrase in phrases:
        lengths.setdefault(phrase[0], set()).add(len(phrase))
    language = re.compile(rf"\b(?:{'|'.join(words['language'])})\b|{'|'.join(words['yuyan'])}")
    return _Table(kinds, phrases, {first: sorted(each) for first, each in lengths.items()}, language)


def _of_kind(
    table: Mapping[str, Any], weightless: set[str], words: Mapping[str, tuple[str, ...]]
) -> _Phrases:
    says = frozenset(phrase for text in table["says"].values() for phrase in _expanded(text, words))
    beside = {phrase for text in table.get("beside", {}).values() for phrase in _expanded(text, words)}
    return _Phrases(says, says | beside | weightless)


def _split(text: str) -> Iterator[str]:
    for line in text.strip().splitlines():
        yield from filter(None, map(str.strip, line.split("|")))


_SLOT = re.compile(r"\{(\w+)\}")


def _expanded(text: str, words: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield each phrase once per word that its slots stand for."""
    for phrase in _split(text):
        slot = _SLOT.search(phrase)
        if slot is None:
            yield phrase
        else:
            for word in words[slot[1]]:
                yield from _expanded(f"{phrase[: slot.start()]}{word}{phrase[slot.end() :]}", words)


# Sums: numbers and operators, with no other words than those that ask for a result.

_NUMBER = r"\d[\d,]*(?:\.\d+)?\s*[%万亿千百]?"
_OPERATOR = (
    r"[-+*/x×÷^]|\*\*|加上?|减去?|乘以?|除以|除|plus|minus|times|multiplied by|divided by|to the power of"
    r"|(?:is |as )?(?:what )?percent(?:age)? of|of|的|and|和|与|,"
)
_SUM = re.compile(rf"{_NUMBER}(?:\s*[()]*\s*(?:{_OPERATOR})\s*[()]*\s*[-+]?{_NUMBER})+")
_POWER = re.compile(
    rf"(?:square root of|cube root of|sqrt|根号)\s*\(?{_NUMBER}\)?"
    rf"|(?:half(?: of)?|double|twice)\s*{_NUMBER}|{_NUMBER}\s*的?一半"
    rf"|{_NUMBER}\s*(?:squared|cubed|的?(?:平方根?|立方根?)|!|factorial)"
)
_DATE = re.compile(r"(?:19|20)\d\d[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:19|20)?\d\d")

_ASKS_EN = (
    "what is whats s the result of how much are does make equal equals to calculate compute work out solve "
    "evaluate add up sum please can could you tell me hey quick and for answer it hi thanks pls now do math"
)


def _is_sum(text: str) -> bool:
    plain = fold_width(text).lower()
    if not wording("operates").search(plain) or _DATE.search(plain):
        return False
    rest, sums = _SUM.subn(" ", _POWER.sub(" = ", plain))
    if not sums and "=" not in rest:
        return False
    left = _NON_WORD.sub(" ", wording("asks_sum_zh").sub(" ", rest)).split()
    return all(f" {word} " in f" {_ASKS_EN} " for word in left)


FEATURES = ("chars", "own_words", "identifier", "asks", "digit", "covered", "says", "says_covered")
_DIGIT = re.compile(r"\d")
UNLIKE_ALL = -0.7  # minimum score of the best kind; all 1,078 known phrases of talk have more


def text_features(text: str) -> list[float]:
    """Return what the vector does not show, in the order of FEATURES."""
    return [*_plain_features(text), *_phrase_features(text)]


def _plain_features(text: str) -> list[float]:
    return [
        min(len(text), MAX_TALK_CHARS) / 40,
        own_words(text) ** 0.5,
        float(bool(identifiers(text))),
        float(bool(_ASKS.search(text))),
        float(bool(_DIGIT.search(text))),
    ]


def _phrase_features(text: str) -> list[float]:
    """Return features of 0…1 each; a thousand times as expensive as the others."""
    covered = coverage(text)
    return [covered.any, covered.says, covered.both]


@dataclass(frozen=True, slots=True)
class TalkModel:
    """`weights` of the vector's numbers, then of FEATURES, unscaled. `kinds` has a row of vector weights for
    each of `names`, and `offsets` its intercept. `margin`: a lower score is a question; `lead`: a kind with a
    smaller lead over the next is uncertain."""

    margin: float
    intercept: float
    weights: Matrix
    names: tuple[Talk, ...]
    offsets: Matrix
    kinds: Matrix
    lead: float

    def is_talk(self, text: str, vector: Sequence[float]) -> bool:
        """Whether its logit reaches the margin; phrases are searched for only if they can decide."""
        row = np.concatenate([np.asarray(vector, dtype=float), _plain_features(text)])
        missing = self.margin - self.intercept - float(row @ self.weights[: len(row)])
        by_phrases = self.weights[len(row) :]
        if missing > by_phrases.clip(min=0).sum():
            return False
        return float(by_phrases @ _phrase_features(text)) >= missing

    def nearest(self, text: str, vector: Sequence[float]) -> Talk | None:
        """Return the kind, given that it is talk; None if it resembles none of them, or asks something its
        likeliest kind does not. If uncertain, a kind that is answered with what the assistant can do."""
        scores: npt.NDArray[np.float64] = self.offsets + self.kinds @ np.asarray(vector, dtype=float)
        second, best = np.argsort(scores)[-2:]
        kind = self.names[int(best)]
        if scores[best] < UNLIKE_ALL or _is_ruled_out(kind, text):
            return None
        if scores[best] - scores[second] >= self.lead:
            return kind
        return Talk.REWORDED if kind.is_about_conversation else Talk.ASSISTANT

    def talk_of(self, text: str, vector: Sequence[float], *, has_answer: bool) -> Talk | None:
        """Return None for a question, and whenever uncertain. A request about the conversation counts only if
        it has an answer to refer to."""
        text = standard(text)
        if len(text) > MAX_TALK_CHARS or wording("others").search(text):
            return None
        if asks_how(text) or asks_whether(text) or _measures(text) or not self.is_talk(text, vector):
            return None
        kind = self.nearest(text, vector)
        return None if kind and kind.is_about_conversation and not has_answer else kind


def _is_ruled_out(kind: Talk, text: str) -> bool:
    """Whether the text rules the kind out: sums have numbers; greetings and the like ask for nothing; a
    statement with a number ("we are 12 people") is a circumstance, unless it is about the conversation."""
    numbers = (wording("number") if kind is Talk.ARITHMETIC else _DIGIT).search(text)
    if kind is Talk.ARITHMETIC and not numbers:
        return True
    if numbers and wording("states").search(text) and not wording("operates").search(text):
        return not kind.is_about_conversation
    return kind in (Talk.GREETING, Talk.THANKS, Talk.CLOSING) and bool(wording("asks_for").search(text))


def _measures(text: str) -> bool:
    """Whether it gives an amount (20 kg dog) without addressing the assistant: the documents may say for
    which amounts something applies."""
    plain = fold_width(text)
    return bool(amounts(plain) and not wording("you").search(plain))


@lru_cache(maxsize=4)
def load_talk_model(embedding: str) -> TalkModel | None:
    """Return None for an embedding without a fitted model. Source: core/relevance/coefficients/talk-*.json,
    where a kind's vector is in multiples of its `unit`."""
    name = f"talk-{embedding.replace('/', '_')}.json"
    source = files("core.relevance").joinpath("coefficients", name)
    if not source.is_file():
        return None
    read = json.loads(source.read_text(encoding="utf-8"))
    kinds = read["kinds"]
    return TalkModel(
        margin=float(read["margin"]),
        lead=float(read["lead"]),
        intercept=float(read["intercept"]),
        weights=np.array([*read["vector"], *(read["features"][name] for name in FEATURES)]),
        names=tuple(map(Talk, kinds)),
        offsets=np.array([kind["intercept"] for kind in kinds.values()]),
        kinds=np.array([np.array(kind["vector"]) * kind["unit"] for kind in kinds.values()]),
    )
