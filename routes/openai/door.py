"""POST /v1/chat/completions, GET /v1/models and POST /v1/embeddings."""

from __future__ import annotations

import base64
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID, uuid4

import numpy as np
from fastapi import APIRouter, Depends, Header, Request, Response

from api.container import Container
from api.doors.conversations import turn_of_key
from core.conversation.lineage import Conversation, is_housekeeping, read_messages, with_attached_apart
from core.conversation.turns import UNSET, AskedWith, TurnRequest
from core.errors import BadRequestError, ForbiddenError, UnknownModelError
from core.images import ImageData
from core.owners import VISITOR_PREFIX
from core.prompt.budget import estimate_tokens
from routes.dependencies import Asker, ContainerDep, Owner, json_body
from routes.errors import request_id
from routes.openai.answers import Form, respond
from routes.openai.wire import (
    Completion,
    CompletionBody,
    Embedded,
    EmbeddingBody,
    Embeddings,
    OfferedModel,
    OfferedModels,
)
from routes.openapi import WireRoute, errors, event_stream
from routes.stream import events_of
from routes.wire.fields import filter_of, text_of

router = APIRouter(tags=["openai"], route_class=WireRoute)

WENMAI, PLAIN = "wenmai", "plain"
DEFAULT = "default"
IGNORED = "X-Ignored-Parameters"
_HOW = {"rerank_top_n", "knowledge", "date"}
CHUNKS = event_stream(
    "CompletionChunk",
    "With `stream: true`: Server-Sent Events with one chunk each, and `data: [DONE]` at the end.",
)


@router.post(
    "/v1/chat/completions",
    response_model=Completion,
    responses={200: CHUNKS, **errors(400, 401, 403, 404, 409, 413, 415, 422, 429, 503)},
)
async def create_chat_completion(
    request: Request,
    container: ContainerDep,
    owner: Asker,
    body: Annotated[CompletionBody, Depends(json_body(CompletionBody))],
    idempotency_key: Annotated[
        str, Header(max_length=255, description="The same key gets the same turn.")
    ] = "",
    x_session_id: Annotated[UUID | None, Header(description="Same as the body's session_id.")] = None,
) -> Response:
    """Answer the last message from the documents and the stored conversation that the messages belong to; as
    one object, or in chunks with `stream: true`. Disconnecting cancels the answer."""
    if owner.startswith(VISITOR_PREFIX):
        if body.model != WENMAI:
            raise ForbiddenError(f"model: with a site's key, {WENMAI} is the only one that may be asked.")
        body.max_tokens = body.max_completion_tokens = None  # a public key must not make answers dearer
    sent = _conversation(body)
    conversation = with_attached_apart(sent)
    model_id, with_knowledge = _model(body.model)
    form = _form(request, body, conversation, container)
    if not with_knowledge or is_housekeeping(conversation.persona, conversation.question):
        model = container.plain_door.model(model_id, owner, by_name=not with_knowledge)
        model = model.with_options(body.options)
        slot = container.chat.checked_slot(owner)
        images = await _plain_images(container, conversation, owner, model_id) if not with_knowledge else ()
        events = container.plain_door.events(sent, model, images)
        return await respond(events, form, uuid4().hex, slot)
    asked = _turn_request(body, owner, request_id(request), model_id)
    asked = replace(asked, session_id=asked.session_id or text_of(x_session_id))
    keyed = turn_of_key(owner, idempotency_key) if idempotency_key else asked.turn_id
    whole = f"{owner}\0{asked.session_id}\0".encode() + await request.body()
    with container.conversation_door.attempts.trying(sha256(whole).hexdigest(), keyed) as attempt:
        asked = replace(asked, turn_id=attempt.turn_id)
        stream = await container.conversation_door.begin_turn(conversation, asked)
    slot = container.chat.reader_slot(owner)
    return await respond(events_of(stream), form, stream.turn_id, slot, attempt.ended)


@router.get("/v1/models", responses=errors(401))
async def list_offered_models(container: ContainerDep, owner: Owner) -> OfferedModels:
    """Every configured model: `wenmai/…` answers with the documents, `plain/…` without them."""
    return OfferedModels(object="list", data=[_offered(each) for each in _ids(container)])


@router.get("/v1/models/{model:path}", responses=errors(401, 404, 422))
async def retrieve_offered_model(model: str, container: ContainerDep, owner: Owner) -> OfferedModel:
    """One model of the list."""
    if model not in _ids(container):
        raise UnknownModelError(f"model: unknown. Offered: {', '.join(_ids(container))}.")
    return _offered(model)


