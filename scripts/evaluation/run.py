"""Every set of a folder through the product, beside what plain lists of the same store find."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from config.settings import load_settings
from scripts.evaluation.baselines import (
    Collection,
    Index,
    baseline_answers,
    collections_without_answers,
    documents_of,
    whole_collections,
)
from scripts.evaluation.figures import Answer, quantile
from scripts.evaluation.in_process import Services, open_services
from scripts.evaluation.knowledge import Library, ask, read_in
from scripts.evaluation.memory import MemoryRun
from scripts.evaluation.passages import passages
from scripts.evaluation.report import (
    OURS,
    Published,
    Row,
    SetReport,
    our_row,
    plain_row,
    read_published,
    write_run,
)
from scripts.evaluation.server import open_server
from scripts.evaluation.sets import EvaluationSet, load_set, spread
from scripts.evaluation.target import Target
from services.store.dialect import ScoredPoint


@dataclass(frozen=True, slots=True)
class Options:
    """`http` measures through a server: one of its own, or the one at `url`. None of `sets` means all."""

    folder: Path
    sets: tuple[str, ...]
    cache: Path | None = None
    out: Path | None = None
    http: bool = False
    url: str = ""
    limit: int | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Lists by name, ours first. `absent` are ours to questions whose answers were not there."""

    lists: Mapping[str, Sequence[Answer]]
    absent: Sequence[Answer]
    notes: tuple[str, ...]
    threshold: float
    recalled_answers: Sequence[Answer] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    library: Library
    answers: list[Answer]


async def evaluate(options: Options) -> list[SetReport]:
    """Raises BadSetError, ServerError, httpx.HTTPError, StartRefusedError, ConfigurationError."""
    published = read_published(options.folder / "baselines.json")
    reports = []
    for name in options.sets:
        data = load_set(options.folder / name, options.by)
        if not data.lines:
            print(f"{name}: skipped, it has no documents")
        elif data.is_memory and options.http:
            print(f"{name}: skipped, recall of earlier turns has no HTTP request of its own")
        else:
            reports.append(await _evaluate_set(data, options, published))
    return reports


async def _evaluate_set(data: EvaluationSet, options: Options, published: Published) -> SetReport:
    data = replace(data, questions=spread(data.questions, options.limit))
    measure = _memory if data.is_memory else _over_http if options.http else _knowledge
    measured = await measure(data, options)
    if options.out:
        write_run(options.out / f"{data.name}.jsonl", measured.lists[OURS])
        if measured.recalled_answers:
            write_run(options.out / f"{data.name}.told.jsonl", measured.recalled_answers)
    groups = {value: _rows(_only(measured, value)) for value in _values(data)}
    return SetReport(
        name=data.name,
        rows=_rows(measured),
        notes=measured.notes,
        passages=passages(measured.lists[OURS]),
        groups=groups,
        published=published.get(data.name, {}),
    )


async def _knowledge(data: EvaluationSet, options: Options) -> _Measured:
    async with open_services(options.cache) as services:
        asked = await _ask_all(services, data)
        embed_ms = await services.embedding_ms([question.text for question in data.questions])
        plain = await _plain(services, whole_collections(data), asked.library, data.name)
        absent = await _ask_absent(services, data)
        threshold = services.container.settings.retrieval.rerank_score_threshold
    notes = (*_notes(asked.library, absent), f"embedding a question takes {embed_ms:.1f} ms more")
    return _Measured({OURS: asked.answers, **plain}, absent, notes, threshold)


async def _over_http(data: EvaluationSet, options: Options) -> _Measured:
    parts = [*whole_collections(data), *collections_without_answers(data)]
    keys = [key.strip() for key in os.environ.get("API_KEYS", "").split(",") if key.strip()]
    async with open_server([part.owner for part in parts], options.url, keys) as server:
        asked = await _ask_all(server, data)
        absent = await _ask_absent(server, data)
    notes = (*_notes(asked.library, absent), "over HTTP: the milliseconds are whole requests")
    threshold = load_settings().retrieval.rerank_score_threshold
    return _Measured({OURS: asked.answers}, absent, notes, threshold)


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
        f"{number:.1f} turns of ten reach the threshold and would be told",
        f"embedding a question takes {embed_ms:.1f} ms more",
    )
    return _Measured(lists | plain, [], notes, run.threshold, recalled_answers)


async def _ask_all(target: Target, data: EvaluationSet) -> _Asked:
    return await _ask(target, whole_collections(data), f"{data.name}:")


async def _ask_absent(target: Target, data: EvaluationSet) -> list[Answer]:
    """After all else: these copies of the documents count in how rare a word is."""
    parts = collections_without_answers(data)
    return (await _ask(target, parts, f"{data.name}: without answers,")).answers if parts else []


async def _ask(target: Target, parts: Sequence[Collection], label: str) -> _Asked:
    with tqdm(desc=f"{label} documents", total=sum(len(part.lines) for part in parts)) as bar:
        library = await read_in(target, parts, bar.update)
    answers: list[Answer] = []
    with tqdm(desc=f"{label} questions", total=sum(len(part.questions) for part in parts)) as bar:
        for part in parts:
            answers += await ask(target, part, library, bar.update)
    return _Asked(library, answers)


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
    notes += [f"{number} documents refused: {reason}" for reason, number in library.refused.most_common()]
    if absent:
        notes.append(f"refusal: {len(absent)} questions asked again where their answers are not")
    return tuple(notes)


def _rows(measured: _Measured) -> tuple[Row, ...]:
    ours = measured.lists[OURS]
    times = [answer.ms for answer in ours]
    shown = (quantile(times, 0.5), quantile(times, 0.99))
    rows = [our_row(OURS, ours, measured.absent, measured.threshold, shown)]
    if measured.recalled_answers:
        rows.append(replace(plain_row(f"{OURS}, told", measured.recalled_answers), auroc=None))
    return (*rows, *(plain_row(name, answers) for name, answers in measured.lists.items() if name != OURS))


def _values(data: EvaluationSet) -> list[str]:
    return sorted({value for question in data.questions for value in question.groups})


def _only(measured: _Measured, value: str) -> _Measured:
    """The questions of one group."""

    def chosen(answers: Sequence[Answer]) -> list[Answer]:
        return [answer for answer in answers if value in answer.question.groups]

    return replace(
        measured,
        lists={name: chosen(answers) for name, answers in measured.lists.items()},
        absent=chosen(measured.absent),
        recalled_answers=chosen(measured.recalled_answers),
    )
