"""A question in the forms it is searched with, how far it depends on earlier questions, and the fusion of the
rankings of its forms."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import chain

import numpy as np
import numpy.typing as npt

from core.knowledge import Chunk
from core.relevance.amounts import AMOUNT, in_arabic
from core.relevance.meaning import QuestionTokens
from core.relevance.sparse import MIN_WORD_WEIGHT, SparseTerms, is_cjk, presence, question_terms
from core.text import fold_width, is_mostly_chinese, language_in, standard

Vector = npt.NDArray[np.float32]

MAX_FORM_CHARS = 600  # a longer question stands alone
MAX_CONTEXT_CHARS = 300  # of earlier questions: their subject; a pasted log would delay everybody
# About a model's window; a longer text would be truncated, or cost seconds and retrieve nothing better.
EMBEDDED_QUESTION_CHARS = 1_600
EMBEDDED_CHINESE_CHARS = 500
# How far the joined forms are trusted beside the question: a quarter each if it seems to stand alone, fully
# if it is surely a follow-up. Tuned on conversations: with .25…1 the first 20 candidates hold .707 and .948
# of the relevant passages (MTRAG, MTRAG-UN), without joined forms .668 and .909, with 1 always .668 and .936.
MIN_TRUST = 0.25
CERTAIN_FOLLOW_UP = 1.0
LIKELY_FOLLOW_UP = 0.5
POSSIBLE_FOLLOW_UP = 0.25
# The question's share in the vectors that stand for joined forms. Chosen on MTRAG-UN (nDCG@10 .828; the
# embedded texts .830, both 1 .823) and confirmed on a third of MTRAG (.448; .442 and .450).
SHARE_BESIDE_ONLY = 3.0  # the only joined form, trusted twice: an unrelated question must not draw it away
SHARE_BESIDE_LAST = 0.9
SHARE_BESIDE_ALL = 0.4
FEW_WORDS = 1.5  # of its own meaning: with no more, a question cannot be searched alone
MAY_LEAN_WORDS = 2.4  # for a follow-up: "how far apart?" says little, but does not refer back
MAX_TEXT_CHARS = 8_000  # of a passage, in which a question's subject is looked for
MAX_FOLLOWING = 6  # sentences after a question or a colon
MANY_WORDS = 5.0  # so many make a topic, whatever word refers back


# Compiled at import: it takes 10 ms, which no question should wait for.
_TEXT = files("core.relevance").joinpath("wordings.toml").read_text(encoding="utf-8")
_WORDINGS = {name: re.compile("".join(each), re.IGNORECASE) for name, each in tomllib.loads(_TEXT).items()}


def wording(name: str) -> re.Pattern[str]:
    """Return one of the patterns of wordings.toml."""
    return _WORDINGS[name]


def meant(question: str, before: Sequence[str], answer: str = "") -> tuple[str, list[str]]:
    """Return the question as meant, and the earlier ones (oldest first), in standard words. A correction
    (不是年假，是事假; sick leave, not annual leave) becomes the question before with the denied words
    replaced, or just the corrected words if only the last `answer` has the denied ones."""
    asked: list[str] = []
    for number, text in enumerate([*before, question]):
        _append_question(standard(text), asked, answer if number == len(before) else "")
    return asked[-1], asked[:-1]


def _append_question(text: str, asked: list[str], answer: str) -> None:
    """Append the question, or merge it into the last one as a correction."""
    match = None
    if asked and len(text) <= MAX_CONTEXT_CHARS:
        match = wording("denied_zh").search(text) or wording("denied_en").search(text)
    if match is None:
        asked.append(text)
        return
    named = {name.rstrip("23"): each.strip() for name, each in match.groupdict().items() if each}
    whole_word = r"\b" if named["denied"].isascii() else ""
    denied = re.compile(f"{whole_word}{re.escape(named['denied'])}{whole_word}", re.IGNORECASE)
    if denied.search(asked[-1]) and not wording("interrogative_zh").search(named["meant"]):
        asked[-1] = denied.sub(lambda _: named["meant"], asked[-1])
    else:
        asked.append(named["meant"] if denied.search(f"{asked[-1]}\n{answer}") else text)


def embedded_part(text: str) -> str:
    """Return as much of a question as is embedded."""
    return text[: EMBEDDED_CHINESE_CHARS if is_mostly_chinese(text) else EMBEDDED_QUESTION_CHARS]


def joined_wordings(question: str, before: Sequence[str]) -> list[tuple[str, float]]:
    """Join the question with the previous one and with all of them, each form with its weight.

    After one question there is one such form, trusted as much as two. None for a question long enough to
    stand alone.
    """
    if not before or len(question) > MAX_FORM_CHARS:
        return []
    trust = MIN_TRUST + (1.0 - MIN_TRUST) * follow_up_weight(question)
    # the question comes last: limit the rest, as a model reads only so far
    last, every = before[-1][-MAX_CONTEXT_CHARS:], " ".join(before)[-MAX_CONTEXT_CHARS:]
    if len(before) == 1:
        return [(f"{last} {question}", min(1.0, 2 * trust))]
    return [(f"{last} {question}", trust), (f"{every} {question}", trust)]


def joined_vectors(question: Vector, before: Sequence[Vector]) -> list[Vector]:
    """Approximate the vectors of `joined_wordings` without embedding their texts: the question's vector mixed
    with the previous question's and, if there are more, with the mean of all earlier ones. Unit vectors.

    Not for follow-ups, which lose by it (MTRAG-UN's .731 → .685).
    """
    if len(before) == 1:
        return [_between(question, SHARE_BESIDE_ONLY, before[0])]
    return [
        _between(question, SHARE_BESIDE_LAST, before[-1]),
        _between(question, SHARE_BESIDE_ALL, np.mean(before, axis=0)),
    ]


def _between(question: Vector, share: float, other: Vector) -> Vector:
    """Mix two vectors; if they are opposite and leave no direction, return the question's."""
    length = np.linalg.norm(other)
    joined = share * question + (other / length if length else other)
    length = np.linalg.norm(joined)
    return joined / length if length else question


@lru_cache(maxsize=64)  # called about ten times per turn
def follow_up_weight(question: str) -> float:
    """Return how far the question depends on earlier ones: 0 stands alone, 1 is surely a follow-up.

    With next to no words of its own it depends entirely; one that refers back (它, 那…呢, its, what about)
    depends the less, the more words it has.
    """
    if len(question) > MAX_FORM_CHARS:
        return 0.0
    own = own_words(AMOUNT.sub(" ", in_arabic(fold_width(question))))  # 20 公斤的狗 names no new subject
    if own <= FEW_WORDS:
        return CERTAIN_FOLLOW_UP
    if not _points_back(question):
        return 0.0
    return LIKELY_FOLLOW_UP if own < MANY_WORDS else POSSIBLE_FOLLOW_UP


def names_subject(question: str) -> bool:
    """Whether it may name a subject of its own: it has a word to search for, and does not refer back."""
    return own_words(question) >= 1.0 and not _points_back(question)


def _points_back(question: str) -> bool:
    if wording("points_back_zh").search(question) or wording("points_back_en").search(question):
        return True
    return bool(wording("ends_with_ne").search(question)) and not wording("interrogative_zh").search(question)


def own_words(question: str) -> float:
    """Return how many words of its own meaning the question has; bigrams across words do not count."""
    return sum(
        term.weight for term in question_terms(question) if term.weight >= 0.3 or not is_cjk(term.text)
    )


@dataclass(frozen=True, slots=True)
class QueryForm:
    """One wording of the question. `weight` says how far its lists are trusted, 0…1.

    `dense` is held until the turn is stored: as an array it takes four bytes per number, as a list 32.
    """

    text: str
    dense: Sequence[float]
    sparse: SparseTerms
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """The question and all forms that are searched together.

    `forms[0]` is the question as asked, with its year if known; the next are joined with the previous
    question, and with all of `previous` (earlier questions, oldest first). `last_answer` is the answer to the
    last of them. `asked` is when it was asked (ISO 8601: a day, a month or a year; "" if no time is
    preferred), `dates` are those that it names. `tokens` are those of the question or, for a follow-up, of
    the form joined with the previous one; None if the embedding exposes none.
    """

    question: str
    forms: tuple[QueryForm, ...]
    previous: tuple[str, ...] = ()
    last_answer: str = ""
    asked: str = ""
    dates: tuple[str, ...] = ()
    tokens: QuestionTokens | None = None

    @property
    def is_chinese(self) -> bool:
        """Whether its reader reads Chinese: VPN after Chinese questions counts."""
        return language_in(self.question, self.previous) == "zh"

    @property
    def meant(self) -> int:
        """Index of the form with the intended meaning: joined with the previous question for a follow-up,
        else as asked."""
        return int(len(self.forms) > 1 and follow_up_weight(self.question) > 0)

    @property
    def may_lean(self) -> bool:
        """Whether to judge it joined with the previous question, too: it is a follow-up, or says little."""
        return bool(self.meant) or (len(self.forms) > 1 and own_words(self.question) <= MAY_LEAN_WORDS)

    def joined(self) -> Query:
        """Replace the question's own form with the one joined with the previous question."""
        return replace(self, forms=(self.forms[1], *self.forms[1:]))


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], weights: Sequence[float] | None = None, k: int = 60
) -> list[tuple[str, float]]:
    """Merge rankings of chunk ids (best first); each adds weight / (k + rank), ranks from 1.

    No weights means 1 for every ranking; a ranking of weight 0 adds nothing, not even its ids. Returns (chunk
    id, score), best first; ties keep first-seen order. No rankings give []. An id that occurs twice in one
    ranking counts at its first rank. Raises ValueError if k < 1, a weight is negative, or the number of
    weights differs from that of rankings. Source: Cormack, Clarke, Buettcher, SIGIR 2009 (their k = 60).
    """
    trusted = [1.0] * len(rankings) if weights is None else list(weights)
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if len(trusted) != len(rankings) or any(not weight >= 0 for weight in trusted):
        raise ValueError("each ranking needs one weight of at least 0")
    shares: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, trusted, strict=True):
        if weight > 0:
            for rank, chunk_id in enumerate(dict.fromkeys(ranking), start=1):
                shares.setdefault(chunk_id, []).append(weight / (k + rank))
    # exact sums: rounding in list order would separate ties
    scores = [(chunk_id, math.fsum(added)) for chunk_id, added in shares.items()]
    return sorted(scores, key=lambda scored: -scored[1])


