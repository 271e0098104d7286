"""Is the server up, can a question be asked, what can the page offer; metrics for Prometheus, and how much is
stored."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from core.conversation.sessions import MAX_PERSONA_CHARS
from core.errors import LLMUnavailableError
from core.owners import LOCAL_OWNER
from core.tools import SEARCH_TOOL
from routes.dependencies import (
    Admin,
    ContainerDep,
    Owner,
    json_body,
    sent_key,
    site_key,
)
from routes.errors import RETRY_AFTER_S
from routes.openapi import WireRoute, describe, errors
from routes.wire import server as wire
from routes.wire.chat import DEFAULT_TOP_N, MAX_TOP_N

router = APIRouter(route_class=WireRoute)


@router.get("/health/live", tags=["health"])
async def live() -> wire.Liveness:
    """200 while the process responds."""
    return wire.Liveness(status="live")


@router.get(
    "/health/ready", tags=["health"], responses={503: {"model": wire.Readiness, "description": "Not ready."}}
)
async def ready(response: Response, container: ContainerDep) -> wire.Readiness:
    """200 when a question can be asked, `degraded` if that may end soon; 503 names the part that is not
    ready."""
    problems = await container.health()
    if problems:
        response.status_code = 503
        response.headers["Retry-After"] = RETRY_AFTER_S[503]
        return wire.Readiness(
            status="not_ready", problems=problems, warnings={}, durability=container.durability
        )
    warnings = await container.warnings()
    status: Literal["degraded", "ready"] = "degraded" if warnings else "ready"
    return wire.Readiness(status=status, problems={}, warnings=warnings, durability=container.durability)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, owner: Owner) -> JSONResponse:
    """Every route with its bodies and errors, as OpenAPI."""
    return JSONResponse(await asyncio.to_thread(describe, request.app))


@router.get("/models", tags=["settings"], responses=errors(401))
async def list_models(container: ContainerDep, owner: Owner) -> wire.ModelList:
    """The models that can answer questions; `default` answers if none is named."""
    models = [
        wire.Model(
            id=entry.model_id,
            label=entry.label,
            provider=entry.provider,
            generative=entry.generative,
            vision=entry.takes_images,
        )
        for entry in container.llms.entries()
    ]
    return wire.ModelList(models=models, default="default")


@router.get("/admin/models", tags=["admin"], responses=errors(401, 403))
async def list_stored_models(container: ContainerDep, admin: Admin) -> wire.StoredModels:
    """The models added while the server runs, by id, without those of wenmai.toml."""
    return wire.StoredModels(models=container.models.tables())


@router.get("/admin/models/available", tags=["admin"], responses=errors(401, 403, 404, 422))
async def list_available_models(
    container: ContainerDep,
    admin: Admin,
    model_id: Annotated[str, Query(max_length=200, description="The model whose server is asked.")] = "",
    provider: Annotated[
        Literal["openai", "anthropic"], Query(description="The provider, for a server not configured yet.")
    ] = "openai",
    base_url: Annotated[str | None, Query(max_length=500, description="Its base URL.")] = None,
    api_key_env: Annotated[str | None, Query(max_length=100, description="The variable of its key.")] = None,
) -> wire.AvailableModels:
    """List what a model's server offers: the server of a configured or added model, or one given here."""
    table = {"provider": provider, "base_url": base_url, "api_key_env": api_key_env}
    try:
        listed = await container.models.available(model_id, table)
    except LLMUnavailableError as error:  # an answer to the request, as in the check of models
        return wire.AvailableModels(models=[], message=str(error))
    return wire.AvailableModels(
        models=[wire.AvailableModel.model_validate(each) for each in listed], message=""
    )


ModelId = Annotated[
    str, Path(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="The id, as used in `model_id`.")
]
CHANGES = errors(400, 401, 403, 404, 409, 413, 415, 422, 503)


@router.put("/admin/models/{model_id}", tags=["admin"], responses=CHANGES)
async def put_model(
    model_id: ModelId,
    container: ContainerDep,
    admin: Admin,
    body: Annotated[wire.ModelTable, Depends(json_body(wire.ModelTable))],
) -> wire.StoredModels:
    """Add a model or change an added one, effective from the next question and kept across restarts. A model
    of wenmai.toml is never replaced: 409. The key is named by its environment variable, never sent."""
    await container.models.put(model_id, body.model_dump(exclude_unset=True))
    return wire.StoredModels(models=container.models.tables())


