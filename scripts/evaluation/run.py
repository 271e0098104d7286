"""Running every set of a folder through the product, compared with plain lists of the same store."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from api.admin.sample import SAMPLE_FOLDER
from config.settings import load_settings
from core.conversation.recall import DEFAULT_THRESHOLD
from core.conversation.turns import Turn, TurnStatus
from core.owners import KEY_VARIABLE
from core.text import counted
from scripts.evaluation.baselines import (
    Collection,
    Index,
    baseline_answers,
    collections_without_answers,
    documents_of,
    whole_collections,
)
from scripts.evaluation.figures import TOP, Answer, passages, quantile
from scripts.evaluation.in_process import Services, open_services
from scripts.evaluation.judging import Outcome, by_group, load_questions
from scripts.evaluation.knowledge import Library, Step, Target, ask, ask_turn, ingest_files, ingest_lines
from scripts.evaluation.report import (
    OURS,
    Published,
    Row,
    SetReport,
    our_row,
    plain_row,
    read_published,
    write_run,
    write_turns,
)
from scripts.evaluation.server import open_server
from scripts.evaluation.sets import TURNS_FILE, EvaluationSet, Line, Question, load_set, spread
from services.conversation.turns import TurnVectors
from services.conversation_manager import ConversationManager
from services.retrieval.query_forms import QueryBuilder
from services.store.dialect import Filter, ScoredPoint
from services.store.points import in_session

OWNER = "local"
DOCUMENTS, PUBLISHED = "documents", "baselines.json"
BEGAN_US = 1_700_000_000_000_000


@dataclass(slots=True)
class Sessions:
    """The session id of each scope, and the line of each turn."""

    ids: dict[str, str] = field(default_factory=dict)
    line_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recalled:
    """One question: the pure ranking with each turn's probability, what would be recalled, and the plain
    lists."""

    ranked: Answer
    recalled: Answer
    baselines: dict[str, Answer]


class MemoryRun:
    """Long conversations: each scope is a session, each line a turn, and each question recalls earlier turns.

    The milliseconds are the product's own recall (branch, recent and relevant history, as configured),
    without embedding the question. Besides the pure ranking, what reaches the threshold and would go into the
    prompt is measured. `_ranking` recalls the best TOP of all turns; `_product` is as configured.
    """

    def __init__(self, services: Services) -> None:
        container = services.container
        settings = container.settings.conversation
        deep = settings.model_copy(update={"max_relevant_turns": TOP, "max_recent_turns": 0})
        names = container.settings.store
        self._product = container.conversations
        self._ranking = ConversationManager(self._product.turns, container.embedding, deep)
        self._queries = QueryBuilder(container.embedding)
        self._index = Index(container.store, container.embedding, names.conversation_collection, "turn")
        self._sessions = Sessions()
        configured = settings.relevant_turn_threshold
        self.threshold = DEFAULT_THRESHOLD if configured is None else configured

    async def store(self, data: EvaluationSet) -> None:
        """Store every line as a turn without an answer, one second after its parent; then embed them."""
        for scope in data.scopes:
            await self._store_session(scope, [line for line in data.lines if line.scope == scope])
        with tqdm(desc=f"{data.name}: turns", total=len(data.lines)) as bar:
            await self._ranking.index_missing(lambda done, of: bar.update(done - bar.n))

    async def ask(self, questions: Sequence[Question], step: Step) -> list[Recalled]:
        recalled = []
        for question in questions:
            recalled.append(await self._recall(question))
            step()
        return recalled

    async def _store_session(self, scope: str, lines: Sequence[Line]) -> None:
        session_id, turn_ids = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in lines]
        turns = [
            Turn(
                turn_id=turn_id,
                session_id=session_id,
                owner=OWNER,
                question=line.text,
                created_us=BEGAN_US + at * 1_000_000,
                status=TurnStatus.COMPLETED,
                parent_turn_id=turn_ids[at - 1] if at else None,
                seq=at,
            )
            for at, (turn_id, line) in enumerate(zip(turn_ids, lines, strict=True))
        ]
        await self._ranking.turns.put_many([(turn, TurnVectors()) for turn in turns])
        self._sessions.ids[scope] = session_id
        self._sessions.line_of |= {
            turn_id: line.line_id for turn_id, line in zip(turn_ids, lines, strict=True)
        }

    async def _recall(self, question: Question) -> Recalled:
        session_id = self._sessions.ids.get(question.scope, "")
        query = await self._queries.build(question.text, question.previous)
        started = time.perf_counter()
        branch = await self._product.find_branch(session_id, OWNER)
        recent = await self._product.get_recent_history(branch)
        await self._product.retrieve_relevant_history(query, branch, recent, OWNER)
        elapsed_ms = (time.perf_counter() - started) * 1000
        recall, line_of = self._ranking.recall, self._sessions.line_of
        judged = await recall.judge(query, (await recall.rank(query, branch, (), OWNER))[:TOP])
        ranked, recalled = (
            [(line_of[each.turn.turn_id], each.chance) for each in judged_turns]
            for judged_turns in (judged, recall.keep(judged))
        )
        return Recalled(
            Answer(question, ranked, elapsed_ms),
            Answer(question, recalled),
            await self._plain(question, session_id),
        )

    async def _plain(self, question: Question, session_id: str) -> dict[str, Answer]:
        point_filter = Filter(must=[*in_session(session_id, OWNER)])
        line_of = self._sessions.line_of
        return await baseline_answers(
            self._index, question, point_filter, lambda point: [line_of[str(point.id)]]
        )


@dataclass(frozen=True, slots=True)
class Options:
    """`sets` are folders. `http` measures through a server: a temporary one, or the one at `url`."""

    sets: tuple[Path, ...]
    cache: Path | None = None
    out: Path | None = None
    http: bool = False
    url: str = ""
    limit: int | None = None
    by: str = ""
    narrow: bool = False
    split: str = ""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Lists by name, ours first. `absent` are ours on collections without the questions' answers."""

    lists: Mapping[str, Sequence[Answer]]
    absent: Sequence[Answer]
    notes: tuple[str, ...]
    threshold: float
    recalled_answers: Sequence[Answer] = ()


