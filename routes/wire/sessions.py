"""Sessions with their personas, and links to a branch of one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.conversation.sessions import MAX_NAME_CHARS, PersonaDraft
from core.conversation.turns import KnowledgeUse
from core.dates import MAX_EXPIRE_DAYS
from routes.wire.erasure import PROOF, RECEIPT_ID, Proof
from routes.wire.fields import (
    MAX_NAMES,
    AtMost,
    MaxTokens,
    Moment,
    Named,
    PlainText,
    Reply,
    Temperature,
    Uuid,
    WireModel,
    absent,
    example,
)
from routes.wire.turns import SESSION_ID, TURN_ID

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

    persona_id: str = Field(description="The persona's id.")
    name: str = Field(description='The persona\'s name; "" for none.')
    text: str = Field(description="The persona's text.")
    document_id: str | None = Field(description="The document that the text is from.")
    chunk_id: str | None = Field(description="The passage that the text is from.")
    batch_name: str | None = Field(None, description="The batch of the library that the text is from.")
    item: str | None = Field(None, description="The title of the item in that batch.")
    updated_at: Moment = Field(description="When the persona was set.")


class SessionChoices(Reply):
    """Defaults for the session's questions; what is absent is the server's choice."""

    model_id: str = absent("The model that answers.")
    temperature: float = absent("The model's temperature.")
    max_tokens: int = absent("The longest answer, in tokens.")
    thinking: bool = absent("Whether the model reasons first.")
    tools: list[str] = absent("What the model may call.")
    knowledge: KnowledgeUse = absent("Whether to search the documents.")


class TurnMatch(Reply):
    """A turn that contains the search text."""

    model_config = example({"turn_id": TURN_ID, "text": "…父子链把每一轮与它的上一轮相连"})

    turn_id: str = Field(description="The turn's id.")
    text: str = Field(description="The words around the match, in one line.")


class Session(SessionChoices):
    """A conversation."""

    model_config = example({**_SESSION, "turn_count": 2, "state": "idle"})

    session_id: str = Field(description="The session's id.")
    title: str = Field(description="The title, initially the first question (until then, the first command).")
    created_at: Moment = Field(description="When the session began.")
    updated_at: Moment = Field(description="When the last turn began.")
    hold: bool = Field(description="true: exempt from expiry.")
    expire_days: int | None = Field(description="The session's own age limit in days; null: the server's.")
    persona: Persona | None = Field(description="The session's own system prompt.")
    turn_count: int = absent("The number of turns; absent in replies to changes.")
    state: Literal["idle", "pending"] = absent(
        "pending: one of its turns is running, and a question without parent_turn_id is refused (409 "
        "session_busy); absent in replies to changes."
    )
    match: TurnMatch = absent("With `q`: the newest turn that contains all words of `q`.")


class SessionPage(Reply):
    """A page of sessions."""

    model_config = example({"sessions": [{**_SESSION, "turn_count": 2, "state": "idle"}], "next": None})

    sessions: list[Session] = Field(description="The sessions, newest first.")
    next: int | None = Field(description="`before` of the next page; null: this is the last one.")
    partial: bool = absent("true: with `q`, 100 turns match, and the sessions of any others are missing.")
    choices: SessionChoices = absent(
        "The last choices, with which the page starts a new session; only on the first page without `q`."
    )


class ErasedSession(Reply):
    """A session that was erased."""

    model_config = example({"session_id": SESSION_ID, "turns_erased": 2, "proof": None, "receipt_id": ""})

    session_id: str = Field(description="The session's id.")
    turns_erased: int = Field(description="How many turns were erased.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class SessionBody(WireModel):
    """The request body of POST /sessions."""

    model_config = example({"title": "Notes"})

    title: Title = Field("", description="The title; empty: taken from the first question.")


class SessionChanges(WireModel):
    """The request body of PATCH /sessions/{id}; absent fields stay as they are."""

    model_config = example({"title": "Notes", "hold": True}, {"model_id": "default", "thinking": True})

    title: Title | None = Field(None, min_length=1, description="The new title.")
    hold: bool | None = Field(None, description="true: exempt from expiry.")
    expire_days: int | None = Field(
        None, ge=1, le=MAX_EXPIRE_DAYS, description="The session's own age limit in days; null: the server's."
    )
    model_id: Name | None = Field(None, description="The model that answers; null: the default.")
    temperature: Temperature | None = Field(None, description="null: as in the model's table.")
    max_tokens: MaxTokens | None = Field(None, description="null: as in the model's table.")
    thinking: bool | None = Field(None, description="Whether the model reasons first; null: false.")
    tools: list[Named] | None = Field(None, max_length=MAX_NAMES, description="Callable tools; null: none.")
    knowledge: KnowledgeUse | None = Field(None, description="Whether to search the documents; null: auto.")


class PersonaBody(WireModel):
    """The request body of PUT /sessions/{id}/persona."""

    model_config = example({"text": "Answer in one sentence.", "name": "terse"})

    text: str = Field(description="The session's own system prompt; 1 to 16,000 characters.")
    name: Name = Field("", description="The persona's name.")
    document_id: Name | None = Field(None, description="The document that the text is from.")
    chunk_id: Name | None = Field(None, description="The passage that the text is from.")
    batch_name: Name | None = Field(None, description="The batch of the library that the text is from.")
    item: Name | None = Field(None, description="The title of the item in that batch.")

    def to_draft(self) -> PersonaDraft:
        fields = self.model_dump(include={"text", "document_id", "chunk_id", "batch_name", "item"})
        return PersonaDraft(name=self.name.strip(), **fields)


SHARE_ID = "b7c0e1d2-0000-4000-8000-000000000009"
_SHARE = {
    "share_id": SHARE_ID,
    "leaf": TURN_ID,
    "created_at": "2026-01-31T09:30:00.000000Z",
    "expires_at": "2026-02-07T09:30:00.000000Z",
    "passages": False,
}


class ShareBody(WireModel):
    """The request body of POST /sessions/{session_id}/shares."""

    model_config = example({"expire_days": 7, "passages": False})

    leaf: Uuid | None = Field(None, description="The branch's last turn; absent: the session's newest.")
    expire_days: int = Field(7, ge=1, le=365, description="After how many days the link expires.")
    passages: bool = Field(False, description="true: cited passages can be read too.")


class Share(Reply):
    """A link."""

    share_id: str = Field(description="The link's id, for revoking it.")
    leaf: str = Field(description="The last turn that the link shows.")
    created_at: Moment = Field(description="When the link was created.")
    expires_at: Moment = Field(description="When the link expires.")
    passages: bool = Field(description="Whether cited passages can be read.")


class CreatedShare(Share):
    """A new link."""

    model_config = example({**_SHARE, "url": "http://127.0.0.1:8000/shared/…"})

    url: str = Field(description="The link's address, which is shown only once.")


class ShareList(Reply):
    """The links of a session that still open."""

    model_config = example({"shares": [_SHARE]})

    shares: list[Share] = Field(description="The links, oldest first.")


class RevokedShare(Reply):
    """A link that was revoked."""

    model_config = example({"share_id": SHARE_ID, "revoked": True})

    share_id: str = Field(description="The link's id.")
    revoked: bool = Field(description="Always true.")
