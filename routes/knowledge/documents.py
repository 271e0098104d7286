"""Documents and their chunks: add, list, read, change, erase; ingestion jobs; and the followed folders, as
every caller sees them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter, ValidationError
from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from api.container import Container
from core.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    MalformedFormError,
    TooManyUploadsError,
    UnsupportedMediaError,
)
from core.knowledge import (
    MAX_TAG_CHARS,
    MAX_TAGS,
    SHARED_OWNER,
    Addition,
    Changes,
    Document,
    DocumentFilter,
    DocumentStatus,
    Upload,
)
from core.operations.erasure import ErasedKind
from routes.dependencies import (
    Admin,
    ContainerDep,
    Owner,
    RefusedFieldError,
    Thorough,
    WithAnswers,
    erasable,
    erasure_options,
    proof_of,
    readable,
)
from routes.errors import EdgeCode
from routes.openapi import JOB_STREAM, WireRoute, errors
from routes.stream import EventStreamResponse, unless_left
from routes.wire import documents as wire

router = APIRouter(tags=["documents"], responses=errors(401, 404, 422, 503), route_class=WireRoute)
job_router = APIRouter(
    tags=["documents"], route_class=WireRoute
)  # jobs and sources, with other error responses

FIELDS = frozenset(wire.DocumentUpload.model_fields)
TAGS = TypeAdapter(list[wire.Tag])
MAX_FIELDS = MAX_TAGS + len(FIELDS)  # one field per tag
PATIENCE_S = 3.0  # to wait for room; after that the client must retry
TAGS_LISTED = 200
UPLOAD_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/DocumentUpload"}}},
    }
}

Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
NeighbourCount = Annotated[int, Query(ge=0, le=10, description="How many neighbouring chunks.")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the previous page.")]


@router.post(
    "/documents",
    status_code=201,
    openapi_extra=UPLOAD_SCHEMA,
    responses={
        200: {"description": "The same content is already stored.", "model": wire.AddedDocument},
        **errors(413, 415, 429, 507),
    },
)
async def add_document(
    request: Request, response: Response, container: ContainerDep, owner: Owner
) -> wire.AddedDocument:
    """Add a document, or a new version of the one with this `external_id`.

    It is checked and parsed at once; embedding continues as a job, also after a restart. After five seconds
    it is accepted even if not parsed yet: its job says whether it could be read.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise UnsupportedMediaError("Content-Type must be multipart/form-data with a field `file`.")
    async with _room(request, container, owner), _form(request) as form:
        file = _file(form)
        addition = await unless_left(request.receive, _added(container, form, file, owner))
    if addition.existing:
        response.status_code = 200
    return wire.AddedDocument(
        document=_document(addition.document), job_id=addition.job_id, existing=addition.existing
    )


@router.get("/documents")
async def list_documents(
    container: ContainerDep,
    owner: Owner,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: Annotated[DocumentStatus | None, Query(description="Only those with this status.")] = None,
    source: Annotated[str | None, Query(max_length=200, description="Only this followed folder's.")] = None,
    tag: Annotated[
        str | None, Query(max_length=MAX_TAG_CHARS, description="Only those with this tag.")
    ] = None,
) -> wire.DocumentPage:
    """List documents, newest first, paged; optionally only those with this status, source and tag."""
    narrowed = DocumentFilter(status, source, tag)
    page = await container.knowledge.documents.page(readable(owner), limit, cursor, narrowed)
    listed = [_document(document) for document in page.documents]
    return wire.DocumentPage(documents=listed, next=page.next_cursor)


@router.get("/tags")
async def list_tags(container: ContainerDep, owner: Owner) -> wire.TagList:
    """The 200 most frequent tags with their numbers of documents, most frequent first."""
    tags = await container.knowledge.documents.tags(readable(owner), TAGS_LISTED)
    return wire.TagList(tags=tags)


@router.get("/documents/{document_id}")
async def get_document(document_id: UUID, container: ContainerDep, owner: Owner) -> wire.Document:
    """One document."""
    return _document(await container.knowledge.get_document(str(document_id), readable(owner)))