async def evaluate(options: Options) -> list[SetReport]:
    """Raises BadSetError, CommandError, StartRefusedError, ConfigurationError."""
    reports: list[SetReport] = []
    in_folders: list[Outcome] = []
    for folder in options.sets:
        if (folder / TURNS_FILE).is_file():
            report, outcomes = await _turns(folder, options)
            reports.append(report)
            in_folders += outcomes if (folder / DOCUMENTS).is_dir() else []
            continue
        data = load_set(folder, options.by, narrow=options.narrow)
        if not data.lines:
            print(f"{data.name}: skipped, it has no documents")
        elif data.is_memory and options.http:
            print(f"{data.name}: skipped, recall of earlier turns has no HTTP request of its own")
        else:
            reports.append(await _evaluate_set(data, options, read_published(folder.parent / PUBLISHED)))
    if sum((folder / DOCUMENTS).is_dir() for folder in options.sets) > 1:
        reports.append(SetReport("all folders", turns=by_group(in_folders)))
    return reports


async def _turns(folder: Path, options: Options) -> tuple[SetReport, list[Outcome]]:
    """Ask the set's own documents, else the bundled guide, in whole turns."""
    name = folder.name
    questions = spread(load_questions(folder, options.split), options.limit)
    documents = folder / DOCUMENTS if (folder / DOCUMENTS).is_dir() else SAMPLE_FOLDER
    outcomes = []
    async with _target(options, [OWNER]) as target:
        with tqdm(desc=f"{name}: documents", unit="") as bar:
            refused = await ingest_files(target, documents, OWNER, bar.update)
        with tqdm(desc=f"{name}: turns", total=len(questions)) as bar:
            for question in questions:
                outcomes.append(await ask_turn(target, question, OWNER))
                bar.update()
    if options.out:
        write_turns(options.out / f"{name}.jsonl", outcomes)
    return SetReport(name, notes=_refusals(refused), turns=by_group(outcomes)), outcomes


@asynccontextmanager
async def _target(options: Options, owners: Sequence[str]) -> AsyncIterator[Target]:
    if options.http:
        named = [os.environ.get(KEY_VARIABLE, ""), *os.environ.get("API_KEYS", "").split(",")]
        keys = list(dict.fromkeys(key.strip() for key in named if key.strip()))
        async with open_server(owners, options.url, keys) as server:
            yield server
    else:
        async with open_services(options.cache) as services:
            yield services


async def _evaluate_set(data: EvaluationSet, options: Options, published: Published) -> SetReport:
    data = replace(data, questions=spread(data.questions, options.limit))
    measure = _memory if data.is_memory else _over_http if options.http else _knowledge
    measured = await measure(data, options)
    if options.out:
        write_run(options.out / f"{data.name}.jsonl", measured.lists[OURS])
        if measured.recalled_answers:
            write_run(options.out / f"{data.name}.shown.jsonl", measured.recalled_answers)
    values = sorted({value for question in data.questions for value in question.groups})
    return SetReport(
        name=data.name,
        rows=_rows(measured),
        notes=(*measured.notes, *_blank(data)),
        passages=passages(measured.lists[OURS]),
        groups={value: _rows(_only(measured, value)) for value in values},
        published=published.get(data.name, {}),
    )


async def _knowledge(data: EvaluationSet, options: Options) -> _Measured:
    async with open_services(options.cache) as services:
        library, answers = await _ask(services, whole_collections(data), f"{data.name}:")
        embed_ms = await services.embedding_ms([question.text for question in data.questions])
        plain = await _plain(services, whole_collections(data), library, data.name)
        absent = await _ask_absent(services, data)
        threshold = services.container.settings.retrieval.rerank_score_threshold
    notes = (*_notes(library, absent), f"embedding a question takes {embed_ms:.1f} ms more")
    return _Measured({OURS: answers, **plain}, absent, notes, threshold)


