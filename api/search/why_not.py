"""Why was this document not found? Its best chunks, stage by stage, and the stage that stood in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.messages import say
from api.search.stages import Judged, Stage
from api.turn.pipeline import Pipeline
from core.citing.key_passages import with_key_passages
from core.knowledge import Candidate, Chunk, Document, DocumentStatus, KnowledgeFilter
from core.limits import NO_LIMITS, fits
from core.relevance.query import Query
from services.retrieval.why_not import ListPlace, ListPlaces

BEST_CHUNKS = 3


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """One chunk of the document in the search of everything.

    `lists` are its places in the dense and the sparse lists, as far as they hold it; `judged` is None when
    fusion did not take it. `alone_probability` is what the reranker says when the document is the only one.
    """

    chunk: Chunk
    stage: Stage
    lists: tuple[ListPlace, ...] = ()
    judged: Judged | None = None
    alone_probability: float | None = None
    key_passage: str = ""


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """`stage` is how far its best chunk came; `message` says for people what to try. Best chunks first."""

    document: Document
    stage: Stage
    message: str
    chunks: tuple[ChunkPlaces, ...] = ()


class WhyNot:
    def __init__(self, pipeline: Pipeline, lists: ListPlaces) -> None:
        self._pipeline = pipeline
        self._lists = lists

    async def explain(
        self,
        query: Query,
        document: Document,
        owners: Sequence[str],
        judged: Sequence[Judged],
        limits: KnowledgeFilter = NO_LIMITS,
    ) -> DocumentReport:
        """`judged` are the candidates of the search of everything within `limits`.

        Raises StoreUnavailableError.
        """
        if document.status is not DocumentStatus.READY:
            return self._report(query, document, Stage.NOT_READY, ())
        search = _Search(judged, limits)
        own = {one.candidate.chunk.chunk_id: one for one in judged if _is_of(document, one.candidate)}
        places = await self._lists.of(query, owners, document.document_id, limits)
        only = KnowledgeFilter(document_ids=(document.document_id,))
        hits = await self._pipeline.retriever.search(query, owners, only)
        alone = with_key_passages(query, (await self._pipeline.reranking.rerank(query, hits)).candidates)
        chunks = sorted(_places(search, own, places, alone), key=_best_first)[:BEST_CHUNKS]
        stage = chunks[0].stage if chunks else Stage.NOT_FOUND
        return self._report(query, document, stage, tuple(chunks))

    def _report(
        self, query: Query, document: Document, stage: Stage, chunks: tuple[ChunkPlaces, ...]
    ) -> DocumentReport:
        which = f"_{document.status.value}" if stage is Stage.NOT_READY else ""
        message = say(f"why_{stage.value}{which}", self._pipeline.prompts.language(query.question))
        return DocumentReport(document, stage, message, chunks)


class _Search:
    """The search of everything: what it was limited to, and what its candidates say."""

    def __init__(self, judged: Sequence[Judged], limits: KnowledgeFilter) -> None:
        self._limits = limits
        self._texts = {one.candidate.chunk.indexed_text for one in judged}

    def stage_of(self, chunk: Chunk, lists: Sequence[ListPlace]) -> Stage:
        """The stage that dropped a chunk before the candidates."""
        if not fits(self._limits, chunk):
            return Stage.FILTERS
        if chunk.indexed_text in self._texts:
            return Stage.DUPLICATE
        return Stage.FUSION if any(place.handed_on for place in lists) else Stage.NOT_FOUND


def _places(
    search: _Search,
    own: Mapping[str, Judged],
    places: Mapping[str, tuple[ListPlace, ...]],
    alone: Sequence[Candidate],
) -> list[ChunkPlaces]:
    """Of the chunks that any search returned, in the order of the search of the document alone."""
    chances = {candidate.chunk.chunk_id: candidate for candidate in alone}
    chunks = {chunk_id: candidate.chunk for chunk_id, candidate in chances.items()}
    chunks |= {chunk_id: one.candidate.chunk for chunk_id, one in own.items()}
    return [
        _placed(search, chunk, own.get(chunk_id), places.get(chunk_id, ()), chances.get(chunk_id))
        for chunk_id, chunk in chunks.items()
    ]


def _placed(
    search: _Search,
    chunk: Chunk,
    judged: Judged | None,
    lists: tuple[ListPlace, ...],
    alone: Candidate | None,
) -> ChunkPlaces:
    best = judged.candidate if judged else alone
    return ChunkPlaces(
        chunk=chunk,
        stage=judged.stage if judged else search.stage_of(chunk, lists),
        lists=lists,
        judged=judged,
        alone_probability=alone.probability if alone else None,
        key_passage=best.key_passage if best else "",
    )


def _best_first(one: ChunkPlaces) -> tuple[int, float]:
    """How far it came, then how well it did there."""
    chance = one.judged.candidate.probability if one.judged else one.alone_probability or 0.0
    return -one.stage.order, -chance


def _is_of(document: Document, candidate: Candidate) -> bool:
    return candidate.chunk.document_id == document.document_id