# Splitting a question that asks several things, or one that compares two.

MAX_PARTS = 3
MAX_SPLIT_CHARS = 300  # characters; a longer question is not split, to save time


def parts_of(question: str) -> list[str]:
    """Return at most MAX_PARTS; the question itself if it is one, or if a part says next to nothing."""
    if len(question) > MAX_SPLIT_CHARS:
        return [question]
    compared = _compared(question)
    parts = compared or _asking(wording("between_parts").split(question))
    say_something = compared or all(own_words(part) > FEW_WORDS for part in parts)
    return parts if 1 < len(parts) <= MAX_PARTS and say_something else [question]


def asked_in(question: str) -> list[str]:
    """Return all that it asks in sequence, at most MAX_PARTS: 多少钱 says next to nothing, but asks."""
    parts = _asking(wording("between_parts").split(question[:MAX_SPLIT_CHARS]))
    clauses = (_asking(wording("between_clauses").split(part)) for part in parts)
    return [*chain.from_iterable(clauses)][:MAX_PARTS]


def _asking(pieces: Iterable[str]) -> list[str]:
    """Attach clauses that ask nothing, such as circumstances, to their neighbour."""
    asks, parts = wording("asks").search, list[str]()
    for piece in (each.strip(" ，,。") for each in pieces):
        joins = parts and not (asks(piece) and asks(parts[-1]))
        parts.append(f"{parts.pop()} {piece}" if joins else piece)
    return parts


