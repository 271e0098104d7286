"""POST /search: retrieval alone, for those who want to see why something was found or not."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.search.handler import SearchRequest
from core.conversation.turns import UNSET
from core.errors import BadRequestError
from routes.dependencies import ContainerDep, Owner, json_body
from routes.knowledge.replies import search_reply
from routes.openapi import WireRoute, errors
from routes.wire.fields import filter_of, text_of
from routes.wire.search import SearchBody, SearchResult

router = APIRouter(
    tags=["search"], responses=errors(400, 401, 404, 413, 415, 422, 503), route_class=WireRoute
)


@router.post("/search")
async def search(
    container: ContainerDep, owner: Owner, body: Annotated[SearchBody, Depends(json_body(SearchBody))]
) -> SearchResult:
    """Every candidate with its rank and score at each stage, best first, and the stage that dropped it.

    With `document_id` also how far that document came, and which stage dropped it.
    """
    return search_reply(await container.search.search(_request(body, owner)))


def _request(body: SearchBody, owner: str) -> SearchRequest:
    """Raises BadRequestError for fields that exclude each other."""
    if body.session_id is not None and (body.previous_questions or body.last_answer):
        raise BadRequestError("previous_questions, last_answer: not together with session_id.")
    names_parent = "parent_turn_id" in body.model_fields_set
    if body.session_id is None and names_parent:
        raise BadRequestError("parent_turn_id: only together with session_id.")
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
