"""Sessions and personas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from core.conversation.persona import MAX_NAME_CHARS, PersonaDraft
from core.moments import MAX_EXPIRE_DAYS
from routes.wire.erasure import PROOF, RECEIPT_ID, Proof
from routes.wire.fields import AtMost, Moment, PlainText, Reply, WireModel, absent, example
from routes.wire.turns import SESSION_ID

MAX_TITLE_CHARS = 200

Name = Annotated[PlainText, AtMost(MAX_NAME_CHARS)]
Title = Annotated[PlainText, AtMost(MAX_TITLE_CHARS)]

_SESSION = {
    "session_id": SESSION_ID,
    "title": "父子链是什么？",
    "created_at": "2026-01-31T09:30:00.000000Z",
    "updated_at": "2026-01-31T09:35:00.000000Z",
    "hold": False,
    "expire_days": None,
    "persona": None,
}


class Persona(Reply):
    """A session's own system prompt."""

    persona_id: str = Field(description="Its id.")
    name: str = Field(description='What it is called; "" for none.')
    text: str = Field(description="The prompt.")
    document_id: str | None = Field(description="The document that the text is from.")
    chunk_id: str | None = Field(description="The passage that the text is from.")
    updated_at: Moment = Field(description="When it was set.")


class Session(Reply):
    """A conversation."""

    model_config = example({**_SESSION, "turn_count": 2})

    session_id: str = Field(description="Its id.")
    title: str = Field(description="Its title, at first the first question.")
    created_at: Moment = Field(description="When it began.")
    updated_at: Moment = Field(description="When its last turn began.")
    hold: bool = Field(description="true: kept from expiry.")
    expire_days: int | None = Field(description="Its own age limit in days; null: the server's.")
    persona: Persona | None = Field(description="Its own system prompt.")
    turn_count: int = absent("How many turns it has; absent where a change is answered.")


class SessionPage(Reply):
    """A page of sessions."""

    model_config = example({"sessions": [{**_SESSION, "turn_count": 2}], "next": None})

    sessions: list[Session] = Field(description="Newest first.")
    next: int | None = Field(description="`before` of the next page; null: this is the last one.")


class ErasedSession(Reply):
    """A session that was erased."""

    model_config = example({"session_id": SESSION_ID, "turns_erased": 2, "proof": None, "receipt_id": ""})

    session_id: str = Field(description="Its id.")
    turns_erased: int = Field(description="How many turns it had.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class SessionBody(WireModel):
    """What POST /sessions takes."""

    model_config = example({"title": "Notes"})

    title: Title = Field("", description="Its title; empty: taken from the first question.")


class SessionChanges(WireModel):
    """What PATCH /sessions/{id} takes; absent fields stay as they are."""

    model_config = example({"title": "Notes", "hold": True})

    title: Title | None = Field(None, min_length=1, description="Its new title.")
    hold: bool | None = Field(None, description="true: kept from expiry.")
    expire_days: int | None = Field(
        None, ge=1, le=MAX_EXPIRE_DAYS, description="The session's own limit; null: the server's."
    )


class PersonaBody(WireModel):
    """What PUT /sessions/{id}/persona takes."""

    model_config = example({"text": "Answer in one sentence.", "name": "terse"})

    text: str = Field(description="The session's own system prompt; 1 to MAX_PERSONA_CHARS characters.")
    name: Name = Field("", description="What it is called.")
    document_id: Name | None = Field(None, description="Where the text is from.")
    chunk_id: Name | None = Field(None, description="The passage the text is from.")

    def to_draft(self) -> PersonaDraft:
        return PersonaDraft(self.text, self.name.strip(), self.document_id, self.chunk_id)