async def _over_http(data: EvaluationSet, options: Options) -> _Measured:
    parts = [*whole_collections(data), *collections_without_answers(data)]
    async with _target(options, [part.owner for part in parts]) as server:
        library, answers = await _ask(server, whole_collections(data), f"{data.name}:")
        absent = await _ask_absent(server, data)
    notes = (*_notes(library, absent), "over HTTP: the milliseconds are whole requests")
    threshold = load_settings().retrieval.rerank_score_threshold
    return _Measured({OURS: answers}, absent, notes, threshold)


async def _memory(data: EvaluationSet, options: Options) -> _Measured:
    async with open_services(options.cache) as services:
        run = MemoryRun(services)
        await run.store(data)
        with tqdm(desc=f"{data.name}: questions", total=len(data.questions)) as bar:
            recalled = await run.ask(data.questions, bar.update)
        embed_ms = await services.embedding_ms([question.text for question in data.questions])
    lists = {OURS: [each.ranked for each in recalled]}
    plain = _by_name([each.baselines for each in recalled])
    recalled_answers = [each.recalled for each in recalled]
    number = sum(len(each.ranked) for each in recalled_answers) / max(1, len(recalled_answers))
    notes = (
        f"{number:.1f} turns of ten reach the threshold and would be shown",
        f"embedding a question takes {embed_ms:.1f} ms more",
    )
    return _Measured(lists | plain, [], notes, run.threshold, recalled_answers)


async def _ask_absent(target: Target, data: EvaluationSet) -> list[Answer]:
    """Run this last: these copies of the documents change how rare words are."""
    parts = collections_without_answers(data)
    return (await _ask(target, parts, f"{data.name}: without answers,"))[1] if parts else []


async def _ask(target: Target, parts: Sequence[Collection], label: str) -> tuple[Library, list[Answer]]:
    with tqdm(desc=f"{label} documents", total=sum(len(part.lines) for part in parts)) as bar:
        library = await ingest_lines(target, parts, bar.update)
    answers: list[Answer] = []
    with tqdm(desc=f"{label} questions", total=sum(len(part.questions) for part in parts)) as bar:
        for part in parts:
            answers += await ask(target, part, library, bar.update)
    return library, answers


async def _plain(
    services: Services, parts: Sequence[Collection], library: Library, name: str
) -> dict[str, list[Answer]]:
    container = services.container
    index = Index(container.store, container.embedding, container.settings.store.knowledge_collection)

    def lines_of(point: ScoredPoint) -> Sequence[str]:
        return library.line_ids([str((point.payload or {}).get("document_id"))])

    by_list: list[dict[str, Answer]] = []
    with tqdm(desc=f"{name}: plain lists", total=sum(len(part.questions) for part in parts)) as bar:
        for part in parts:
            point_filter = documents_of(part.owner)
            for question in part.questions:
                by_list.append(await baseline_answers(index, question, point_filter, lines_of))
                bar.update()
    return _by_name(by_list)


def _by_name(by_list: Iterable[Mapping[str, Answer]]) -> dict[str, list[Answer]]:
    lists: dict[str, list[Answer]] = {}
    for answers in by_list:
        for name, answer in answers.items():
            lists.setdefault(name, []).append(answer)
    return lists


def _notes(library: Library, absent: Sequence[Answer]) -> tuple[str, ...]:
    documents = len(library.lines)
    notes = [f"{documents} documents, {library.seconds * 1000 / max(1, documents):.1f} ms each to read in"]
    notes += _refusals(library.refused)
    if absent:
        notes.append(f"refusal: {len(absent)} questions asked again where their answers are not")
    return tuple(notes)


def _blank(data: EvaluationSet) -> list[str]:
    number = sum(not question.text.strip() for question in data.questions)
    return [f"blank questions, counted as refused: {number}"] if number else []


def _refusals(refused: Counter[str]) -> tuple[str, ...]:
    return tuple(
        f"{counted(number, 'document')} refused: {reason}" for reason, number in refused.most_common()
    )


def _rows(measured: _Measured) -> tuple[Row, ...]:
    ours = measured.lists[OURS]
    times = [answer.ms for answer in ours]
    shown = (quantile(times, 0.5), quantile(times, 0.99))
    rows = [our_row(OURS, ours, measured.absent, measured.threshold, shown)]
    if measured.recalled_answers:  # what is shown of them has its own row
        rows = [replace(rows[0], ndcg_10_above=None)]
        rows.append(replace(plain_row(f"{OURS}, shown", measured.recalled_answers), auroc=None))
    return (*rows, *(plain_row(name, answers) for name, answers in measured.lists.items() if name != OURS))


def _only(measured: _Measured, value: str) -> _Measured:
    """Restrict the results to the questions of one group."""

    def chosen(answers: Sequence[Answer]) -> list[Answer]:
        return [answer for answer in answers if value in answer.question.groups]

    return replace(
        measured,
        lists={name: chosen(answers) for name, answers in measured.lists.items()},
        absent=chosen(measured.absent),
        recalled_answers=chosen(measured.recalled_answers),
    )
