"""Questions searched through the product: each candidate's features, and which candidates are right."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from api.container import Container
from api.search.handler import SearchRequest
from config.settings import RetrievalSettings
from core.formats import supported_files
from core.knowledge import Candidate, Upload
from core.relevance.features import LANGUAGE_CHARS, NO_LEVELS, Features, Level, Levels, Matrix
from core.relevance.query import Query
from core.text import holds_chinese, is_mostly_chinese
from scripts.evaluation.baselines import (
    Collection,
    collections_without_answers,
    documents_of,
    whole_collections,
)
from scripts.evaluation.in_process import Services, hit_of, open_services
from scripts.evaluation.judging import TurnQuestion, load_questions
from scripts.evaluation.knowledge import Library, ingest_lines, request_of, request_of_turn
from scripts.evaluation.sets import TURNS_FILE, EvaluationSet, Question, spread
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.retriever import Retriever

SMALL = 25  # documents
MAX_SMALL = 12  # collections


def small(collections: Sequence[Collection], rng: random.Random) -> list[Collection]:
    """Split some of the same documents into small collections, like those of a person with a few files."""
    parts: list[Collection] = []
    for whole in collections:
        lines = rng.sample(whole.lines, len(whole.lines))
        for at in range(0, min(len(lines), SMALL * MAX_SMALL), SMALL):
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
    """Return a parallel set as one collection that contains each text in only one of its languages.

    A set is parallel if its scopes are languages and its ids are `language:number`; None for others.
    """
    numbers = {line.line_id.partition(":")[2] for line in data.lines}
    if not all(line.line_id.startswith(f"{line.scope}:") for line in data.lines) or "" in numbers:
        return None
    chosen = {number: rng.choice(data.scopes) for number in sorted(numbers)}
    lines = tuple(line for line in data.lines if chosen[line.line_id.partition(":")[2]] == line.scope)
    here = {line.line_id for line in lines}
    questions = tuple(question for question in data.questions if question.gold.keys() <= here)
    return Collection(f"{data.name} both", lines, questions)


def twins(data: EvaluationSet) -> Collection:
    """Return a parallel set as one collection that contains each text in all its languages; the answer is the
    text in the question's language."""
    chinese = {line.line_id: holds_chinese(line.text) for line in data.lines}
    questions = (
        replace(question, gold={line: rel for line, rel in question.gold.items() if chinese[line] == asked})
        for question in data.questions
        for asked in (is_mostly_chinese(question.text),)
    )
    return Collection(f"{data.name} twins", data.lines, tuple(each for each in questions if each.gold))


MAX_QUESTIONS = 400  # of one set in one kind of collection
STRANGE = 25  # questions of other sets, asked in each kind of collection of a set
# Our own: what people type into any question box, and what no guide answers.
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
    """One question's features, as computed by `Features`.

    `part` is the set and the kind of collection, or a folder; questions of one `family` are never split
    between training and test. `documents`: each candidate's document (in a folder, the chunk itself); `gold`:
    how many are right. `kind`: answerable, unanswerable (according to the set), absent (its answers were left
    out), strange.
    """

    part: str
    kind: str
    rows: Matrix
    question: Matrix
    labels: Matrix
    documents: tuple[str, ...]
    gold: int
    is_of_folder: bool = False
    tokens: Matrix | None = None

    @property
    def known_tokens(self) -> Matrix:
        """Raises ValueError if they are unknown."""
        if self.tokens is None:
            raise ValueError("no tokens")
        return self.tokens

    @property
    def family(self) -> str:
        """The set, whatever collection was derived from it."""
        return self.part.split()[0]

    @property
    def is_right(self) -> bool:
        """Whether there is an answer, and it is among the candidates."""
        return bool(self.labels.sum())


@dataclass(frozen=True, slots=True)
class Searched:
    """One question and its candidates. `near_random`: mean and deviation of its cosines to random texts, by
    whether these are Chinese, if there are enough."""

    part: str
    kind: str
    query: Query
    candidates: tuple[Candidate, ...]
    labels: Matrix
    gold: int
    near_random: Mapping[bool, tuple[float, float]]
    is_of_folder: bool = False

    def judged(self, levels: Levels, token_levels: Levels = NO_LEVELS) -> Judged:
        features = Features(self.query, self.candidates, levels)
        tokens = features.tokens(token_levels)
        chunks = (candidate.chunk for candidate in self.candidates)
        documents = tuple(each.chunk_id if self.is_of_folder else each.document_id for each in chunks)
        return Judged(
            self.part, self.kind, features.rows, features.question, self.labels, documents, self.gold,
            self.is_of_folder, tokens,
        )  # fmt: skip


