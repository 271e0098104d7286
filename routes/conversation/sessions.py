"""Sessions: list, read, rename, hold, erase; their turns as a branch or a tree; their personas. Single turns:
read, rate, erase, and see what was sent to the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response

from core.citing.citations import known_documents
from core.conversation.sessions import CHOICES, KEEP, SessionChange, TurnNode
from core.images import ENDINGS, MAX_IMAGES
from core.operations.erasure import ErasedKind
from routes.conversation.replies import (
    in_batches,
    prompt_reply,
    session_reply,
    streamed,
    turn_reply,
    whole_session,
)
from routes.dependencies import (
    ContainerDep,
    Owner,
    Thorough,
    erasure_options,
    json_body,
    proof_of,
    readable,
)
from routes.openapi import WireRoute, errors
from routes.wire.fields import AtMost, PlainText
from routes.wire.sessions import (
    MAX_TITLE_CHARS,
    ErasedSession,
    PersonaBody,
    Session,
    SessionBody,
    SessionChanges,
    SessionChoices,
    SessionPage,
)
from routes.wire.turns import Branch, ErasedTurn, FeedbackBody, Prompt, RatedTurn, Tree, TreeNode, Turn

# Not to be shared by caches; opened directly in a browser, it runs nothing.
IMAGE_HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Disposition": "inline",
}

router = APIRouter(tags=["sessions"], responses=errors(401, 404, 422, 503), route_class=WireRoute)

Title = Annotated[
    PlainText,
    AtMost(MAX_TITLE_CHARS),
    Query(description="Text in the title, or words that all occur in one turn. Case and width are ignored."),
]


@router.get("/sessions")
async def list_sessions(
    container: ContainerDep,
    owner: Owner,
    limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the previous page.")] = None,
    q: Title = "",
) -> SessionPage:
    """List sessions, newest first, paged. With `q`, a page may have few sessions or none and still have a
    `next`: a request searches at most 10,000 titles, and the 100 turns with most of the words."""
    text = q.strip()
    handler = container.sessions
    page = await (handler.find(owner, text, limit, before) if text else handler.newest(owner, limit, before))
    listed = [
        whole_session(container.running, session, count, page.matches.get(session.session_id))
        for session, count in page.sessions
    ]
    reply = SessionPage(sessions=listed, next=page.next_before_us)
    if before is not None or text:
        return reply.model_copy(update={"partial": True}) if page.is_partial else reply
    choices = await container.sessions.last_choices(owner)
    return reply.model_copy(update={"choices": SessionChoices(**choices)})


@router.post("/sessions", status_code=201, responses=errors(400, 413, 415))
async def create_session(
    container: ContainerDep, owner: Owner, body: Annotated[SessionBody, Depends(json_body(SessionBody))]
) -> Session:
    """Create an empty session; asking without a session_id creates one automatically."""
    return session_reply(await container.sessions.create(owner, body.title), turn_count=0, state="idle")


@router.get("/sessions/{session_id}")
async def get_session(session_id: UUID, container: ContainerDep, owner: Owner) -> Session:
    """One session."""
    return whole_session(container.running, *await container.sessions.get(str(session_id), owner))


@router.patch("/sessions/{session_id}", responses=errors(400, 413, 415))
async def change_session(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[SessionChanges, Depends(json_body(SessionChanges))],
) -> Session:
    """Rename, hold (exempt from expiry), set an age limit, or choose how questions are answered that do not
    say so themselves. The page starts a new session with its owner's last choices."""
    return session_reply(await container.sessions.change(str(session_id), owner, _change(body)))


