"""Documents, jobs, chunks, candidates and sources as the replies that go over the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from api.search.handler import SearchReport
from api.search.why_not import ChunkPlaces, DocumentReport, Judged
from core.knowledge import SHARED_OWNER, Document, Surroundings
from routes.wire import documents, search


def document_reply(document: Document) -> documents.Document:
    return documents.Document(
        **asdict(document), shared=document.owner == SHARED_OWNER, sample=document.is_sample
    )


def surroundings_reply(around: Surroundings) -> documents.ChunkInPlace:
    return documents.ChunkInPlace(
        **asdict(around.chunk),
        neighbours=documents.Neighbours.model_validate(around),
        section=around.section,
    )


def search_reply(report: SearchReport) -> search.SearchResult:
    """With `document` only where one was asked about."""
    body: dict[str, Any] = {
        "candidates": [_candidate(judged) for judged in report.candidates],
        "reranker": report.reranker,
        "fell_back": report.fell_back,
        "sample_left_out": report.sample_left_out,
    }
    if report.document:
        body["document"] = _document_places(report.document)
    return search.SearchResult(**body)


def _candidate(judged: Judged) -> search.Candidate:
    """A candidate with its rank and score at each stage, and the stage that dropped it."""
    candidate = judged.candidate
    return search.Candidate(
        **asdict(candidate.chunk),
        **_stages(judged),
        probability=candidate.probability,
        key_passage=candidate.key_passage,
        kept=judged.dropped_by is None,
        dropped_by=judged.dropped_by,
    )


def _stages(judged: Judged) -> dict[str, Any]:
    """Null where it did not come that far; in a list, a null rank: that list did not bring it."""
    candidate = judged.candidate
    reranked = room = None
    if judged.reranked_rank is not None:
        reranked = search.Reranked(rank=judged.reranked_rank, probability=candidate.probability)
    if judged.tokens is not None:
        room = search.Room(index=judged.index, tokens=judged.tokens)
    return {
        "dense": search.Place(rank=candidate.dense_rank, score=candidate.dense),
        "sparse": search.Place(rank=candidate.sparse_rank, score=candidate.sparse),
        "fused": search.Place(rank=judged.fused_rank, score=candidate.fused),
        "reranked": reranked,
        "budget": room,
    }


def _document_places(report: DocumentReport) -> search.DocumentPlaces:
    return search.DocumentPlaces(
        **asdict(report.document),
        stage=report.stage.value,
        message=report.message,
        chunks=[_chunk_places(chunk) for chunk in report.chunks],
    )


def _chunk_places(one: ChunkPlaces) -> search.ChunkPlaces:
    """`rank` null: beyond the first thousand; `last_score` is what the last one had that got further."""
    lists = {
        place.kind: search.PlaceAmongAll(
            rank=place.rank, score=place.score, last_score=place.last_score, kept=place.handed_on
        )
        for place in one.lists
    }
    judged = _stages(one.judged) if one.judged else dict.fromkeys(("fused", "reranked", "budget"))
    return search.ChunkPlaces(
        **{
            **asdict(one.chunk),
            **judged,
            "dense": lists.get("dense"),
            "sparse": lists.get("sparse"),
            "stage": one.stage.value,
            "alone_probability": one.alone_probability,
            "key_passage": one.key_passage,
        }
    )