Near = Mapping[bool, tuple[float, float]]


def levels_of(
    searched: Sequence[Searched], near_of: Callable[[Searched], Near] = lambda one: one.near_random
) -> Levels:
    """Compute the levels; every set counts the same, however many questions it has."""
    known: dict[tuple[bool, bool], dict[str, list[tuple[float, float]]]] = {}
    for one in searched:
        for chinese, near in near_of(one).items():
            pair = (is_mostly_chinese(one.query.question), chinese)
            known.setdefault(pair, {}).setdefault(one.part.split()[0], []).append(near)
    means = {
        pair: np.mean([np.mean(each, axis=0) for each in sets.values()], axis=0)
        for pair, sets in known.items()
    }
    return {
        pair: Level(round(float(mean), 4), round(float(spread), 4)) for pair, (mean, spread) in means.items()
    }


def tokens_near(one: Searched) -> Near:
    """Return how near the question's tokens are to its candidates', by whether these are Chinese."""
    rows = Features(one.query, one.candidates).tokens(NO_LEVELS)
    if rows is None:
        return {}
    near = rows[:, 0]
    chinese = np.array(
        [holds_chinese(f"{c.chunk.heading} {c.chunk.text}"[:LANGUAGE_CHARS]) for c in one.candidates]
    )
    sides = {side: near[chinese == side] for side in (False, True)}
    return {side: (float(own.mean()), float(own.std())) for side, own in sides.items() if len(own) > 1}


SAMPLE = 256  # chunks of a collection
MIN_TEXTS = 20  # texts of a language; fewer are not representative


class Sampled:
    """A random sample of a collection's texts: ids are hashes, so the first ones will do."""

    def __init__(self, texts: Sequence[str], vectors: Matrix) -> None:
        self._chinese = np.array([holds_chinese(text) for text in texts], dtype=bool)
        self._vectors = vectors

    @classmethod
    async def of(cls, container: Container, owner: str) -> Sampled:
        records, _ = await container.store.scroll(
            container.settings.store.knowledge_collection,
            scroll_filter=documents_of(owner), limit=SAMPLE, with_payload=["text"], with_vectors=["dense"],
        )  # fmt: skip
        texts = [str((record.payload or {})["text"]) for record in records]
        vectors = [record.vector["dense"] for record in records if isinstance(record.vector, dict)]
        return cls(texts, np.array(vectors, dtype=float).reshape(len(texts), -1))

    def near(self, query: Query) -> dict[bool, tuple[float, float]]:
        near: dict[bool, tuple[float, float]] = {}
        for chinese in (False, True):
            vectors = self._vectors[self._chinese == chinese]
            if len(vectors) >= MIN_TEXTS:
                cosines = vectors @ np.asarray(query.forms[0].dense, dtype=float)
                near[chinese] = (float(cosines.mean()), float(cosines.std()))
        return near


@dataclass(frozen=True, slots=True)
class _AskedQuestion:
    part: str
    kind: str
    owner: str
    question: Question


async def collect(sets: Sequence[EvaluationSet], cache: Path, seed: int) -> AsyncIterator[Searched]:
    """Search each set's own questions, with and without their answers, also in small and bilingual
    collections, and unrelated questions."""
    rng = random.Random(seed)  # noqa: S311
    for data in sets:
        strange = [q for other in sets if other.name[:4] != data.name[:4] for q in other.questions]
        async for searched in _collect(data, rng.sample(strange, min(STRANGE, len(strange))), cache, rng):
            yield searched


async def _collect(
    data: EvaluationSet, strange: Sequence[Question], cache: Path, rng: random.Random
) -> AsyncIterator[Searched]:
    parts = dict(_parts(data, rng))
    async with open_services(cache) as services:
        collections = [collection for part in parts.values() for collection in part]
        with tqdm(desc=f"{data.name} documents", total=sum(len(c.lines) for c in collections)) as bar:
            library = await ingest_lines(services, collections, bar.update)
        search = Search(services.container)
        for asked in tqdm([*_questions(parts, strange, rng)], desc=f"{data.name} questions"):
            if asked.kind == "answerable" and not asked.question.gold:
                continue  # answerable, but the answering documents are not labelled
            query, candidates, near = await search(request_of(asked.question, asked.owner))
            if candidates:
                yield _searched(asked, query, candidates, near, library)


