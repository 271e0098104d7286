"""The wire's request bodies: strict types, unknown fields refused (PROTOCOL section 1)."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from api.turn.request import TurnRequest
from core.conversation.persona import MAX_NAME_CHARS, PersonaDraft
from core.conversation.turns import Feedback
from routes.fields import AtMost, PlainText, Uuid, WireModel
from routes.filters import FiltersBody, filter_of
from services.conversation.sessions import KEEP, MAX_EXPIRE_DAYS, SessionChange
from services.conversation_manager import UNSET

DEFAULT_TOP_N = 10
MAX_TOP_N = 50
MAX_TITLE_CHARS = 200

Name = Annotated[PlainText, AtMost(MAX_NAME_CHARS)]
Title = Annotated[PlainText, AtMost(MAX_TITLE_CHARS)]


class ChatBody(WireModel):
    """What POST /knowledge_chat_conversation takes."""

    question: PlainText = Field(
        description="What is asked; 1 to MAX_QUESTION_CHARS characters after trimming."
    )
    session_id: Uuid | None = Field(None, description="Absent: a new session is made.")
    turn_id: Uuid | None = Field(None, description="The client's id for this turn: the retry key.")
    parent_turn_id: Uuid | None = Field(
        None, description="Absent: the session's latest completed turn; null: a new root."
    )
    thinking: bool = Field(False, description="Ask for visible thinking.")
    model_id: str = Field("default", max_length=200, description="A key of the configuration.")
    rerank_top_n: int = Field(
        DEFAULT_TOP_N, ge=1, le=MAX_TOP_N, description="Candidates shown to the model at most."
    )
    use_insert_block: bool = Field(False, description="Judge candidates one by one with an LLM.")
    insert_block_llm_id: str | None = Field(None, max_length=200, description="Which model judges.")
    filters: FiltersBody | None = Field(None, description="Which documents may answer; absent: all.")
    stream: bool = Field(True, description="false: one JSON object with the same parts.")
    stream_format: Literal["prefix", "json"] = "prefix"

    def to_request(self, owner: str, request_id: str) -> TurnRequest:
        given_parent = "parent_turn_id" in self.model_fields_set
        return TurnRequest(
            question=self.question,
            owner=owner,
            request_id=request_id,
            session_id=_text(self.session_id),
            turn_id=_text(self.turn_id),
            parent_turn_id=_text(self.parent_turn_id) if given_parent else UNSET,
            thinking=self.thinking,
            model_id=self.model_id,
            rerank_top_n=self.rerank_top_n,
            use_insert_block=self.use_insert_block,
            insert_block_llm_id=self.insert_block_llm_id,
            filters=filter_of(self.filters),
        )


class SessionBody(WireModel):
    """What POST /sessions takes."""

    title: Title = ""


class SessionChanges(WireModel):
    """What PATCH /sessions/{id} takes; absent fields stay as they are."""

    title: Title | None = Field(None, min_length=1)
    hold: bool | None = Field(None, description="true: kept from expiry.")
    expire_days: int | None = Field(
        None, ge=1, le=MAX_EXPIRE_DAYS, description="The session's own limit; null: the server's."
    )

    def to_change(self) -> SessionChange:
        given = "expire_days" in self.model_fields_set
        return SessionChange(self.title, self.hold, self.expire_days if given else KEEP)


class FeedbackBody(WireModel):
    """What PUT /turns/{id}/feedback takes; null without a comment takes it away."""

    rating: Literal["up", "down"] | None
    comment: Annotated[PlainText, AtMost(2_000)] = ""

    def to_feedback(self) -> Feedback:
        return Feedback(self.rating, self.comment.strip())


class PersonaBody(WireModel):
    """What PUT /sessions/{id}/persona takes."""

    text: str = Field(description="The session's own system prompt; 1 to MAX_PERSONA_CHARS characters.")
    name: Name = ""
    document_id: Name | None = Field(None, description="Where the text is from.")
    chunk_id: Name | None = None

    def to_draft(self) -> PersonaDraft:
        return PersonaDraft(self.text, self.name.strip(), self.document_id, self.chunk_id)


def _text(value: UUID | None) -> str | None:
    return str(value) if value is not None else None
