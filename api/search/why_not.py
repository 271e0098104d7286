"""The outcome of every candidate of a search: its rank at each stage, and the stage that dropped it.

For "why was this document not found?": its best chunks stage by stage, and the stage that stopped them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.messages import say
from api.turn.gathering import Pipeline
from api.turn.prompt import Prompt
from core.citing.citations import with_key_passages
from core.knowledge import (
    COPIED,
    Candidate,
    Chunk,
    Document,
    DocumentStatus,
    KnowledgeFilter,
    SearchScope,
    fits,
)
from core.prompt.fence import render_block
from core.relevance.query import Query
from core.text import language_in
from services.retrieval.retriever import ListPlace, ListPlaces


class Stage(StrEnum):
    """What can keep a document from the model, in pipeline order; `shown`: nothing did.

    `filters`: outside the question's filters. `sample`: part of Wenmai's own guide, which is left out beside
    the owner's documents. `duplicate`: an identical chunk was taken instead. `reranker`: dropped by a
    reranker that returns fewer candidates than it received.
    """

    NOT_READY = "not_ready"
    FILTERS = "filters"
    SAMPLE = "sample"
    NOT_FOUND = "not_found_by_any_list"
    FUSION = "fusion"
    DUPLICATE = "duplicate"
    RERANKER = "reranker"
    THRESHOLD = "threshold"
    TOP_N = "top_n"
    BUDGET = "budget"
    SHOWN = "shown"

    @property
    def order(self) -> int:
        return list(Stage).index(self)


@dataclass(frozen=True, slots=True)
class Judged:
    """Ranks count from 1. `tokens` is the size of its block in the knowledge context and `index` its citation
    number there; both are None if it was not chosen, `index` also if it did not fit."""

    candidate: Candidate
    stage: Stage
    fused_rank: int
    reranked_rank: int | None = None
    tokens: int | None = None
    index: int | None = None

    @property
    def dropped_by(self) -> str | None:
        return None if self.stage is Stage.SHOWN else self.stage.value


@dataclass(frozen=True, slots=True)
class Ranking:
    """A search's results by stage: `candidates` in fused order, `ranked` by the reranker, `likely` above the
    threshold, `chosen` by top_n, and the prompt that the chosen ones were fitted into."""

    candidates: Sequence[Candidate]
    ranked: Sequence[Candidate]
    likely: Sequence[Candidate]
    chosen: Sequence[Candidate]
    prompt: Prompt

    def judged(self) -> tuple[Judged, ...]:
        """Return every candidate, best first; last come those that the reranker dropped or that their
        translation replaced."""
        fused = {_id(candidate): rank for rank, candidate in enumerate(self.candidates, start=1)}
        chosen = {_id(candidate): place for place, candidate in enumerate(self.chosen, start=1)}
        likely = {_id(candidate) for candidate in self.likely}
        ranked = [
            self._judged(candidate, fused.get(_id(candidate), rank), rank, chosen.get(_id(candidate)), likely)
            for rank, candidate in enumerate(self.ranked, start=1)
        ]
        handed_back = {_id(candidate) for candidate in self.ranked}
        left_out = [candidate for candidate in self.candidates if _id(candidate) not in handed_back]
        return (
            *ranked,
            *(Judged(candidate, Stage.RERANKER, fused[_id(candidate)]) for candidate in left_out),
        )

    def _judged(
        self, candidate: Candidate, fused: int, rank: int, place: int | None, likely: Collection[str]
    ) -> Judged:
        if place is None:
            stage = Stage.TOP_N if _id(candidate) in likely else Stage.THRESHOLD
            return Judged(candidate, stage, fused, rank)
        fits = place <= len(self.prompt.candidates)  # the prompt holds a prefix of the chosen ones
        block = render_block(
            place, self.prompt.blocks[place - 1] if fits else candidate, self.prompt.texts.code
        )
        tokens = self.prompt.budget.count(block)
        stage, index = (Stage.SHOWN, place) if fits else (Stage.BUDGET, None)
        return Judged(candidate, stage, fused, rank, tokens, index)


def _id(candidate: Candidate) -> str:
    return candidate.chunk.chunk_id


BEST_CHUNKS = 3


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """One chunk of the document in the full search.

    `lists` are its ranks in the dense and sparse lists that contain it; `judged` is None if fusion dropped
    it. `alone_probability` is the reranker's judgement when this document alone is searched.
    """

    chunk: Chunk
    stage: Stage
    lists: tuple[ListPlace, ...] = ()
    judged: Judged | None = None
    alone_probability: float | None = None
    key_passage: str = ""


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """`stage` is how far its best chunk got; `message` tells people what to try. Best chunks first."""

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
        limits: KnowledgeFilter,
        scope: SearchScope,
    ) -> DocumentReport:
        """`judged` are the candidates of the search of `scope` within `limits`.

        Raises StoreUnavailableError.
        """
        if document.status is not DocumentStatus.READY:
            return self._report(query, document, Stage.NOT_READY, ())
        search = _Search(judged, limits, left_out=scope.without_sample and document.is_sample)
        own = {one.candidate.chunk.chunk_id: one for one in judged if _belongs_to(document, one.candidate)}
        places = await self._lists.of(query, owners, document.document_id, limits, scope)
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
        message = say(f"why_{stage.value}{which}", language_in(query.question, query.previous))
        return DocumentReport(document, stage, message, chunks)


class _Search:
    """The full search: its limits, and the texts of its candidates."""

    def __init__(self, judged: Sequence[Judged], limits: KnowledgeFilter, *, left_out: bool) -> None:
        self._limits = limits
        self._left_out = left_out
        self._texts = {_words_of(one.candidate.chunk) for one in judged}

    def stage_of(self, chunk: Chunk, lists: Sequence[ListPlace]) -> Stage:
        """Return the stage that dropped a chunk before it became a candidate."""
        if not fits(self._limits, chunk):
            return Stage.FILTERS
        if self._left_out:
            return Stage.SAMPLE
        if _words_of(chunk) in self._texts:
            return Stage.DUPLICATE
        return Stage.FUSION if any(place.handed_on for place in lists) else Stage.NOT_FOUND


def _words_of(chunk: Chunk) -> tuple[str, ...]:
    return tuple(str(getattr(chunk, field)) for field in COPIED)


def _places(
    search: _Search,
    own: Mapping[str, Judged],
    places: Mapping[str, tuple[ListPlace, ...]],
    alone: Sequence[Candidate],
) -> list[ChunkPlaces]:
    """Cover the chunks that any search returned, in the order of the search of the document alone."""
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
    """Sort by how far a chunk got, then by its probability."""
    chance = one.judged.candidate.probability if one.judged else one.alone_probability or 0.0
    return -one.stage.order, -chance


def _belongs_to(document: Document, candidate: Candidate) -> bool:
    return candidate.chunk.document_id == document.document_id
