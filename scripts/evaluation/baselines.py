"""Baselines: plain lists of the same store, by meaning, by words, and both fused by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.relevance.query import embedded_part, reciprocal_rank_fusion
from core.relevance.sparse import encode_query
from scripts.evaluation.figures import Answer
from scripts.evaluation.sets import EvaluationSet, Line, Question
from services.models.embedding import EmbeddingService
from services.store.dialect import Filter, QueryRequest, ScoredPoint, SparseVector, VectorStore
from services.store.points import equals

DEPTH = 100
DENSE, SPARSE, RRF, REWRITTEN = "dense", "sparse", "rrf", "rrf, human rewrite"
Scored = list[tuple[str, float]]
LinesOf = Callable[[ScoredPoint], Sequence[str]]
"""Returns the lines of a set that a point of the store represents."""


@dataclass(frozen=True, slots=True)
class Index:
    """The collection with the vectors, and the dense vector's name."""

    store: VectorStore
    embedding: EmbeddingService
    collection: str
    dense: str = DENSE


async def baseline_answers(
    index: Index, question: Question, point_filter: Filter, lines_of: LinesOf
) -> dict[str, Answer]:
    """Search by the last turn alone, and by the set's own rewrite, which the product never sees."""
    dense, sparse = await _search(index, question.text, point_filter)
    answers = {
        DENSE: Answer(question, _first(_scored(dense), lines_of)),
        SPARSE: Answer(question, _first(_scored(sparse), lines_of)),
        RRF: Answer(question, _first(_fused(dense, sparse), lines_of)),
    }
    if question.rewrite:
        rewritten = await _search(index, question.rewrite, point_filter)
        answers[REWRITTEN] = Answer(question, _first(_fused(*rewritten), lines_of))
    return answers


def documents_of(owner: str) -> Filter:
    """Match one owner's searchable documents."""
    return Filter(must=[equals("ready", True), equals("owner", owner)])


async def _search(
    index: Index, text: str, point_filter: Filter
) -> tuple[Sequence[ScoredPoint], Sequence[ScoredPoint]]:
    """Return the hits by meaning and by words."""
    vector = (await index.embedding.embed_queries([embedded_part(text)]))[0]
    words = encode_query(text)
    requests = [_request(vector, index.dense, point_filter)]
    if words.indices:
        sparse = SparseVector(indices=words.indices, values=words.values)
        requests.append(_request(sparse, SPARSE, point_filter))
    responses = await index.store.query_batch_points(index.collection, requests)
    points = [each.points for each in responses]
    return points[0], points[1] if words.indices else []


def _request(vector: list[float] | SparseVector, using: str, point_filter: Filter) -> QueryRequest:
    return QueryRequest(
        query=vector, using=using, filter=point_filter, limit=DEPTH, with_payload=["document_id"]
    )


def _scored(points: Sequence[ScoredPoint]) -> list[tuple[ScoredPoint, float]]:
    return [(point, point.score) for point in points]


def _fused(dense: Sequence[ScoredPoint], sparse: Sequence[ScoredPoint]) -> list[tuple[ScoredPoint, float]]:
    points = {str(point.id): point for point in (*sparse, *dense)}
    rankings = [[str(point.id) for point in ranking] for ranking in (dense, sparse)]
    return [(points[key], score) for key, score in reciprocal_rank_fusion(rankings)]


def _first(points: Iterable[tuple[ScoredPoint, float]], lines_of: LinesOf) -> Scored:
    """Return each line once, at its best rank."""
    best: dict[str, float] = {}
    for point, score in points:
        for line in lines_of(point):
            best.setdefault(line, score)
    return list(best.items())


# The same questions asked of a collection without their answers.
#
# A set without unanswerable questions says nothing about refusal. So the questions of each scope are split
# into two halves, and for each half the scope's documents are ingested once more under another owner, without
# those that answer any question of that half (or have the same text). So every question meets a real,
# smaller collection in the real store, with realistic ranks and scores. Its vectors are cached by then.


HALVES = 2


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents of one owner and the questions asked of them."""

    owner: str
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]


def whole_collections(data: EvaluationSet) -> list[Collection]:
    """Return one collection per scope, including scopes without questions or without documents."""
    scopes = dict.fromkeys([*data.scopes, *(question.scope for question in data.questions)])
    return [
        Collection(
            owner=f"{data.name}/{scope}",
            lines=tuple(line for line in data.lines if line.scope == scope),
            questions=tuple(question for question in data.questions if question.scope == scope),
        )
        for scope in scopes
    ]


def collections_without_answers(data: EvaluationSet) -> list[Collection]:
    """Return collections whose questions are now unanswerable; [] if the set has unanswerable ones itself."""
    if data.has_refusals:
        return []
    collections = [
        part for scope in whole_collections(data) for half in range(HALVES) for part in _without(scope, half)
    ]
    return [part for part in collections if part.lines and part.questions]


def _without(scope: Collection, half: int) -> Iterator[Collection]:
    # keep questions of one document together, so that each half keeps as many documents as possible
    judged = sorted((q for q in scope.questions if q.gold), key=lambda question: min(question.gold))
    middle = len(judged) // HALVES
    asked = judged[:middle] if half == 0 else judged[middle:]
    gold = {line_id for question in asked for line_id in question.gold}
    texts = {line.text for line in scope.lines if line.line_id in gold}
    yield Collection(
        owner=f"{scope.owner} without {half}",
        lines=tuple(line for line in scope.lines if line.line_id not in gold and line.text not in texts),
        questions=tuple(replace(question, answerable=False, gold={}) for question in asked),
    )
