"""The parts of the OpenAPI description shared by routes: errors, streams, request bodies, tags and keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.utils import get_flat_params
from fastapi.openapi.utils import get_openapi
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from routes.openai.wire import CompletionBody, CompletionChunk, EmbeddingBody
from routes.wire.chat import ChatBody, EarlierChatBody, EarlierEvent, StreamEvent
from routes.wire.documents import DocumentPatch, DocumentUpload, Job
from routes.wire.fields import ErrorResponse
from routes.wire.imports import ImportBody
from routes.wire.memories import MemoryBody, MemoryChanges, MemoryImportBody, SwitchBody
from routes.wire.operations import ReembedBody, SyncBody
from routes.wire.search import CalibrationBody, SearchBody
from routes.wire.server import ModelTable
from routes.wire.sessions import PersonaBody, SessionBody, SessionChanges, ShareBody
from routes.wire.turns import FeedbackBody, ToolDecision

Responses = dict[int | str, dict[str, Any]]

SCHEMAS = "#/components/schemas/"
# Read from the raw body, written as events, or only referenced: FastAPI does not discover these itself.
REQUESTS: tuple[type[BaseModel], ...] = (
    ChatBody, SessionBody, SessionChanges, PersonaBody, FeedbackBody, ImportBody, SearchBody, SyncBody,
    ReembedBody, CalibrationBody, DocumentPatch, DocumentUpload, CompletionBody,
    EmbeddingBody, EarlierChatBody, ShareBody, MemoryBody, MemoryChanges, MemoryImportBody, SwitchBody,
    ToolDecision, ModelTable,
)  # fmt: skip
REPLIES: tuple[type[BaseModel], ...] = (
    StreamEvent, CompletionChunk, EarlierEvent, Job, ErrorResponse,
)  # fmt: skip
TAGS = (
    ("conversation", "Ask, follow the answer as it is written, stop it."),
    ("sessions", "Conversations and their turns: list, read, rename, rate, erase, export, import."),
    ("memories", "What is remembered about a person: list, write, edit, forget, copy, switch off."),
    ("library", "Personas and prompt templates shared by all users: list, read, upload, delete."),
    ("documents", "The documents that answers are based on: add, list, read, tag, erase."),
    ("openai", "An OpenAI-compatible API, for existing clients."),
    ("search", "Retrieval without an answer: why a passage was or was not chosen."),
    ("admin", "For operators: clean-up, erasure, backups, repair, re-embedding, sync, receipts."),
    ("health", "Liveness, readiness, and metrics for Prometheus."),
    ("settings", "What a front end can offer its users."),
)
KEYS: dict[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key from API_KEYS or ADMIN_API_KEYS. No key is needed if none are configured.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key."},
}
ERRORS = {
    400: "The request is malformed, or its Host is not a name of this server.",
    401: "The API key is missing or wrong.",
    403: "The key lacks permission, or the request comes from another site.",
    404: "It does not exist, or it belongs to another owner.",
    409: "The request conflicts with what is stored or running.",
    413: "The body is too large.",
    415: "The body's media type is not supported.",
    422: "A field is invalid; the message names it.",
    429: "Too many streams or uploads are open: Retry-After says when to try again.",
    500: "An internal error occurred.",
    503: "A required part is unavailable: Retry-After says when to try again.",
    507: "The disk is full.",
}
STREAM_GRAMMAR = (
    "Server-Sent Events, each with `id: <turn_id>:<n>`. With `stream_format: prefix`, the data begins with "
    "SESSION:, STATUS:, THINK:, CONTENT:, SOURCE:, ERROR: or DONE:, followed by text or one line of JSON; "
    "with `json`, it is one line of JSON, and the event name gives its kind. A comment line is a ping."
)


class WireRoute(APIRoute):
    """Omits unset fields: what a thing does not have is absent from its reply. Also describes the body that
    `dependencies.json_body` reads, since FastAPI sees only that the request is read. `parameters` are the
    query's; none for streams, whose readers may add some of their own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["response_model_exclude_unset"] = True
        super().__init__(*arguments, **options)
        for read in [each.call for each in self.dependant.dependencies]:
            if isinstance(read, partial):
                self.openapi_extra = body_schema(read.args[0])
        params = [] if self.path.endswith("/stream") else get_flat_params(self.dependant)
        self.parameters = sorted(each.alias for each in params if isinstance(each.field_info, Query))


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the requestBody of a route that reads the raw body as one of REQUESTS."""
    schema = {"$ref": f"{SCHEMAS}{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def errors(*statuses: int) -> Responses:
    """Return the error responses of a route.

    By reference: FastAPI would build a validator per `model`, 400 in all, delaying the first request.
    """
    body = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{ErrorResponse.__name__}"}}}
    return {status: {"description": ERRORS[status], "content": body} for status in statuses}


def event_stream(event: str, description: str) -> dict[str, Any]:
    """Return a response that is a stream of events described by the schema `event`.

    The schema describes one event as it is on the wire, as tools for OpenAPI before 3.2 expect.
    """
    fields = {name: {"type": "string"} for name in ("id", "event", "data")}
    schema = {
        "type": "object",
        "description": description,
        "required": ["data"],
        "properties": fields,
        "contentSchema": {"$ref": SCHEMAS + event},
    }
    return {"description": "A stream of events.", "content": {"text/event-stream": {"schema": schema}}}


TURN_STREAM = event_stream("StreamEvent", STREAM_GRAMMAR)
EARLIER_STREAM = event_stream("EarlierEvent", "Server-Sent Events, each with one line of JSON as its data.")
JOB_STREAM = event_stream("Job", "Server-Sent Events, each `event: job` with one line of JSON as its data.")


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description of every route, built once."""
    if app.openapi_schema is None:
        spec = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
            tags=[{"name": name, "description": text} for name, text in TAGS],
            servers=[{"url": app.state.root_path}] if app.state.root_path else None,
        )
        schemas = spec["components"]["schemas"]
        schemas.update(_own_schemas())
        for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's error format, which we do not use
            schemas.pop(name, None)
        spec["components"]["securitySchemes"] = KEYS
        for method, operation in _operations(spec):
            _complete(method, operation)
        app.openapi_schema = spec
    return app.openapi_schema


def _own_schemas() -> dict[str, Any]:
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in REQUESTS),
        *((model, "serialization") for model in REPLIES),
    ]
    _, schema = models_json_schema(models, ref_template=SCHEMAS + "{model}")
    own: dict[str, Any] = schema["$defs"]
    return own


def _operations(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in spec["paths"].values():
        yield from methods.items()


def _complete(method: str, operation: dict[str, Any]) -> None:
    """Add the edge's responses, which any route may give, and the key; sort the statuses."""
    statuses = {400, 500} | (set() if method == "get" else {403})
    statuses |= {413, 415} if "requestBody" in operation else set()
    responses = operation["responses"]
    for status, response in errors(*statuses).items():
        responses.setdefault(str(status), response)
    if "401" in responses:
        operation["security"] = [{name: []} for name in KEYS]
    if "openai" in operation["tags"]:  # there an invalid field is 400
        responses.pop("422", None)
    operation["responses"] = dict(sorted(responses.items()))
