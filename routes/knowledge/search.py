"""POST /search: retrieval without an answer, to see why something was or was not found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api.search.handler import SearchReport, SearchRequest
from api.search.why_not import ChunkPlaces, DocumentReport, Judged
from core.conversation.turns import UNSET
from core.errors import BadRequestError
from routes.dependencies import ContainerDep, Owner, json_body
from routes.openapi import WireRoute, errors
from routes.wire import search as wire
from routes.wire.fields import filter_of, text_of

router = APIRouter(
    tags=["search"], responses=errors(400, 401, 404, 413, 415, 422, 503), route_class=WireRoute
)


@router.post("/search")
async def search(
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.SearchBody, Depends(json_body(wire.SearchBody))],
) -> wire.SearchResult:
    """Every candidate with its rank and score at each stage, best first, and the stage that dropped it.

    With `document_id`, also how far that document got, and which stage dropped it.
    """
    return _result(await container.search.search(_request(body, owner)))


def _request(body: wire.SearchBody, owner: str) -> SearchRequest:
    """Raises BadRequestError for mutually exclusive fields."""
    if body.session_id is not None and (body.previous_questions or body.last_answer):
        raise BadRequestError("previous_questions, last_answer: cannot be combined with session_id.")
    names_parent = "parent_turn_id" in body.model_fields_set
    if body.session_id is None and names_parent:
        raise BadRequestError("parent_turn_id: needs session_id.")
    return SearchRequest(
        question=body.question,
        owner=owner,
        top_n=body.top_n,
        document_id=text_of(body.document_id),
        previous_questions=tuple(body.previous_questions),
        last_answer=body.last_answer,
        date=body.date,
        session_id=text_of(body.session_id),
        parent_turn_id=text_of(body.parent_turn_id) if names_parent else UNSET,
        model_id=body.model_id,
        filters=filter_of(body.filters),
    )


def _result(report: SearchReport) -> wire.SearchResult:
    """`document` is included only if one was asked about."""
    body: dict[str, Any] = {
        "candidates": [_candidate(judged) for judged in report.candidates],
        "reranker": report.reranker,
        "fell_back": report.fell_back,
        "sample_left_out": report.sample_left_out,
    }
    if report.document:
        body["document"] = _document_places(report.document)
    return wire.SearchResult(**body)


def _candidate(judged: Judged) -> wire.Candidate:
    """Return a candidate with its rank and score at each stage, and the stage that dropped it."""
    candidate = judged.candidate
    return wire.Candidate(
        **asdict(candidate.chunk),
        **_stages(judged),
        probability=candidate.probability,
        key_passage=candidate.key_passage,
        kept=judged.dropped_by is None,
        dropped_by=judged.dropped_by,
    )


def _stages(judged: Judged) -> dict[str, Any]:
    """Null for stages it did not reach; a null rank in a list: that list did not contain it."""
    candidate = judged.candidate
    reranked = room = None
    if judged.reranked_rank is not None:
        reranked = wire.Reranked(rank=judged.reranked_rank, probability=candidate.probability)
    if judged.tokens is not None:
        room = wire.Room(index=judged.index, tokens=judged.tokens)
    return {
        "dense": wire.Place(rank=candidate.dense_rank, score=candidate.dense),
        "sparse": wire.Place(rank=candidate.sparse_rank, score=candidate.sparse),
        "fused": wire.Place(rank=judged.fused_rank, score=candidate.fused),
        "reranked": reranked,
        "budget": room,
    }


def _document_places(report: DocumentReport) -> wire.DocumentPlaces:
    return wire.DocumentPlaces(
        **asdict(report.document),
        stage=report.stage.value,
        message=report.message,
        chunks=[_chunk_places(chunk) for chunk in report.chunks],
    )


def _chunk_places(one: ChunkPlaces) -> wire.ChunkPlaces:
    """`rank` null: beyond the first thousand; `last_score` is the score of the last one that got further."""
    lists = {
        place.kind: wire.PlaceAmongAll(
            rank=place.rank, score=place.score, last_score=place.last_score, kept=place.handed_on
        )
        for place in one.lists
    }
    judged = _stages(one.judged) if one.judged else dict.fromkeys(("fused", "reranked", "budget"))
    return wire.ChunkPlaces(
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
