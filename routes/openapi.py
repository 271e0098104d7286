"""What OpenAPI says beside the routes: errors, streams, request bodies, tags and keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
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
# Read from the raw body, written as events, or only referred to: FastAPI does not know these by itself.
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
    ("memories", "What is remembered of a person: list, write, change, forget, copy, switch off."),
    ("library", "Personas and prompt templates that everybody may use: list, read, upload, delete."),
    ("documents", "What questions are answered from: add, list, read, tag, erase."),
    ("openai", "The same in OpenAI's form, for clients that know no other."),
    ("search", "Retrieval alone: why a passage was chosen, or was not."),
    ("admin", "For operators: clean-up, erasure, backups, repair, re-embedding, sync, receipts."),
    ("health", "Whether the server is up and ready, and its figures for Prometheus."),
    ("settings", "What a front end may offer."),
)
KEYS: dict[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of API_KEYS or ADMIN_API_KEYS. Without configured keys none is needed.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key."},
}
ERRORS = {
    400: "The request cannot be read, or names a host that is not this server's.",
    401: "The API key is missing or wrong.",
    403: "This key may not do it, or the request comes from another site.",
    404: "There is no such thing, or it belongs to somebody else.",
    409: "It conflicts with what is stored or running.",
    413: "The body is too large.",
    415: "The body is of another kind.",
    422: "A field is refused; the message names it.",
    429: "Too many streams or uploads are open: Retry-After says when to try again.",
    500: "Something went wrong in the server.",
    503: "A part that is needed does not answer: Retry-After says when to try again.",
    507: "The disk is full.",
}
STREAM_GRAMMAR = (
    "Server-Sent Events, `id: <turn_id>:<n>` each. With `stream_format: prefix` the data text begins with "
    "SESSION:, STATUS:, THINK:, CONTENT:, SOURCE:, ERROR: or DONE:, what follows is text or one line of "
    "JSON; with `json` it is one line of JSON, and the event's name says which. A comment line is a ping."
)


class WireRoute(APIRoute):
    """Writes the fields that were set: what a thing does not have is absent from its reply. The body that
    `dependencies.json_body` reads is described, since FastAPI sees only that the request is read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["response_model_exclude_unset"] = True
        super().__init__(*arguments, **options)
        for read in [each.call for each in self.dependant.dependencies]:
            if isinstance(read, partial):
                self.openapi_extra = body_schema(read.args[0])


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The requestBody of a route that reads the raw body as one of REQUESTS."""
    schema = {"$ref": f"{SCHEMAS}{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def errors(*statuses: int) -> Responses:
    """The error responses of a route.

    By reference: FastAPI builds a validator for each `model`, 400 in all, which the first request waits for.
    """
    body = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{ErrorResponse.__name__}"}}}
    return {status: {"description": ERRORS[status], "content": body} for status in statuses}


def event_stream(event: str, description: str) -> dict[str, Any]:
    """A response that is a stream of events, each of which is as the schema `event` says.

    The schema is one event's, as it comes off the wire: so readers of OpenAPI before 3.2 take it.
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
EARLIER_STREAM = event_stream("EarlierEvent", "Server-Sent Events, the data of each one line of JSON.")
JOB_STREAM = event_stream("Job", "Server-Sent Events, `event: job` each, its data one line of JSON.")


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description of every route, made once."""
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
        for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of errors, not ours
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
    """What the edge may answer, whatever the route; the key; the statuses in order."""
    statuses = {400, 500} | (set() if method == "get" else {403})
    statuses |= {413, 415} if "requestBody" in operation else set()
    responses = operation["responses"]
    for status, response in errors(*statuses).items():
        responses.setdefault(str(status), response)
    if "401" in responses:
        operation["security"] = [{name: []} for name in KEYS]
    if "openai" in operation["tags"]:  # where a refused field is 400
        responses.pop("422", None)
    operation["responses"] = dict(sorted(responses.items()))