@router.delete("/admin/models/{model_id}", tags=["admin"], responses=CHANGES)
async def remove_model(model_id: ModelId, container: ContainerDep, admin: Admin) -> wire.StoredModels:
    """Remove an added model. Sessions that chose it use the default one."""
    await container.models.remove(model_id)
    return wire.StoredModels(models=container.models.tables())


@router.get("/admin/models/check", tags=["admin"], responses=errors(401, 403, 404, 422))
async def check_models(
    container: ContainerDep,
    admin: Admin,
    language: Annotated[Literal["zh", "en"], Query(description="The language of the messages.")] = "en",
    model_id: Annotated[str, Query(max_length=200, description="Only this model.")] = "",
) -> wire.ModelCheck:
    """Ask every language model, the embedding and the reranker a short question, in parallel and for at most
    a minute each. What only computes on this machine is left out. `model_id` checks one alone."""
    answers = []
    for each in await container.model_check.run(model_id):
        failure = each.error.failure if each.error else None
        message = container.model_check.text(each.error, language, each.model_id) if each.error else ""
        cause = failure.cause.value if failure else ("unavailable" if each.error else "")
        ok = each.error is None
        answers.append(
            wire.ModelAnswer(name=each.name, ok=ok, time_ms=each.time_ms, cause=cause, message=message)
        )
    return wire.ModelCheck(models=answers)


@router.post("/admin/prompts/reload", tags=["admin"], responses=errors(401, 403, 422))
async def reload_prompts(container: ContainerDep, admin: Admin) -> wire.Prompts:
    """Read PROMPTS_DIR again, in this process. A broken file is refused, and the texts stay as they were."""
    return wire.Prompts(overridden=await asyncio.to_thread(container.prompts.reload))


@router.get("/settings/public", tags=["settings"], responses=errors(401))
async def public_settings(container: ContainerDep, owner: Owner) -> wire.PublicSettings:
    """What a front end needs to know before asking; `insert_block`: whether some model can judge passages."""
    settings = container.settings
    return wire.PublicSettings(
        max_question_chars=settings.conversation.max_question_chars,
        max_persona_chars=MAX_PERSONA_CHARS,
        max_upload_bytes=settings.server.max_upload_bytes,
        expire_days=settings.conversation.conversation_expire_days,
        store_id=await asyncio.to_thread(container.store_id),
        embedding=container.embedding.name,
        formats=list(container.supported_formats),
        tools=[*(source.name for source in container.tools), SEARCH_TOOL],
        insert_block=any(entry.generative for entry in container.llms.entries()),
        rerank_top_n=wire.TopN(default=DEFAULT_TOP_N, max=MAX_TOP_N),
    )


@router.get("/settings/widget", tags=["settings"], responses=errors(401))
async def widget(request: Request, container: ContainerDep, owner: Owner) -> wire.Widget:
    """The tag that adds a small chat to a page. With keys configured, it contains a key derived from the
    caller's, which may appear in a public page."""
    key = None if owner == LOCAL_OWNER else site_key(sent_key(request))
    shown = f' data-key="{key}"' if key else ""
    html = f'<script src="{request.base_url}widget.js"{shown}></script>'
    return wire.Widget(html=html, origins=list(container.settings.server.cors_origins))


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=errors(401, 403))
async def metrics(container: ContainerDep, admin: Admin) -> PlainTextResponse:
    """Counters and gauges of this process, over all callers, in Prometheus' text format; needs an admin's key
    if there are keys. Waits for no other part: what only the store knows is as old as the previous scrape."""
    container.store_status.begin()
    return PlainTextResponse(container.metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/admin/stats", tags=["admin"], responses=errors(401, 403, 503))
async def stats(container: ContainerDep, admin: Admin) -> wire.Statistics:
    """How much is stored, and what is running. `bytes_on_disk` is null if the engine does not report it."""
    store = container.settings.store
    names = {
        "turns": store.conversation_collection,
        "sessions": store.session_collection,
        "documents": store.document_collection,
        "chunks": store.knowledge_collection,
        "memories": store.memory_collection,
    }
    counts = {name: (await container.store.count(collection)).count for name, collection in names.items()}
    size = await container.space.size_bytes() if container.space else None
    return wire.Statistics(
        store_id=await asyncio.to_thread(container.store_id),
        stored=counts,
        chunks_made_for=None if store.qdrant_url else container.knowledge.size.max_chunks,
        bytes_on_disk=size,
        running_turns=len(container.running),
        tasks=len(asyncio.all_tasks()),
    )