@router.delete("/sessions/{session_id}")
async def erase_session(
    session_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> ErasedSession:
    """Erase the session with all its turns, and prove it."""
    options = erasure_options(ErasedKind.SESSION, proof)
    erased = await container.sessions.erasure.session(str(session_id), owner, options)
    return ErasedSession(
        session_id=str(session_id),
        turns_erased=erased.counts.get("turns", 0),
        proof=proof_of(erased),
        receipt_id=erased.receipt_id,
    )


@router.get("/sessions/{session_id}/turns", response_model=Branch)
async def list_turns(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    leaf: Annotated[UUID | None, Query(description="The last turn of the branch.")] = None,
    limit: Annotated[
        int | None, Query(ge=1, description="How many at most, the last of the branch; absent: all.")
    ] = None,
) -> Response:
    """The branch that ends in `leaf` (the newest turn when absent), starting at its root. With `limit` it may
    start later; then the first turn's parent is the `leaf` of the turns before."""
    branch = await container.sessions.read_branch(str(session_id), owner, str(leaf) if leaf else None, limit)

    async def replies() -> AsyncIterator[list[Turn]]:
        async for turns in branch:
            documents = await known_documents(container.knowledge.documents.known, turns, readable(owner))
            yield [turn_reply(turn, documents) for turn in turns]

    return await streamed("turns", replies())


@router.get("/sessions/{session_id}/tree", response_model=Tree)
async def get_tree(session_id: UUID, container: ContainerDep, owner: Owner) -> Response:
    """Every turn of the session with its parent and the beginning of its question, in time order."""
    nodes = await container.sessions.tree(str(session_id), owner)
    names = [each.name for each in fields(TurnNode)]

    def reply(each: tuple[TurnNode, str]) -> TreeNode:
        return TreeNode(**{name: getattr(each[0], name) for name in names}, question=each[1])

    return await streamed("turns", in_batches(nodes, reply))


@router.put("/sessions/{session_id}/persona", responses=errors(400, 413, 415))
async def set_persona(
    session_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[PersonaBody, Depends(json_body(PersonaBody))],
) -> Session:
    """Set or replace the session's persona: one at a time, from the next turn on."""
    return session_reply(await container.sessions.set_persona(str(session_id), owner, body.to_draft()))


@router.delete("/sessions/{session_id}/persona")
async def clear_persona(session_id: UUID, container: ContainerDep, owner: Owner) -> Session:
    """Clear the persona, from the next turn on."""
    return session_reply(await container.sessions.clear_persona(str(session_id), owner))


def _change(body: SessionChanges) -> SessionChange:
    sent = body.model_fields_set
    choices = body.model_dump(include=sent.intersection(CHOICES))
    return SessionChange(body.title, body.hold, body.expire_days if "expire_days" in sent else KEEP, choices)


@router.get("/turns/{turn_id}")
async def get_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> Turn:
    """One turn with its citations."""
    turn = await container.sessions.turn(str(turn_id), owner)
    documents = await known_documents(container.knowledge.documents.known, [turn], readable(owner))
    return turn_reply(turn, documents)


@router.get("/turns/{turn_id}/prompt")
async def get_prompt(turn_id: UUID, container: ContainerDep, owner: Owner) -> Prompt:
    """The request sent for this turn, part by part and byte for byte, and what the provider reported about
    its answer. Parts erased since are listed without text."""
    return prompt_reply(await container.sessions.prompt(str(turn_id), owner))


@router.get(
    "/turns/{turn_id}/images/{number}",
    response_class=Response,
    responses={
        200: {
            "description": "The image.",
            "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in sorted(ENDINGS)},
        }
    },
)
async def get_image(
    turn_id: UUID,
    number: Annotated[int, Path(ge=1, le=MAX_IMAGES, description="The number of the image, from 1.")],
    container: ContainerDep,
    owner: Owner,
) -> Response:
    """An image sent with the question, as re-encoded when it was received."""
    image = await container.chat.image(str(turn_id), number, owner)
    return Response(image.content, headers=IMAGE_HEADERS, media_type=image.image.media_type)


@router.put("/turns/{turn_id}/feedback", responses=errors(400, 409, 413, 415))
async def rate_turn(
    turn_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[FeedbackBody, Depends(json_body(FeedbackBody))],
) -> RatedTurn:
    """Rate an answer, replacing any earlier feedback."""
    return RatedTurn.model_validate(await container.sessions.rate(str(turn_id), owner, body.to_feedback()))


@router.delete("/turns/{turn_id}")
async def erase_turn(
    turn_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> ErasedTurn:
    """Erase one turn, and prove it; its children become roots."""
    options = erasure_options(ErasedKind.TURN, proof)
    erased = await container.sessions.erasure.turn(str(turn_id), owner, options)
    return ErasedTurn(turn_id=str(turn_id), erased=True, proof=proof_of(erased), receipt_id=erased.receipt_id)