def _compared(question: str) -> list[str]:
    """Return each of the two compared things with the rest of the question."""
    match = wording("compared_zh").search(question) or wording("compared_en").search(question)
    if match is None:
        return []
    named = {name.rstrip("2345"): each for name, each in match.groupdict().items() if each}
    one, other, rest = (named.get(name, "") for name in ("a", "b", "rest"))
    shared = wording("of_both").match(one)
    if shared and not wording("of_both").match(other):
        other = f"{shared[0]}{other}"
    return [f"{each.strip()} {rest}".strip() for each in (one, other)]


def asks_for_step(question: str) -> bool:
    """Whether it asks for a neighbour of the earlier subject: a level up, the next stage."""
    return wording("step").search(question) is not None


_MEANS = re.compile(
    r"(?:什么是|什么叫|何谓)(?P<zh>.{1,20}?)[呢啊呀?\uff1f ]*$"
    r"|(?P<of>.{1,20}?) ?(?:是|指的?是?|代表)(?:什么|啥)(?:意思|含义|东西)?[呢啊呀?\uff1f ]*$"
    r"|what (?:does|do|is|are) (?:an? |the )?(?P<en>.{1,40}?)(?: mean| stand for)?[?. ]*$",
    re.IGNORECASE,
)
_EXPLAINS = (
    r"[*_`]* ?(?:[(\uff08][^)\uff09]{1,60}[)\uff09])?[*_`]* ?"
    r"(?:[:\uff1a;\uff1b—–]|- |是|指|means?\b|is\b|are\b|stands? for\b)"
)


