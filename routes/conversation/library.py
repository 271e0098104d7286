"""The library: modules with batches of items, each a persona, a question's text or a prompt template."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from core.conversation.sessions import MAX_NAME_CHARS
from core.library import MAX_ITEMS, Batch
from routes.dependencies import Admin, ContainerDep, Owner, file_body
from routes.openapi import WireRoute, errors
from routes.wire import server as wire
from routes.wire.fields import AtMost, PlainText

router = APIRouter(tags=["library"], responses=errors(401, 422), route_class=WireRoute)

MAX_TEMPLATES = 50
FILE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
Words = Annotated[PlainText, AtMost(MAX_NAME_CHARS), Query(description="Words that the title contains.")]


@router.get("/library")
async def list_modules(container: ContainerDep, owner: Owner) -> wire.LibraryModules:
    """The library's modules, and the files that could not be read. Files are read again on each request."""
    library = await container.library.read()
    modules = [wire.LibraryModule(name=name, batches=len(each)) for name, each in library.modules.items()]
    return wire.LibraryModules(modules=modules, problems=list(library.problems))


@router.get("/library/{module}", responses=errors(404))
async def list_batches(module: str, container: ContainerDep, owner: Owner) -> wire.LibraryBatches:
    """The batches of one module."""
    batches = await container.library.module(module)
    return wire.LibraryBatches(module=module, batches=list(map(_name_reply, batches)))


@router.get("/library/{module}/{batch}", responses=errors(404))
async def read_batch(
    module: str,
    batch: str,
    container: ContainerDep,
    owner: Owner,
    after: Annotated[int, Query(ge=0, le=MAX_ITEMS, description="`next` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
) -> wire.LibraryItems:
    """The items of one batch, paged; `batch` is its name, with or without the file extension."""
    read = await container.library.batch(module, batch)
    end = after + limit
    return wire.LibraryItems(
        module=module,
        batch_name=read.name,
        items=read.items[after:end],
        next=end if end < len(read.items) else None,
    )


@router.put(
    "/library/{module}/{batch}",
    status_code=201,
    openapi_extra=FILE,
    responses={
        200: {"model": wire.LibraryBatchName, "description": "It replaced the previous file."},
        **errors(403, 413, 415, 507),
    },
)
async def write_batch(
    module: str, batch: str, request: Request, response: Response, container: ContainerDep, admin: Admin
) -> wire.LibraryBatchName:
    """Upload a file for all users; `batch` is its name with the extension: .md, .csv or .json."""
    written, is_new = await container.library.write(module, batch, await file_body(request))
    if not is_new:
        response.status_code = 200
    return _name_reply(written)


@router.delete("/library/{module}/{batch}", responses=errors(403, 404))
async def delete_batch(
    module: str, batch: str, container: ContainerDep, admin: Admin
) -> wire.LibraryBatchName:
    """Delete the batch's file. Personas set from it stay."""
    return _name_reply(await container.library.delete(module, batch))


@router.get("/templates")
async def list_templates(
    container: ContainerDep,
    owner: Owner,
    q: Words = "",
    limit: Annotated[int, Query(ge=1, le=MAX_TEMPLATES, description="How many at most.")] = 8,
) -> wire.PromptTemplates:
    """Prompt templates (items with `{variables}` in their text), matched by words of their titles."""
    matches = (await container.library.read()).templates(q, limit)
    templates = [
        wire.PromptTemplate(
            module=batch.module, batch_name=batch.name, **asdict(item), variables=item.variables
        )
        for batch, item in matches
    ]
    return wire.PromptTemplates(templates=templates)


def _name_reply(batch: Batch) -> wire.LibraryBatchName:
    return wire.LibraryBatchName(batch_name=batch.name, items=len(batch.items))