class Search:
    """Searches as a turn does; each owner's collection is sampled once."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._queries = QueryBuilder(container.embedding)
        names = container.settings.store
        self._retriever = Retriever(
            container.store,
            names.knowledge_collection,
            RetrievalSettings(),
            embedding=container.embedding.name,
        )
        self._sampled: dict[str, Sampled] = {}

    async def __call__(
        self, request: SearchRequest
    ) -> tuple[Query, list[Candidate], dict[bool, tuple[float, float]]]:
        query = await self._queries.build(
            request.question, request.previous_questions, last_answer=request.last_answer, date=request.date
        )
        if request.owner not in self._sampled:
            self._sampled[request.owner] = await Sampled.of(self._container, request.owner)
        candidates = await self._retriever.search(query, [request.owner])
        return query, candidates, self._sampled[request.owner].near(query)


def _parts(data: EvaluationSet, rng: random.Random) -> Iterator[tuple[str, list[Collection]]]:
    whole = whole_collections(data)
    yield data.name, whole
    yield f"{data.name} absent", collections_without_answers(data)
    yield f"{data.name} small", small(whole, rng)
    if both := bilingual(data, rng):
        yield f"{data.name} both", [both]
        yield f"{data.name} both small", small([both], rng)
        yield f"{data.name} twins", [twins(data)]


def _questions(
    parts: dict[str, list[Collection]], strange: Sequence[Question], rng: random.Random
) -> Iterator[_AskedQuestion]:
    odd = [*(Question(text, text) for text in OFF_TOPIC), *strange]
    for part, collections in parts.items():
        asked = [(c.owner, question) for c in collections for question in c.questions]
        chosen = spread(tuple(question for _, question in asked), MAX_QUESTIONS)
        owners = {id(question): owner for owner, question in asked}
        for question in chosen:
            yield _AskedQuestion(part, _kind(part, question), owners[id(question)], question)
        for question in odd if collections and "absent" not in part else ():
            alone = replace(question, answerable=False, gold={}, previous=(), last_answer="")
            yield _AskedQuestion(part, "strange", rng.choice(collections).owner, alone)


def _kind(part: str, question: Question) -> str:
    if part.endswith("absent"):
        return "absent"
    return "answerable" if question.answerable else "unanswerable"


def _searched(
    asked: _AskedQuestion,
    query: Query,
    candidates: Sequence[Candidate],
    near: Mapping[bool, tuple[float, float]],
    library: Library,
) -> Searched:
    gold = asked.question.gold
    right = [
        any(line in gold for line in library.line_ids([candidate.chunk.document_id]))
        for candidate in candidates
    ]
    labels = np.array(right, dtype=float) * (asked.kind == "answerable")
    return Searched(asked.part, asked.kind, query, tuple(candidates), labels, len(gold), near)


SPLIT = "dev"  # the other half is for evaluating the result


async def collect_folders(folder: Path, cache: Path) -> AsyncIterator[Searched]:
    """Search the questions of every folder in `folder` that has documents and questions."""
    names = _names(folder)
    async with open_services(cache) as services:
        search = Search(services.container)
        for name in tqdm(names, desc="folders"):
            await _ingest(services, folder / name / "documents", name)
            for question in load_questions(folder / name, SPLIT):
                query, candidates, near = await search(request_of_turn(question, name))
                kind = "answerable" if question.answerable else "unanswerable"
                labels = _labels(question, candidates)
                gold = max(1, int(labels.sum()))
                yield Searched(name, kind, query, tuple(candidates), labels, gold, near, is_of_folder=True)


def _names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"*/{TURNS_FILE}"))


async def _ingest(services: Services, documents: Path, owner: str) -> None:
    for path in supported_files(documents):
        await services.add(Upload(owner, path.name, path.read_bytes()))


def _labels(
    question: TurnQuestion, candidates: Sequence[Candidate]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    right = [question.answerable and question.is_answered_by(hit_of(each)) for each in candidates]
    return np.array(right, dtype=float)