def explanation_of(question: str) -> re.Pattern[str] | None:
    """Return a pattern for how an explanation of a term begins, in a glossary entry or a cell, if the
    question asks what it means."""
    means = _MEANS.match(question[:MAX_FORM_CHARS].strip())
    term = (means["zh"] or means["of"] or means["en"]).strip(' “”"「」《》') if means else ""
    if not question_terms(term):
        return None
    return re.compile(rf"(?:^|[:\uff1a] ?)[\W\d_]{{0,12}}{re.escape(term)}{_EXPLAINS}", re.I | re.M)


def is_for_others(question: str, chunk: Chunk, today: str) -> bool:
    """Whether a passage, though near the question, is about others than those it asks about (no children are
    named), or lacks what is asked for where it is about the subject: a person, a date to come, a price for
    that period. In another language its words cannot be compared."""
    if len(question) > MAX_FORM_CHARS:
        return False
    text = chunk.indexed_text
    asked = {str(each.lastgroup) for each in wording("asks_of").finditer(question)}
    if not asked <= _FORMS and wording("of_everyone").search(text):
        asked &= _FORMS
    rows = _nearest_rows(question, text) if asked & _FORMS else text
    is_missing = any(not wording(f"of_{each}").search(rows) for each in asked)
    return is_missing or _has_other_period(question, text) or _lacks_kind(question, chunk, today)


_FORMS = {"phone", "email", "age", "salary"}


def _nearest_rows(question: str, text: str) -> str:
    """Return the table rows with most of the question's words; the whole text if no row has any."""
    terms, rows = question_terms(question), [line for line in text.split("\n") if line.lstrip()[:1] == "|"]
    held = [sum(presence(terms, row)) for row in rows]
    most = max(held, default=0)
    return "\n".join(row for row, has in zip(rows, held, strict=True) if has == most) if most else text


def _has_other_period(question: str, text: str) -> bool:
    periods = {each.lastgroup for each in wording("asks_period").finditer(question)}
    if len(periods) != 1 or not wording("asks_price").search(question) or not wording("amount").search(text):
        return False
    return periods.isdisjoint(each.lastgroup for each in wording("period").finditer(text))


# What a passage says of the question's subject, and whether that is of the kind asked for.

_SENTENCE = re.compile(r"(?:[^。！？!?；;.]|\.(?=\S))+[。！？!?；;.]?")
_TIMES = {"minute", "hour", "day", "week", "month", "year"}


def _lacks_kind(question: str, chunk: Chunk, today: str) -> bool:
    kinds = {str(each.lastgroup): each for each in wording("asks_kind").finditer(question)}
    if not kinds or is_mostly_chinese(question) != is_mostly_chinese(chunk.indexed_text):
        return False
    about, others = _about(question, chunk)
    return bool(about) and any(not _has_kind(kinds[kind], about, others, chunk, today) for kind in kinds)


