"""Ingesting documents through the product, then searching each question with its history."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Protocol

from api.search.handler import SearchRequest
from core.dates import is_iso_date
from core.formats import supported_files
from core.knowledge import Upload
from scripts.evaluation.baselines import Collection
from scripts.evaluation.figures import Answer
from scripts.evaluation.judging import Hit, Outcome, Reply, TurnQuestion, judge
from scripts.evaluation.sets import Line, Question

Exchanges = Sequence[tuple[str, str]]
"""Questions with their answers, oldest first."""


class IngestionError(Exception):
    """A document was refused or failed; the message is the reason in one plain line."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Chunks, best first, without applying the threshold; `ms` excludes the embedding if measurable. A
    refused question, such as a blank one, has no chunks."""

    hits: tuple[Hit, ...] = ()
    ms: float = 0.0


class Target(Protocol):
    """The system measured: it ingests documents, answers searches and whole turns. `max_ingesting` is how
    many documents may be ingested concurrently."""

    max_ingesting: int

    async def add(self, upload: Upload) -> str:
        """Return the document's id once it is searchable. Raises IngestionError."""
        ...

    async def search(self, request: SearchRequest) -> SearchResult: ...

    async def answer(self, question: str, previous: Exchanges, owner: str) -> Reply:
        """Answer in a new session, after these questions and their answers."""
        ...


EARLIEST_YEAR = 1000
_ISO = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?")
_HEADINGS = re.compile(r"^([ \t]*)(#{1,6}(?=[ \t]|$)|=+[ \t]*$|-+[ \t]*$)", re.MULTILINE)
_ESCAPED = r"\1\\\2"
_MARKS = re.compile(r"([!-/:-@\[-`{-~])")  # ASCII punctuation, which Markdown allows to be escaped


def upload_of(line: Line, number: int, owner: str) -> Upload:
    """Return a line as the file a user would upload; its id is the external id.

    Plain text, or, with a title, Markdown under that heading; a document in its own file is that file.
    Lines inside the text that Markdown would read as headings are escaped. The file name reveals nothing.
    """
    if line.file_name:
        name, content = f"{number}{PurePath(line.file_name).suffix}", line.text
    elif line.title:
        heading = _MARKS.sub(r"\\\1", " ".join(line.title.split()))
        name, content = f"{number}.md", f"# {heading}\n\n{_HEADINGS.sub(_ESCAPED, line.text)}"
    else:
        name, content = f"{number}.txt", line.text
    return Upload(
        owner, name, content.encode("utf-8", "replace"), line.line_id, date=usable_date(line.date) or None
    )


def usable_date(value: str) -> str:
    """Return a date the product accepts, or "": years far from ours and invalid dates do not help."""
    is_near = _ISO.fullmatch(value) and EARLIEST_YEAR <= int(value[:4]) <= datetime.now(UTC).year + 1
    return value if is_near and is_iso_date(value) else ""


TOP_N = 10
Step = Callable[[], object]
"""Called after every document or question."""


@dataclass(slots=True)
class Library:
    """Maps documents to lines: all of the owner's lines with the same text, whichever copy is found."""

    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[tuple[str, bytes], set[str]] = field(default_factory=lambda: defaultdict(set))
    refused: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def line_ids(self, document_ids: Sequence[str]) -> list[str]:
        return [line for document_id in document_ids for line in self.lines.get(document_id, ())]


async def ingest_lines(target: Target, collections: Sequence[Collection], step: Step) -> Library:
    """Ingest every line of every collection, a few at a time; refusals are counted by reason."""
    library, started = Library(), time.perf_counter()
    waiting = ((line, at, part.owner) for part in collections for at, line in enumerate(part.lines, start=1))
    await asyncio.gather(*(_read(target, waiting, library, step) for _ in range(target.max_ingesting)))
    library.seconds = time.perf_counter() - started
    for copies in library.copies.values():
        together = [line for document_id in copies for line in library.lines[document_id]]
        library.lines.update((document_id, [*together]) for document_id in copies)
    place = {line.line_id: at for part in collections for at, line in enumerate(part.lines)}
    for lines in library.lines.values():
        lines.sort(key=place.__getitem__)  # not in the order they happened to be ingested
    return library


async def _read(
    target: Target, waiting: Iterator[tuple[Line, int, str]], library: Library, step: Step
) -> None:
    for line, number, owner in waiting:
        try:
            upload = upload_of(line, number, owner)
            document_id = await target.add(upload)
            library.lines[document_id].append(line.line_id)
            library.copies[owner, upload.content].add(document_id)
        except IngestionError as error:
            library.refused[str(error)] += 1
        step()


async def ask(target: Target, part: Collection, library: Library, step: Step) -> list[Answer]:
    """Ask one question after the other, so that the times are those of a quiet server."""
    answers = []
    for question in part.questions:
        result = await target.search(request_of(question, part.owner))
        chunks = tuple(hit.text for hit in result.hits)
        answers.append(Answer(question, _ranked(result.hits, library), result.ms, chunks))
        step()
    return answers


def request_of(question: Question, owner: str) -> SearchRequest:
    return SearchRequest(
        question=question.text,
        owner=owner,
        top_n=TOP_N,
        previous_questions=question.previous,
        last_answer=question.last_answer,
        date=usable_date(question.date),
    )


async def ask_turn(target: Target, question: TurnQuestion, owner: str) -> Outcome:
    """Ask a question as a user does, and judge it with the ranks of the passages that could answer it."""
    texts = [message.text for message in question.history]
    previous = [*zip(texts[::2], texts[1::2], strict=False)]
    result = await target.search(request_of_turn(question, owner))
    return judge(question, result.hits, await target.answer(question.question, previous, owner))


def request_of_turn(question: TurnQuestion, owner: str) -> SearchRequest:
    texts = [message.text for message in question.history]
    last = texts[-1] if texts else ""
    return SearchRequest(question.question, owner, previous_questions=tuple(texts[::2]), last_answer=last)


async def ingest_files(target: Target, folder: Path, owner: str, step: Step) -> Counter[str]:
    """Ingest every supported file below the folder; return refusals by reason."""
    refused: Counter[str] = Counter()
    for path in supported_files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            await target.add(Upload(owner, path.name, path.read_bytes(), name))
        except IngestionError as error:
            refused[str(error)] += 1
        step()
    return refused


def _ranked(hits: Sequence[Hit], library: Library) -> list[tuple[str, float]]:
    """Rank each document at its first chunk; its lines share its rank and best probability."""
    best: dict[str, float] = {}
    for hit in hits:
        best[hit.document_id] = max(hit.probability, best.get(hit.document_id, 0.0))
    ranked: dict[str, float] = {}
    for document_id, chance in best.items():
        for line in library.line_ids([document_id]):
            ranked.setdefault(line, chance)
    return list(ranked.items())
