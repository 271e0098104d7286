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

from core.relevance.amounts import AMOUNT, in_arabic
from core.relevance.sparse import SparseTerms, is_cjk, presence, question_terms
from core.relevance.tokens import QuestionTokens
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


def is_for_others(question: str, text: str) -> bool:
    """Whether the text, though near the question, is about others than those it asks about: it has prices per
    night but none per month, names no children, or has no telephone number in the row that is asked about."""
    if len(question) > MAX_FORM_CHARS:
        return False
    asked = {str(each.lastgroup) for each in wording("asks_of").finditer(question)}
    if not asked <= _FORMS and wording("of_everyone").search(text):
        asked &= _FORMS
    rows = _nearest_rows(question, text) if asked & _FORMS else text
    is_missing = any(not wording(f"of_{each}").search(rows) for each in asked)
    return is_missing or _has_other_period(question, text)


_FORMS = {"phone", "email", "age"}


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