def _ids(container: Container) -> list[str]:
    """A model that only quotes documents is not offered without them."""
    entries = container.llms.entries()
    named = [f"{WENMAI}/{entry.model_id}" for entry in entries if entry.model_id != DEFAULT]
    return [WENMAI, *named, *(f"{PLAIN}/{entry.model_id}" for entry in entries if entry.generative)]


def _offered(model: str) -> OfferedModel:
    return OfferedModel(id=model, object="model", created=0, owned_by=WENMAI)


def _model(name: str) -> tuple[str, bool]:
    """Return the configured model, and whether to use the documents."""
    kind, _, model_id = name.partition("/")
    if kind not in (WENMAI, PLAIN) or (kind == PLAIN and not model_id) or name.endswith("/"):
        raise UnknownModelError("model: unknown. GET /v1/models lists those that may be asked.")
    return model_id or DEFAULT, kind == WENMAI


def _conversation(body: CompletionBody) -> Conversation:
    """Raises BadRequestError for a question with a part that is neither text nor image."""
    spoken = [message for message in body.messages if message.is_spoken]
    last = spoken[-1] if spoken else None
    if last is None or last.role != "user":
        return read_messages((message.role, message.text) for message in spoken)
    if last.has_other_parts:
        raise BadRequestError("messages: the question has a part that is neither text nor image.")
    before = ((message.role, message.text) for message in spoken[:-1])
    return replace(read_messages([*before, (last.role, last.words)]), sent_images=last.images)


async def _plain_images(
    container: Container, conversation: Conversation, owner: str, model_id: str
) -> tuple[ImageData, ...]:
    """Images of a plain request are not stored."""
    asked = TurnRequest(conversation.question, owner, model_id=model_id, sent_images=conversation.sent_images)
    return (await container.chat.with_images(asked)).images


def _turn_request(body: CompletionBody, owner: str, request_id: str, model_id: str) -> TurnRequest:
    names_parent, options = "parent_turn_id" in body.model_fields_set, body.options
    return TurnRequest(
        question="",
        owner=owner,
        request_id=request_id,
        session_id=text_of(body.session_id),
        turn_id=text_of(body.turn_id),
        parent_turn_id=text_of(body.parent_turn_id) if names_parent else UNSET,
        model_id=model_id,
        how=AskedWith(
            **body.model_dump(include=_HOW),
            thinking=bool(options.thinking),
            temperature=options.temperature,
            max_tokens=options.max_tokens,
        ),
        filters=filter_of(body.filters),
        cancelled_when_left=True,
        switches_thinking=options.thinking is not None,
    )


def _form(request: Request, body: CompletionBody, conversation: Conversation, container: Container) -> Form:
    options, server = body.stream_options, container.settings.server
    in_footer = (body.sources_in_text or server.sources_in_text) == "footer"
    return Form(
        model=body.model,
        page=str(request.base_url),
        footer=conversation.language if in_footer else None,
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        headers={IGNORED: ", ".join(body.ignored)} if body.ignored else {},
        ping_interval_s=server.ping_interval_s,
        receive=request.receive,
    )


@router.post("/v1/embeddings", responses=errors(400, 401, 404, 413, 415, 422, 503))
async def create_embeddings(
    container: ContainerDep,
    owner: Owner,
    body: Annotated[EmbeddingBody, Depends(json_body(EmbeddingBody))],
) -> Embeddings:
    """Embed texts as Wenmai embeds passages, or questions with `input_type: query`. Vectors have length 1."""
    embedding = container.embedding
    if body.model not in (WENMAI, embedding.name):
        raise UnknownModelError(
            f"model: unknown. The configured embedding is {embedding.name!r}, or {WENMAI!r}."
        )
    if body.dimensions not in (None, embedding.dimension):
        raise BadRequestError(f"dimensions: this embedding has {embedding.dimension}.")
    texts = [body.input] if isinstance(body.input, str) else body.input
    embed = embedding.embed_queries if body.input_type == "query" else embedding.embed_passages
    vectors = await embed(texts)
    tokens = sum(map(estimate_tokens, texts))
    written = [_encoded(vector, body.encoding_format) for vector in vectors]
    return Embeddings(
        object="list",
        data=[Embedded(object="embedding", index=at, embedding=each) for at, each in enumerate(written)],
        model=body.model,
        usage={"prompt_tokens": tokens, "total_tokens": tokens},
    )


def _encoded(vector: Any, encoding: str) -> list[float] | str:
    """base64 encodes little-endian 32-bit floats, as the SDK expects."""
    if encoding == "float":
        return [float(value) for value in vector]
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
