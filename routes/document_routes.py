"""Documents and the jobs that read them in."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from api.wiring.parts import SHARED_OWNER
from core.errors import BadRequestError, MalformedFormError, UnsupportedMediaError
from core.knowledge import DocumentStatus
from core.operations.erasure import ErasedKind
from routes.dependencies import LOCAL_OWNER, ContainerDep, Owner
from routes.document_wire import DocumentPatch, document_object, job_object
from routes.erasure_routes import Thorough, WithAnswers, asked, proof_object
from routes.openapi import EVENT_STREAM, errors
from routes.sse_response import EventStreamResponse
from routes.wire import chunk_object
from services.knowledge.documents import Narrowed
from services.knowledge.upload import MAX_EXTERNAL_ID_CHARS, MAX_TAG_CHARS, Upload

router = APIRouter(tags=["documents"], responses=errors(401, 404, 422))

MAX_FIELDS = 8
MAX_TAGS = 200
UPLOAD_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "external_id": {
                            "type": "string",
                            "description": "The caller's own id: other content under it is a new version.",
                            "maxLength": MAX_EXTERNAL_ID_CHARS,
                        },
                        "tags": {
                            "type": "string",
                            "description": "Separated by commas; absent: as they were; empty: none.",
                        },
                        "date": {
                            "type": "string",
                            "description": "YYYY, YYYY-MM or YYYY-MM-DD; absent: the document's own.",
                        },
                    },
                }
            }
        },
    }
}

Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]


@router.post(
    "/documents",
    status_code=201,
    openapi_extra=UPLOAD_SCHEMA,
    responses={200: {"description": "The same content is there already."}, **errors(400, 413, 415, 503, 507)},
)
async def add_document(
    request: Request, response: Response, container: ContainerDep, owner: Owner
) -> dict[str, Any]:
    """Add one document, or a new version of the one with this `external_id`.

    It is checked and parsed at once; embedding goes on as a job, also after a restart.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise UnsupportedMediaError("Content-Type must be multipart/form-data with a field `file`.")
    async with _form(request) as form:
        file = _file(form)
        async with container.knowledge.uploads.hold(file.size or 0):  # until then its bytes are on the disk
            addition = await container.knowledge.add(await _upload(form, file, owner))
    if addition.existing:
        response.status_code = 200
    return {
        "document": document_object(addition.document),
        "job_id": addition.job_id,
        "existing": addition.existing,
    }


@router.get("/documents")
async def list_documents(
    container: ContainerDep,
    owner: Owner,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: DocumentStatus | None = None,
    source: Annotated[str | None, Query(max_length=200)] = None,
    tag: Annotated[str | None, Query(max_length=MAX_TAG_CHARS)] = None,
) -> dict[str, Any]:
    """Newest first, paged; all of them, or those with this status, source and tag."""
    narrowed = Narrowed(status, source, tag)
    page = await container.knowledge.list_documents(readable(owner), limit, cursor, narrowed)
    return {"documents": [document_object(document) for document in page.documents], "next": page.next_cursor}


@router.get("/tags")
async def list_tags(container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """How many documents carry each tag: the 200 that most do, the most first."""
    tags = await container.knowledge.tags(readable(owner), MAX_TAGS)
    return {"tags": [{"tag": each.tag, "documents": each.documents} for each in tags]}


@router.get("/documents/{document_id}")
async def get_document(document_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """One document."""
    return document_object(await container.knowledge.get_document(str(document_id), readable(owner)))


@router.patch("/documents/{document_id}", responses=errors(409))
async def change_document(
    document_id: UUID, body: DocumentPatch, container: ContainerDep, owner: Owner
) -> dict[str, Any]:
    """Change its tags or its date; nothing is read in again. Of a followed file only the date."""
    changed = await container.knowledge.change(str(document_id), erasable(owner), body.changes())
    return document_object(changed)


@router.get("/documents/{document_id}/chunks")
async def list_chunks(
    document_id: UUID, container: ContainerDep, owner: Owner, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, Any]:
    """Its chunks, in document order."""
    page = await container.knowledge.chunks(str(document_id), readable(owner), limit, cursor)
    return {"chunks": [chunk_object(chunk) for chunk in page.chunks], "next": page.next_cursor}


@router.delete("/documents/{document_id}")
async def delete_document(
    document_id: UUID,
    container: ContainerDep,
    owner: Owner,
    proof: Thorough = None,
    with_answers: WithAnswers = False,
) -> dict[str, Any]:
    """Erase a document with its chunks and what earlier turns cite of it, and prove it.

    `source` names the followed folder that brings it back while its file is there; null for an upload.
    """
    options = asked(ErasedKind.DOCUMENT, proof, with_answers=with_answers)
    document = await container.knowledge.get_document(str(document_id), erasable(owner))
    erased = await container.sessions.erasure.document(str(document_id), erasable(owner), options)
    return {
        "document_id": str(document_id),
        "deleted": True,
        "source": document.source or None,
        **proof_object(erased),
    }


@router.get("/jobs")
async def list_jobs(container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """The jobs that wait, run, or ended lately; the newest first."""
    return {"jobs": [job_object(job) for job in container.knowledge.list_jobs(readable(owner))]}


@router.get("/jobs/{job_id}")
async def get_job(job_id: UUID, container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """How far a job is: stage, attempt, done, total, error."""
    return job_object(container.knowledge.job(str(job_id), readable(owner)))


@router.get("/jobs/{job_id}/stream", response_model=None, responses={200: EVENT_STREAM})
async def follow_job(job_id: UUID, container: ContainerDep, owner: Owner) -> EventStreamResponse:
    """The job's state now and after every change, as JSON events; ends with the final one."""
    changes = container.knowledge.job_changes(str(job_id), readable(owner))
    ping_interval_s = container.settings.server.ping_interval_s

    async def events() -> AsyncGenerator[bytes, None]:
        async for snapshot in changes:
            yield f"event: job\ndata: {json.dumps(job_object(snapshot))}\n\n".encode()

    return EventStreamResponse(events(), ping_interval_s)


def readable(owner: str) -> tuple[str, ...]:
    return (owner, SHARED_OWNER)


def erasable(owner: str) -> tuple[str, ...]:
    """Shared documents belong to the operator; without API keys that is whoever sits here."""
    return readable(owner) if owner == LOCAL_OWNER else (owner,)


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
    """The parser refuses a file name of thousands of characters as if the whole form were broken."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MultipartParseError) and "header size" in str(cause):
            return BadRequestError("file: the name is too long.")
        cause = cause.__context__
    return MalformedFormError(str(error.detail))


def _file(form: FormData) -> UploadFile:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise BadRequestError("missing: file")
    return file


async def _upload(form: FormData, file: UploadFile, owner: str) -> Upload:
    tags = form.get("tags")
    return Upload(
        owner=owner,
        file_name=file.filename or "",
        content=await file.read(),
        external_id=_field(form, "external_id"),
        tags=tuple(tags.split(",")) if isinstance(tags, str) else None,
        date=_field(form, "date"),
    )


def _field(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) and value else None
