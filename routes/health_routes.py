"""Is it up, can a question be asked, what may the page offer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from routes.dependencies import ContainerDep, Owner
from routes.errors import RETRY_AFTER_S
from routes.openapi import errors
from routes.schemas import DEFAULT_TOP_N, MAX_TOP_N

router = APIRouter()


@router.get("/health/live", tags=["health"])
async def live() -> dict[str, str]:
    """200 while the process answers."""
    return {"status": "live"}


@router.get("/health/ready", tags=["health"], responses=errors(503))
async def ready(container: ContainerDep) -> JSONResponse:
    """200 when a question can be asked, `degraded` when that may end soon; 503 names the part that is not
    ready."""
    problems = await container.health()
    warnings = {} if problems else await container.warnings()
    status = "not_ready" if problems else "degraded" if warnings else "ready"
    headers = {"Retry-After": RETRY_AFTER_S[503]} if problems else None
    body = {"status": status, "problems": problems, "warnings": warnings}
    return JSONResponse(body, status_code=503 if problems else 200, headers=headers)


@router.get("/openapi.json", include_in_schema=False)
async def describe(request: Request, owner: Owner) -> JSONResponse:
    """Every route, its bodies and its errors, as OpenAPI."""
    return JSONResponse(request.app.openapi())


@router.get("/models", tags=["settings"], responses=errors(401))
async def list_models(container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """The models a question may be sent to; `default` answers when none is named."""
    models = [
        {
            "id": entry.model_id,
            "label": entry.label,
            "provider": entry.provider,
            "generative": entry.generative,
        }
        for entry in container.llms.entries()
    ]
    return {"models": models, "default": "default"}


@router.get("/settings/public", tags=["settings"], responses=errors(401))
async def public_settings(container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """What a front end needs to know before it asks; `insert_block`: whether some model can judge."""
    settings = container.settings
    return {
        "max_question_chars": settings.conversation.max_question_chars,
        "max_persona_chars": settings.conversation.max_persona_chars,
        "max_upload_bytes": settings.server.max_upload_bytes,
        "expire_days": settings.conversation.conversation_expire_days,
        "embedding": container.embedding.name,
        "formats": container.supported_formats,
        "insert_block": any(entry.generative for entry in container.llms.entries()),
        "rerank_top_n": {"default": DEFAULT_TOP_N, "max": MAX_TOP_N},
    }
