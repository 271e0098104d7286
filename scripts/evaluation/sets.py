"""Sets of questions on disk: corpus.jsonl (and corpus_*.jsonl beside it), queries.jsonl and qrels.jsonl in a
folder per set; or questions.jsonl, asked in whole turns (scripts/evaluation/judging.py)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from config.sources import in_plain_words

FILES = ("corpus.jsonl", "queries.jsonl", "qrels.jsonl")
TURNS_FILE = "questions.jsonl"
_UNSEEN = re.compile(r"[\s*`\\]+")
Row = TypeVar("Row", bound=BaseModel)
Item = TypeVar("Item")


class BadSetError(Exception):
    """A set cannot be read; the message is one plain line that names the file and the line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One document, or one turn of a conversation. `file_name` is set for a document in its own file."""

    line_id: str
    text: str
    scope: str = ""
    title: str = ""
    date: str = ""
    file_name: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`previous` are the user's earlier turns, oldest first. `rewrite` is the set's own stand-alone wording,
    for baselines only. `phrases` are quotes of a relevant document, one of which an answering chunk must
    contain. `groups` are the values it is reported under."""

    question_id: str
    text: str
    scope: str = ""
    previous: tuple[str, ...] = ()
    last_answer: str = ""
    date: str = ""
    rewrite: str = ""
    answerable: bool = True
    gold: Mapping[str, float] = field(default_factory=dict)
    phrases: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """`is_memory`: the lines of each scope are the turns of one conversation, in order. `has_refusals`: some
    questions are unanswerable."""

    name: str
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]
    is_memory: bool = False
    has_refusals: bool = False

    @property
    def scopes(self) -> list[str]:
        """The scopes in the order of the lines."""
        return list(dict.fromkeys(line.scope for line in self.lines))


class SetRow(BaseModel):
    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)


class Message(BaseModel):
    role: Literal["user", "assistant"]
    text: str = Field(validation_alias=AliasChoices("text", "content"))


class _LineRow(SetRow):
    id: str = Field(min_length=1)
    text: str = ""
    file: str | None = None
    title: str | None = None
    scope: str | None = None
    date: str | None = None
    turn_index: int | None = None


class _QuestionRow(SetRow):
    id: str = Field(min_length=1)
    text: str
    history: tuple[Message, ...] = ()
    scope: str | None = None
    date: str | None = None
    rewrite: str | None = None
    answerable: bool = True
    answers: Any = ()


class _Judgement(SetRow):
    query_id: str
    doc_id: str
    rel: float


def sets_in(folder: Path) -> list[Path]:
    """Return the folder itself if it is a set, else its subfolders that are, by name."""
    if is_set(folder):
        return [folder]
    return sorted(path for path in folder.iterdir() if is_set(path)) if folder.is_dir() else []


def is_set(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (FILES[1], TURNS_FILE))


def load_set(folder: Path, by: str = "", *, narrow: bool = False) -> EvaluationSet:
    """Load a set. `by` is the question field (of one or several values) to report under; `narrow` leaves out
    the passages of corpus_*.jsonl, otherwise read with those of corpus.jsonl. Raises BadSetError."""
    wider = [] if narrow else sorted(folder.glob("corpus_*.jsonl"))
    rows = [row for path in (folder / FILES[0], *wider) for row in rows_of(path, _LineRow)]
    lines = tuple(_line(row, folder) for row in rows)
    texts = {line.line_id: plain(line.text) for line in lines}
    gold: dict[str, dict[str, float]] = defaultdict(dict)
    for judgement in rows_of(folder / FILES[2], _Judgement):
        if judgement.rel > 0:
            gold[judgement.query_id][judgement.doc_id] = judgement.rel
    questions = tuple(
        _question(row, gold.get(row.id, {}), texts, by) for row in rows_of(folder / FILES[1], _QuestionRow)
    )
    is_memory = bool(rows) and all(row.scope and row.turn_index is not None for row in rows)
    has_refusals = not all(question.answerable for question in questions)
    return EvaluationSet(folder.name, lines, questions, is_memory, has_refusals)


def spread(questions: tuple[Item, ...], limit: int | None) -> tuple[Item, ...]:
    """Return at most `limit` of them, evenly spread: neighbours are often alike."""
    if limit is None or len(questions) <= limit:
        return questions
    return tuple(questions[at * len(questions) // limit] for at in range(limit))


def plain(text: str) -> str:
    """Remove white space and Markdown marks, in which a chunk may differ from its document."""
    return _UNSEEN.sub("", text)


def _line(row: _LineRow, folder: Path) -> Line:
    title, scope, date = (row.title or "").strip(), row.scope or "", row.date or ""
    if row.file is None:
        return Line(row.id, row.text, scope, title, date)
    path = folder / row.file
    try:
        return Line(row.id, path.read_text(encoding="utf-8"), scope, title, date, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetError(f"{folder.name}: {row.file} cannot be read: {error}") from error


def _phrases(row: _QuestionRow, gold: Mapping[str, float], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the answers a relevant document contains verbatim: paraphrased ones cannot be searched for."""
    listed = [row.answers] if isinstance(row.answers, str) else row.answers or ()
    phrases = (plain(each) for each in listed if isinstance(each, str))
    return tuple(each for each in phrases if each and any(each in texts.get(line, "") for line in gold))


def _question(row: _QuestionRow, gold: Mapping[str, float], texts: Mapping[str, str], by: str) -> Question:
    answers = [turn.text for turn in row.history if turn.role == "assistant"]
    return Question(
        question_id=row.id,
        text=row.text,
        scope=row.scope or "",
        previous=tuple(turn.text for turn in row.history if turn.role == "user"),
        last_answer=answers[-1] if answers else "",
        date=row.date or "",
        rewrite=row.rewrite or "",
        answerable=row.answerable,
        gold=gold,
        phrases=_phrases(row, gold, texts),
        groups=_groups(row, by),
    )


def _groups(row: _QuestionRow, by: str) -> tuple[str, ...]:
    if not by:
        return ()
    value: Any = getattr(row, by, None)
    values = value if isinstance(value, (list, tuple)) else [value]
    return tuple(dict.fromkeys(str(each) for each in values if each is not None))


def rows_of(path: Path, model: type[Row]) -> Iterator[Row]:
    place = str(Path(*path.parts[-2:]))
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _row(line, model, f"{place} line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetError(
            f"{place} cannot be read: {error.strerror if isinstance(error, OSError) else error}"
        ) from error


def _row(line: str, model: type[Row], where: str) -> Row:
    try:
        return model.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise BadSetError(f"{where} is not JSON: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"])) or "the row"
        raise BadSetError(f"{where}: {name}: {in_plain_words(first['msg'])}") from error