def _has_kind(
    asks: re.Match[str], about: Sequence[str], others: Sequence[str], chunk: Chunk, today: str
) -> bool:
    kind, text = str(asks.lastgroup), "\n".join(about)
    if measure := asks["measure"]:
        return re.search(rf"[\d零一二两三四五六七八九十百千万][余多几]?\s?{measure}", chunk.text) is not None
    if kind == "count":
        text = wording("no_count").sub(" ", text)
    if kind == "next":
        return any(_is_to_come(each, today) for each in wording("of_next").finditer(text))
    if kind == "who" and _names_somebody(text):
        return True
    if kind == "price":
        prices = _with_price(about)
        prices = [each for each in prices if "|" in each] or prices or _with_price(others)
        return not all(_is_for_other_time(asks.string, f"{chunk.above}\n{each}") for each in prices)
    return wording(f"of_{kind}").search(text) is not None


def _with_price(texts: Sequence[str]) -> list[str]:
    shows = (wording("amount").search, wording("of_price").search)
    return [each for each in texts if any(has(each) for has in shows)]


def _is_to_come(date: re.Match[str], today: str) -> bool:
    named = date["date"] or date["in"] or (date["year"] and f"{date['year']}-{int(date['month']):02}")
    return not named or named >= today[: len(named)]


def _is_for_other_time(question: str, text: str) -> bool:
    """Whether the price in the text is for an hour where one for a week is asked for."""
    asked = {each.lastgroup for each in wording("asks_period").finditer(question)} & _TIMES
    names = wording("period" if "|" in text else "asks_period")  # a column is just called Week
    others = {each.lastgroup for each in names.finditer(text)} & _TIMES
    return len(asked) == 1 and bool(others) and asked.isdisjoint(others)


def _names_somebody(text: str) -> bool:
    import rjieba

    if wording("named_zh").search(text):
        return True
    return any(tag[:2] in ("nr", "nt") for _, tag in rjieba.tag(text[:MAX_FORM_CHARS], True))


def _about(question: str, chunk: Chunk) -> tuple[list[str], list[str]]:
    """Return what a passage says of the question's subject: the sentences and rows with most of its words,
    and the others with some of them; rows with the names of their columns, sentences with the next one of the
    paragraph (all of them after a question or a colon). Everything if only the heading has such words."""
    subject = wording("beside_kind").sub(" ", wording("asks_period").sub(" ", question))
    terms = [term for term in question_terms(subject) if term.weight >= MIN_WORD_WEIGHT]
    above = presence(terms, chunk.above)
    rest = [term for term, has in zip(terms, above, strict=True) if not has]
    units = _units(chunk.text[:MAX_TEXT_CHARS])
    has = (zip(rest, presence(rest, " ".join(unit)), strict=True) for unit in units)
    held = [sum(term.weight for term, is_in in each if is_in) for each in has]
    most = max(held, default=0.0)
    if most <= 0:
        return ([f"{unit} {columns}" for unit, columns in units] if any(above) else []), []
    nearest = [_with_next(units, at) for at, each in enumerate(held) if each == most]
    return nearest, [_with_next(units, at) for at, each in enumerate(held) if 0 < each < most]


def _units(text: str) -> list[tuple[str, str]]:
    """Return the sentences and table rows of a text, each with its table's first row; "" between
    paragraphs."""
    units, columns = list[tuple[str, str]](), ""
    for line in text.split("\n"):
        if line and not line.strip("|-: "):
            continue  # below the names of the columns
        if line.lstrip()[:1] != "|":
            columns = ""
            units += [(each.strip(), "") for each in _SENTENCE.findall(line)] or [("", "")]
        elif columns:
            units.append((line, columns))
        else:
            columns = line
    return units


def _with_next(units: Sequence[tuple[str, str]], at: int) -> str:
    unit, columns = units[at]
    asks = unit[-1:] in ("?", "？", ":", "：")
    following = [each for each, _ in units[at + 1 :]]
    paragraph = following[: following.index("")] if "" in following else following
    shown = following[:MAX_FOLLOWING] if asks else paragraph[:1]
    return " ".join((unit, columns, *shown))
