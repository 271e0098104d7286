"""POST /search: retrieval alone, for those who want to see why something was found or not."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import Field

from api.search.handler import SearchRequest
from api.search.why_not import ChunkPlaces, DocumentReport
from core.errors import BadRequestError
from routes.dependencies import ContainerDep, Owner
from routes.fields import AtMost, IsoDate, PlainText, Uuid, WireModel
from routes.filters import FiltersBody, filter_of
from routes.json_body import body_schema, json_body
from routes.openapi import errors
from routes.wire import candidate_object, chunk_object, stages_object
from services.conversation_manager import UNSET

router = APIRouter(tags=["search"], responses=errors(400, 401, 404, 413, 415, 422, 503))

MAX_PREVIOUS = 10


class SearchBody(WireModel):
    """What POST /search takes."""

    question: str = Field(max_length=8_000)
    top_n: int = Field(10, ge=1, le=50)
    previous_questions: list[Annotated[PlainText, AtMost(8_000)]] = Field(
        [], max_length=MAX_PREVIOUS, description="What was asked before, oldest first."
    )
    last_answer: Annotated[PlainText, AtMost(100_000)] = Field("", description="To the last of them.")
    date: IsoDate = Field(
        "", description="The day, month or year that the question asks about: YYYY-MM-DD, YYYY-MM, YYYY."
    )
    session_id: Uuid | None = Field(None, description="Instead: what was asked before is of this session.")
    parent_turn_id: Uuid | None = Field(
        None, description="Absent: below the session's latest completed turn; null: a new root."
    )
    model_id: str = Field("default", max_length=200, description="Whose window the passages must fit into.")
    document_id: Uuid | None = Field(None, description="Why was this document not found?")
    filters: FiltersBody | None = Field(None, description="Which documents may be found; absent: all.")

    def to_request(self, owner: str) -> SearchRequest:
        """Raises BadRequestError for fields that exclude each other."""
        if self.session_id is not None and (self.previous_questions or self.last_answer):
            raise BadRequestError("previous_questions, last_answer: not together with session_id.")
        given_parent = "parent_turn_id" in self.model_fields_set
        if self.session_id is None and given_parent:
            raise BadRequestError("parent_turn_id: only together with session_id.")
        return SearchRequest(
            question=self.question,
            owner=owner,
            top_n=self.top_n,
            document_id=_text(self.document_id),
            previous_questions=tuple(self.previous_questions),
            last_answer=self.last_answer,
            date=self.date,
            session_id=_text(self.session_id),
            parent_turn_id=_text(self.parent_turn_id) if given_parent else UNSET,
            model_id=self.model_id,
            filters=filter_of(self.filters),
        )


def _text(value: UUID | None) -> str | None:
    return str(value) if value is not None else None


@router.post("/search", openapi_extra=body_schema(SearchBody))
async def search(
    container: ContainerDep, owner: Owner, body: Annotated[SearchBody, Depends(json_body(SearchBody))]
) -> dict[str, Any]:
    """Every candidate with its rank and score at each stage, best first, and the stage that dropped it.

    With `document_id` also how far that document came, and which stage dropped it.
    """
    report = await container.search.search(body.to_request(owner))
    found: dict[str, Any] = {
        "candidates": [candidate_object(one) for one in report.candidates],
        "reranker": report.reranker,
        "fell_back": report.fell_back,
    }
    return {**found, "document": _document_object(report.document)} if report.document else found


def _document_object(report: DocumentReport) -> dict[str, Any]:
    document = report.document
    return {
        "document_id": document.document_id,
        "file_name": document.file_name,
        "status": document.status.value,
        "error": document.error,
        "stage": report.stage.value,
        "message": report.message,
        "chunks": [_places_object(chunk) for chunk in report.chunks],
    }


def _places_object(one: ChunkPlaces) -> dict[str, Any]:
    """`rank` null: beyond the first thousand; `last_score` is what the last one had that got further."""
    lists = {
        place.kind: {
            "rank": place.rank,
            "score": place.score,
            "last_score": place.last_score,
            "kept": place.handed_on,
        }
        for place in one.lists
    }
    judged = stages_object(one.judged) if one.judged else dict.fromkeys(("fused", "reranked", "budget"))
    return {
        **chunk_object(one.chunk),
        **judged,
        "dense": lists.get("dense"),
        "sparse": lists.get("sparse"),
        "stage": one.stage.value,
        "alone_probability": one.alone_probability,
        "key_passage": one.key_passage,
    }
