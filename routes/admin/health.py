"""Is it up, can a question be asked, what may the page offer; and figures: what Prometheus collects, how much
is stored."""

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
    """200 while the process answers."""
    return wire.Liveness(status="live")


@router.get(
    "/health/ready", tags=["health"], responses={503: {"model": wire.Readiness, "description": "Not ready."}}
)
async def ready(response: Response, container: ContainerDep) -> wire.Readiness:
    """200 when a question can be asked, `degraded` when that may end soon; 503 names the part that is not
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
    """Every route, its bodies and its errors, as OpenAPI."""
    return JSONResponse(await asyncio.to_thread(describe, request.app))


@router.get("/models", tags=["settings"], responses=errors(401))
async def list_models(container: ContainerDep, owner: Owner) -> wire.ModelList:
    """The models a question may be sent to; `default` answers when none is named."""
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
    """The models that were added here, by their ids; those of wenmai.toml are not among them."""
    return wire.StoredModels(models=container.models.tables())


@router.get("/admin/models/available", tags=["admin"], responses=errors(401, 403, 404, 422))
async def list_available_models(
    container: ContainerDep,
    admin: Admin,
    model_id: Annotated[str, Query(max_length=200, description="whose server is asked")] = "",
    provider: Annotated[
        Literal["openai", "anthropic"], Query(description="of a server to be named")
    ] = "openai",
    base_url: Annotated[str | None, Query(max_length=500, description="its address")] = None,
    api_key_env: Annotated[str | None, Query(max_length=100, description="the variable of its key")] = None,
) -> wire.AvailableModels:
    """What a model's server offers: that of a model of wenmai.toml, of one that was added, or one that is
    named."""
    table = {"provider": provider, "base_url": base_url, "api_key_env": api_key_env}
    try:
        listed = await container.models.available(model_id, table)
    except LLMUnavailableError as error:  # an answer to the question, as for one that is checked
        return wire.AvailableModels(models=[], message=str(error))
    return wire.AvailableModels(
        models=[wire.AvailableModel.model_validate(each) for each in listed], message=""
    )


ModelId = Annotated[
    str, Path(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="What `model_id` takes.")
]
CHANGES = errors(400, 401, 403, 404, 409, 413, 415, 422, 503)


@router.put("/admin/models/{model_id}", tags=["admin"], responses=CHANGES)
async def put_model(
    model_id: ModelId,
    container: ContainerDep,
    admin: Admin,
    body: Annotated[wire.ModelTable, Depends(json_body(wire.ModelTable))],
) -> wire.StoredModels:
    """Add a model, or change one that was added, from the next question on; it stays over restarts. One of
    wenmai.toml is never replaced: 409. The key is named by its variable, and not sent."""
    await container.models.put(model_id, body.model_dump(exclude_unset=True))
    return wire.StoredModels(models=container.models.tables())


@router.delete("/admin/models/{model_id}", tags=["admin"], responses=CHANGES)
async def remove_model(model_id: ModelId, container: ContainerDep, admin: Admin) -> wire.StoredModels:
    """Take away a model that was added. Sessions that chose it are answered by the default one."""
    await container.models.remove(model_id)
    return wire.StoredModels(models=container.models.tables())


@router.get("/admin/models/check", tags=["admin"], responses=errors(401, 403, 404, 422))
async def check_models(
    container: ContainerDep,
    admin: Admin,
    language: Annotated[Literal["zh", "en"], Query(description="of the messages")] = "en",
    model_id: Annotated[str, Query(max_length=200, description="this one alone")] = "",
) -> wire.ModelCheck:
    """Every language model, the embedding and the reranker are asked one short question, all at once and each
    for ten seconds at most. What only computes on this machine is left out. With `model_id`: one alone."""
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
    """What a front end needs to know before it asks; `insert_block`: whether some model can judge."""
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
    """The tag that puts a small chat onto a page. With keys, it has one made from the key of who asks, which
    may stand in a public page."""
    key = None if owner == LOCAL_OWNER else site_key(sent_key(request))
    shown = f' data-key="{key}"' if key else ""
    html = f'<script src="{request.base_url}widget.js"{shown}></script>'
    return wire.Widget(html=html, origins=list(container.settings.server.cors_origins))


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=errors(401, 403))
async def metrics(container: ContainerDep, admin: Admin) -> PlainTextResponse:
    """Counters and gauges of this process, in Prometheus' text format. It waits for no other part: what only
    the store knows is as old as the scrape before. They are of all callers: with keys it takes an admin's."""
    container.look.begin()
    return PlainTextResponse(container.metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/admin/stats", tags=["admin"], responses=errors(401, 403, 503))
async def stats(container: ContainerDep, admin: Admin) -> wire.Statistics:
    """How much is stored, and what runs just now. `bytes_on_disk` is null where the engine does not say."""
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
