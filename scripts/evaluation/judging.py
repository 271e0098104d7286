"""Judging whole turns: whether the answering passage came first, is cited and readable in the answer, and how
confident an answer to an unanswerable question is.

A set is a folder with questions.jsonl, one TurnQuestion per line, and `documents/`, files of any supported
format; without `documents/`, questions are asked of the bundled guide.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from core.knowledge import Citation
from core.relevance.probability import SURE
from core.text import holds_words, is_mostly_chinese
from routes.wire.turns import Citation as CitationReply
from scripts.evaluation.figures import markdown_table
from scripts.evaluation.sets import TURNS_FILE, Message, SetRow, rows_of

AMONG = 3
TURN_COLUMNS = (
    "set", "answerable", "right first", f"among {AMONG}", "in the prompt", "cited", "readable",
    "wrongly refused", "unanswerable", "as sure", "as closest", "refused", "right language",
)  # fmt: skip
_UNSEEN = re.compile(r"[\s*`>\\]+")
Language = Literal["zh", "en", ""]


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk; `text` is what the model would read, including the heading path. For a source of an answer,
    `cited` says whether the answer refers to it."""

    document_id: str
    probability: float
    text: str = ""
    heading: str = ""
    file_name: str = ""
    cited: bool = False

    @classmethod
    def of_source(cls, cite: Citation | CitationReply) -> Hit:
        text = f"{cite.heading}\n{cite.text}"
        return cls(cite.document_id, cite.score, text, cite.heading, cite.file_name, cite.cited)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole turn's answer with the passages that the answerer was shown. Empty if the request was refused,
    as a blank question is."""

    text: str = ""
    sources: tuple[Hit, ...] = ()

    @property
    def verdict(self) -> Literal["sure", "closest", "refused"]:
        """The verdict by the probabilities of its sources, not by its words; refused if it cites none."""
        if not any(hit.cited for hit in self.sources):
            return "refused"
        return "sure" if max(hit.probability for hit in self.sources) >= SURE else "closest"


def _listed(value: object) -> object:
    """Accept a single passage for a list of one; an empty one counts as none."""
    return [value] if value and isinstance(value, str) else value or ()


class TurnQuestion(SetRow):
    """`answers` are the facts a reader must see, each a list of alternatives; `passage` is one or more quotes
    of an answering chunk; both are worded as in `documents`, with table cells separated by `|`. `sections`
    are words of an answering heading, any of which suffices. `answer_language` is the language of what can be
    quoted, if it is not the question's."""

    question: str
    history: tuple[Message, ...] = ()
    language: Language = ""
    answer_language: Language = ""
    kind: str = ""
    split: str = ""
    answerable: bool = True
    documents: tuple[str, ...] = ()
    passage: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    answers: tuple[tuple[str, ...], ...] = ()
    sections: tuple[str, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether the set says what answers it."""
        return self.answerable and bool(self.passage or self.answers or self.sections)

    def is_answered_by(self, hit: Hit) -> bool:
        if self.sections:
            return any(words in hit.heading for words in self.sections)
        if self.documents and hit.file_name not in self.documents:
            return False
        quoted = any(holds_words(hit.text, words) for words in self.passage)
        return quoted or self.is_readable_in(hit.text)

    def is_readable_in(self, text: str) -> bool:
        """Whether the text contains every fact, ignoring white space and Markdown marks."""
        seen = _UNSEEN.sub("", text)
        return bool(self.answers) and all(any(_shows(seen, each) for each in fact) for fact in self.answers)


def _shows(seen: str, alternative: str) -> bool:
    return all(_UNSEEN.sub("", cell) in seen for cell in alternative.split("|"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of one turn; None where the question does not say."""

    question: TurnQuestion
    reply: Reply
    first: bool | None
    among: bool | None
    prompted: bool | None
    cited: bool | None
    readable: bool | None
    in_language: bool | None


def judge(question: TurnQuestion, ranked: Sequence[Hit], reply: Reply) -> Outcome:
    """`ranked` is the order before the threshold, best first."""
    right = [question.is_answered_by(hit) for hit in ranked[:AMONG]]
    prompted = [hit for hit in reply.sources if question.is_answered_by(hit)]
    own = question.language or ("zh" if is_mostly_chinese(question.question) else "en")
    expected = own if reply.verdict == "refused" else question.answer_language or own
    return Outcome(
        question,
        reply,
        first=any(right[:1]) if question.is_judged else None,
        among=any(right) if question.is_judged else None,
        prompted=bool(prompted) if question.is_judged else None,
        cited=any(hit.cited for hit in prompted) if question.is_judged else None,
        readable=question.is_readable_in(reply.text) if question.is_judged and question.answers else None,
        in_language=is_mostly_chinese(reply.text) == (expected == "zh") if reply.text else None,
    )


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Counts, and shares: of the answerable questions up to `refused_wrongly`, of the unanswerable ones up to
    `refused_rightly`, of all for `in_language`. Ordered as TURN_COLUMNS; None where no question says."""

    answerable: int
    first: float | None
    among: float | None
    prompted: float | None
    cited: float | None
    readable: float | None
    refused_wrongly: float | None
    unanswerable: int
    sure: float | None
    closest: float | None
    refused_rightly: float | None
    in_language: float | None


def turn_figures(outcomes: Sequence[Outcome]) -> TurnFigures:
    right = [each for each in outcomes if each.question.answerable]
    wrong = [each.reply.verdict for each in outcomes if not each.question.answerable]
    return TurnFigures(
        answerable=len(right),
        first=_share(each.first for each in right),
        among=_share(each.among for each in right),
        prompted=_share(each.prompted for each in right),
        cited=_share(each.cited for each in right),
        readable=_share(each.readable for each in right),
        refused_wrongly=_share(each.reply.verdict == "refused" for each in right),
        unanswerable=len(wrong),
        sure=_share(verdict == "sure" for verdict in wrong),
        closest=_share(verdict == "closest" for verdict in wrong),
        refused_rightly=_share(verdict == "refused" for verdict in wrong),
        in_language=_share(each.in_language for each in outcomes),
    )


def by_group(outcomes: Sequence[Outcome]) -> dict[str, TurnFigures]:
    """Return the figures of all questions under "", then by language, then by kind."""
    groups = {"": turn_figures(outcomes)}
    by: tuple[Callable[[TurnQuestion], str], ...] = (lambda one: one.language, lambda one: one.kind)
    for group_of in by:
        for name in sorted({group_of(each.question) for each in outcomes} - {""}):
            groups[name] = turn_figures([each for each in outcomes if group_of(each.question) == name])
    return groups


def turns_table(sets: Iterable[tuple[str, Mapping[str, TurnFigures]]]) -> str:
    """Return a Markdown table with one line per set and group."""
    lines: list[Sequence[str]] = []
    for name, groups in sets:
        for group, row in groups.items():
            figures = (getattr(row, each.name) for each in fields(row))
            lines.append((f"{name} {group}".strip(), *map(_cell, figures)))
    return markdown_table(TURN_COLUMNS, lines)


def load_questions(folder: Path, split: str = "") -> tuple[TurnQuestion, ...]:
    """Load questions, with `split` only those of that half. Raises BadSetError."""
    questions = tuple(rows_of(folder / TURNS_FILE, TurnQuestion))
    return tuple(each for each in questions if not split or each.split == split)


def _cell(figure: float | None) -> str:
    if figure is None:
        return "–"
    return str(figure) if isinstance(figure, int) else f"{figure:.3f}"


def _share(values: Iterable[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
