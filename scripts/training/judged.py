"""Questions searched through the product: the numbers each candidate has, and which of them are right."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from config.settings import RetrievalSettings
from core.relevance.features import FEATURES, QUESTION_FEATURES, Features, Matrix
from scripts.evaluation.baselines import Collection, collections_without_answers, whole_collections
from scripts.evaluation.in_process import open_services
from scripts.evaluation.knowledge import Library, read_in, request_of
from scripts.evaluation.sets import EvaluationSet, Question, spread
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.retriever import Retriever

SMALL = 25  # documents
MOST_SMALL = 12  # collections


def small(collections: Sequence[Collection], rng: random.Random) -> list[Collection]:
    """Some of the same documents dealt into small collections, as a person with a few files has."""
    parts: list[Collection] = []
    for whole in collections:
        lines = rng.sample(whole.lines, len(whole.lines))
        for at in range(0, min(len(lines), SMALL * MOST_SMALL), SMALL):
            dealt = lines[at : at + SMALL]
            here = {line.line_id for line in dealt}
            questions = [
                replace(question, gold={line: rel for line, rel in question.gold.items() if line in here})
                for question in whole.questions
                if here & question.gold.keys()
            ]
            parts.append(Collection(f"{whole.owner} small {at}", tuple(dealt), tuple(questions)))
    return parts


def bilingual(data: EvaluationSet, rng: random.Random) -> Collection | None:
    """A parallel set as one collection that holds each text in one of its languages only.

    A set is parallel when its scopes are languages and an id is `language:number`; None for others.
    """
    numbers = {line.line_id.partition(":")[2] for line in data.lines}
    if not all(line.line_id.startswith(f"{line.scope}:") for line in data.lines) or "" in numbers:
        return None
    chosen = {number: rng.choice(data.scopes) for number in sorted(numbers)}
    lines = tuple(line for line in data.lines if chosen[line.line_id.partition(":")[2]] == line.scope)
    here = {line.line_id for line in lines}
    questions = tuple(question for question in data.questions if question.gold.keys() <= here)
    return Collection(f"{data.name} both", lines, questions)


MOST_QUESTIONS = 400  # of one set in one kind of collection
STRANGE = 25  # questions of other sets that are asked of each collection of a set
# Ours: what people type into any question box, and what no guide answers.
OFF_TOPIC = (
    "今天天气怎么样？", "你是谁？", "讲个笑话", "明天会下雨吗", "世界杯谁赢了？", "帮我写一首诗",
    "现在几点了？", "推荐一部好看的电影", "比特币今天多少钱", "红烧肉怎么做？", "附近有什么好吃的",
    "我心情不好怎么办", "who won the world cup?", "what's the weather like today?", "tell me a joke",
    "how are you?", "write me a poem about the sea", "what time is it now?", "best pizza recipe",
    "how do I tie a tie?", "what is the bitcoin price today?", "who is the president of France?",
    "recommend a good movie", "thanks!",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """One question as it was searched.

    `part` is the set and the kind of collection; questions of one `group` never part into both halves of a
    trial. `documents`: whose chunk each candidate is; `gold`: how many are right. `kind`: answerable,
    unanswerable (says the set), absent (its answers were left out), strange.
    """

    part: str
    group: str
    kind: str
    rows: Matrix
    question: Matrix
    labels: Matrix
    documents: tuple[str, ...]
    gold: int

    @property
    def is_right(self) -> bool:
        """Whether there is something to find, and it is among the candidates."""
        return bool(self.labels.sum())


@dataclass(frozen=True, slots=True)
class _Asked:
    part: str
    kind: str
    owner: str
    question: Question
    group: str


async def collect(sets: Sequence[EvaluationSet], cache: Path, seed: int) -> AsyncIterator[Judged]:
    """Each set's own questions, the same without their answers, in small and in bilingual collections too,
    and questions of nowhere near."""
    rng = random.Random(seed)  # noqa: S311
    for data in sets:
        strange = [q for other in sets if other.name[:4] != data.name[:4] for q in other.questions]
        async for judged in _collect(data, rng.sample(strange, min(STRANGE, len(strange))), cache, rng):
            yield judged


async def _collect(
    data: EvaluationSet, strange: Sequence[Question], cache: Path, rng: random.Random
) -> AsyncIterator[Judged]:
    parts = dict(_parts(data, rng))
    async with open_services(cache) as services:
        collections = [collection for part in parts.values() for collection in part]
        with tqdm(desc=f"{data.name} documents", total=sum(len(c.lines) for c in collections)) as bar:
            library = await read_in(services, collections, bar.update)
        container = services.container
        builder = QueryBuilder(container.embedding)
        retriever = Retriever(
            container.store, container.settings.store.knowledge_collection, RetrievalSettings()
        )
        groups = {question.question_id: _group(question) for question in data.questions}
        for asked in tqdm([*_questions(parts, strange, groups, rng)], desc=f"{data.name} questions"):
            judged = await _judged(asked, builder, retriever, library)
            if judged is not None:
                yield judged


def _parts(data: EvaluationSet, rng: random.Random) -> Iterator[tuple[str, list[Collection]]]:
    whole = whole_collections(data)
    yield data.name, whole
    yield f"{data.name} absent", collections_without_answers(data)
    yield f"{data.name} small", small(whole, rng)
    if both := bilingual(data, rng):
        yield f"{data.name} both", [both]
        yield f"{data.name} both small", small([both], rng)


def _questions(
    parts: dict[str, list[Collection]],
    strange: Sequence[Question],
    groups: Mapping[str, str],
    rng: random.Random,
) -> Iterator[_Asked]:
    odd = [*(Question(text, text) for text in OFF_TOPIC), *strange]
    for part, collections in parts.items():
        asked = [(c.owner, question) for c in collections for question in c.questions]
        chosen = spread(tuple(question for _, question in asked), MOST_QUESTIONS)
        owners = {id(question): owner for owner, question in asked}
        for question in chosen:
            yield _Asked(
                part, _kind(part, question), owners[id(question)], question, groups[question.question_id]
            )
        for question in odd if collections and "absent" not in part else ():
            alone = replace(question, answerable=False, gold={}, previous=(), last_answer="")
            yield _Asked(part, "strange", rng.choice(collections).owner, alone, alone.question_id)


def _kind(part: str, question: Question) -> str:
    if part.endswith("absent"):
        return "absent"
    return "answerable" if question.answerable else "unanswerable"


async def _judged(
    asked: _Asked, builder: QueryBuilder, retriever: Retriever, library: Library
) -> Judged | None:
    """None for a question that is answerable, says the set, by documents that nobody named."""
    question = asked.question
    if asked.kind == "answerable" and not question.gold:
        return None
    request = request_of(question, asked.owner)
    query = await builder.build(
        request.question, request.previous_questions, last_answer=request.last_answer, date=request.date
    )
    candidates = await retriever.search(query, [asked.owner])
    if not candidates:
        return None
    right = [
        any(line in question.gold for line in library.line_ids([candidate.chunk.document_id]))
        for candidate in candidates
    ]
    features = Features(query, candidates)
    assert features.rows.shape[1] == len(FEATURES)
    assert len(features.question) == len(QUESTION_FEATURES)
    labels = np.array(right, dtype=float) * (asked.kind == "answerable")
    group = f"{asked.part.split()[0]}:{asked.group}"
    documents = tuple(candidate.chunk.document_id for candidate in candidates)
    return Judged(
        asked.part, group, asked.kind, features.rows, features.question, labels, documents, len(question.gold)
    )


def _group(question: Question) -> str:
    """A conversation, or the document that answers, whatever its language."""
    conversation, marker, _ = question.question_id.partition("<::>")
    first = min(question.gold, default=question.question_id)
    return conversation if marker else first.partition(":")[2] or first