@router.patch("/documents/{document_id}", responses=errors(403, 409, 413))
async def change_document(
    document_id: UUID, body: wire.DocumentPatch, container: ContainerDep, owner: Owner
) -> wire.Document:
    """Change a document's tags or date without reading it in again. For a followed file, only the date."""
    await _erasable(container, document_id, owner)
    changed = await container.knowledge.change(str(document_id), erasable(owner), _changes(body))
    return _document(changed)


@router.get("/documents/{document_id}/chunks")
async def list_chunks(
    document_id: UUID, container: ContainerDep, owner: Owner, limit: Limit = 100, cursor: Cursor = None
) -> wire.ChunkPage:
    """The document's chunks, in document order."""
    page = await container.knowledge.chunks(str(document_id), readable(owner), limit, cursor)
    return wire.ChunkPage(chunks=page.chunks, next=page.next_cursor)


@router.get("/documents/{document_id}/chunks/{chunk_id}")
async def get_chunk(
    document_id: UUID,
    chunk_id: UUID,
    container: ContainerDep,
    owner: Owner,
    before: NeighbourCount = 1,
    after: NeighbourCount = 1,
    section: Annotated[bool, Query(description="Whether to return its section.")] = True,
) -> wire.ChunkInPlace:
    """A chunk, its neighbours, and its section: the chunks under the same heading, in order."""
    around = await container.search.chunk_in_place(
        str(document_id), str(chunk_id), readable(owner), before=before, after=after, section=section
    )
    return wire.ChunkInPlace(
        **asdict(around.chunk),
        neighbours=wire.Neighbours.model_validate(around),
        section=around.section,
    )


@router.delete("/documents/sample", responses=errors(403))
async def remove_sample(container: ContainerDep, admin: Admin) -> wire.RemovedSample:
    """Erase Wenmai's sample guide with what earlier turns cite of it; no later start loads it again.

    With keys configured, requires one of ADMIN_API_KEYS. Stops loading the guide if it is under way.
    """
    return wire.RemovedSample.model_validate(await container.sample.remove())


@router.delete("/documents/{document_id}", responses=errors(403, 409))
async def delete_document(
    document_id: UUID,
    container: ContainerDep,
    owner: Owner,
    proof: Thorough = None,
    with_answers: WithAnswers = False,
) -> wire.ErasedDocument:
    """Erase a document with its chunks and what earlier turns cite of it, and prove it.

    `source` names the followed folder that will restore it while its file exists; null for an upload.
    """
    options = erasure_options(ErasedKind.DOCUMENT, proof, with_answers=with_answers)
    document = await _erasable(container, document_id, owner)
    erased = await container.sessions.erasure.document(str(document_id), erasable(owner), options)
    return wire.ErasedDocument(
        document_id=str(document_id),
        deleted=True,
        source=document.source or None,
        proof=proof_of(erased),
        receipt_id=erased.receipt_id,
    )


async def _erasable(container: Container, document_id: UUID, owner: str) -> Document:
    """Raises UnknownDocumentError, also for another owner's, and says where a shared one is changed."""
    document = await container.knowledge.get_document(str(document_id), readable(owner))
    if document.owner in erasable(owner):
        return document
    if document.is_sample:
        raise ForbiddenError(
            "The document belongs to the sample: use DELETE /documents/sample, with a key of ADMIN_API_KEYS."
        )
    folder = f"the folder of [sources.{document.source}]"
    raise ConflictError(
        f"The document is shared by everyone and comes from {folder}: change or remove its file there."
    )


@asynccontextmanager
async def _room(request: Request, container: Container, owner: str) -> AsyncIterator[None]:
    """Reserve room for the incoming body. Raises TooManyUploadsError."""
    length = request.headers.get("content-length", "")
    coming_bytes = int(length) if length.isdigit() else 0
    hold = container.knowledge.uploads.coming.hold(owner, coming_bytes, coming_bytes, _patience_s(container))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(hold)
        except TooManyUploadsError:
            async for _ in request.stream():  # a client that cannot finish sending does not see the answer
                continue
            raise
        yield


def _patience_s(container: Container) -> float | None:
    """None without keys: there is nobody else to make room for, so every upload waits its turn."""
    return PATIENCE_S if container.settings.server.api_keys else None


async def _added(container: Container, form: FormData, file: UploadFile, owner: str) -> Addition:
    patience_s = _patience_s(container)
    size_bytes = file.size or 0  # until there is room, its bytes stay on disk
    came_s = time.monotonic()
    async with container.knowledge.uploads.read.hold(owner, size_bytes, size_bytes, patience_s):
        upload = await _upload(form, file, owner)
        return await container.knowledge.add(replace(upload, waited_s=time.monotonic() - came_s))


