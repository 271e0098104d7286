"""Another embedding's copy of the embedded store: made while the server answers, used from the next start."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.admin.reembedding import NewEmbedding
from routes.dependencies import Admin, ContainerDep
from routes.json_body import body_schema, json_body
from routes.openapi import WireRoute, errors
from routes.wire.operations import ReembedBody, ReembedPlan, ReembedState

router = APIRouter(
    prefix="/admin/reembed", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute
)


@router.post(
    "",
    status_code=202,
    openapi_extra=body_schema(ReembedBody),
    responses=errors(400, 409, 413, 415, 422, 507),
)
async def start_reembedding(
    container: ContainerDep,
    admin: Admin,
    body: Annotated[ReembedBody, Depends(json_body(ReembedBody))],
    dry_run: Annotated[bool, Query(description="true: only count and estimate, change nothing")] = True,
) -> ReembedPlan | ReembedState:
    """Build a copy with this embedding beside the store, or bring it up to date; the next start that is
    configured with the embedding uses it. With `dry_run` what there is to do, else how far it is."""
    requested = NewEmbedding(body.embedding, body.embedding_model)
    if not dry_run:
        return ReembedState.model_validate(container.reembedding.start(requested))
    plan = await container.reembedding.plan(requested)
    return ReembedPlan(**asdict(plan), needed=plan.needed, points=plan.points)


@router.get("")
async def reembedding_state(container: ContainerDep, admin: Admin) -> ReembedState:
    """How far it is: `status` is idle, running, prepared, failed or cancelled."""
    return ReembedState.model_validate(container.reembedding.state())


@router.delete("")
async def cancel_reembedding(container: ContainerDep, admin: Admin) -> ReembedState:
    """Stop it; what is made is kept, and gone on with by the next POST."""
    return ReembedState.model_validate(await container.reembedding.cancel())