@asynccontextmanager
async def _form(request: Request) -> AsyncIterator[FormData]:
    try:
        form = await request.form(max_files=1, max_fields=MAX_FIELDS)
    except HTTPException as error:
        raise _unreadable(error) from error
    try:
        yield form
    finally:
        await form.close()


def _unreadable(error: HTTPException) -> BadRequestError:
    """The parser refuses a file name of thousands of characters as if the whole form were malformed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MultipartParseError) and "header size" in str(cause):
            return BadRequestError("file: the name is too long.")
        cause = cause.__context__
    return MalformedFormError(str(error.detail))


def _file(form: FormData) -> UploadFile:
    """Raises RefusedFieldError also for unknown or repeated fields."""
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise RefusedFieldError(EdgeCode.MISSING_FIELD, "missing: file")
    for name in form:
        if name not in FIELDS:
            raise RefusedFieldError(EdgeCode.UNKNOWN_FIELD, f"{name}: unknown field")
        if name != "tags" and len(form.getlist(name)) > 1:
            raise RefusedFieldError(EdgeCode.INVALID_FIELD, f"{name}: given more than once")
    return file


async def _upload(form: FormData, file: UploadFile, owner: str) -> Upload:
    return Upload(
        owner=owner,
        file_name=file.filename or "",
        content=await file.read(),
        external_id=_field(form, "external_id"),
        tags=_tags(form),
        date=_field(form, "date"),
    )


def _tags(form: FormData) -> tuple[str, ...] | None:
    """None if the form has no such field."""
    values = [value for value in form.getlist("tags") if isinstance(value, str)]
    return tuple(tag for value in values for tag in _tags_of(value)) if values else None


def _tags_of(value: str) -> list[str]:
    if not value.startswith("["):
        return value.split(",")
    try:
        return TAGS.validate_json(value)
    except ValidationError as error:
        message = "tags: one that begins with [ must be a JSON array of texts"
        raise RefusedFieldError(EdgeCode.INVALID_FIELD, message) from error


def _field(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) and value else None


def _changes(body: wire.DocumentPatch) -> Changes:
    tags = None if body.tags is None else tuple(body.tags)
    return Changes(tags, body.date, changes_date="date" in body.model_fields_set)


@job_router.get("/jobs", responses=errors(401, 404, 422))
async def list_jobs(container: ContainerDep, owner: Owner) -> wire.JobList:
    """The jobs that are waiting, running, or recently ended; newest first."""
    return wire.JobList(jobs=container.knowledge.jobs.list(readable(owner)))


@job_router.get("/jobs/{job_id}", responses=errors(401, 404, 422))
async def get_job(job_id: UUID, container: ContainerDep, owner: Owner) -> wire.Job:
    """The progress of a job: stage, attempt, done, total, error."""
    return wire.Job.model_validate(container.knowledge.jobs.get(str(job_id), readable(owner)).snapshot())


@job_router.get(
    "/jobs/{job_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: JOB_STREAM, **errors(401, 404, 422)},
)
async def follow_job(job_id: UUID, container: ContainerDep, owner: Owner) -> EventStreamResponse:
    """The job's state now and after every change, as JSON events; ends with the final one."""
    changes = container.knowledge.jobs.get(str(job_id), readable(owner)).changes()
    ping_interval_s = container.settings.server.ping_interval_s

    async def events() -> AsyncGenerator[bytes, None]:
        async for snapshot in changes:
            body = json.dumps(wire.Job.model_validate(snapshot).model_dump(mode="json"))
            yield f"event: job\ndata: {body}\n\n".encode()

    return EventStreamResponse(events(), ping_interval_s)


@job_router.get("/sources", responses=errors(401, 503))
async def list_sources(container: ContainerDep, owner: Owner) -> wire.SourceList:
    """The followed folders whose documents you may read. A question can be limited to them."""
    return wire.SourceList(sources=await container.sync.summaries(readable(owner)))


def _document(document: Document) -> wire.Document:
    return wire.Document(**asdict(document), shared=document.owner == SHARED_OWNER, sample=document.is_sample)
