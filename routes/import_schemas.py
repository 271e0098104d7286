"""What POST /sessions/import takes; GET /sessions/{id}/export gives the same form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.citing.citations import placed
from core.conversation.importing import FOLLOWS, GivenPersona, GivenSession, GivenTurn
from core.conversation.persona import PersonaDraft
from core.conversation.turns import MAX_WARNINGS, TurnStatus, Usage
from core.errors import BadRequestError
from core.knowledge import Citation
from core.text import preprocess_question
from routes.fields import Uuid, WireModel
from routes.import_parts import (
    MAX_TURNS,
    Count,
    Finite,
    GivenCitation,
    GivenFilters,
    GivenRequest,
    GivenRewritten,
    GivenSummary,
    GivenUsage,
    GivenWarning,
    Moment,
    Text,
    Verbatim,
    moment,
)
from routes.schemas import FeedbackBody, Name, PersonaBody, Title
from services.conversation.sessions import MAX_EXPIRE_DAYS

_OF_TOOLS = ("tool", "function")


class ImportTurn(WireModel):
    """One question and its answer."""

    question: Text = Field(description="Not empty.")
    answer: Text = Field("", description="May be empty: a note, or one voice of a chat.")
    turn_id: Uuid | None = Field(None, description="Absent: a new one is made.")
    timestamp: Moment | None = Field(None, description="RFC 3339, with its zone.")
    parent_turn_id: Uuid | None = Field(
        None, description="Absent: the turn before it in the list; null: a root; else a turn_id given here."
    )
    status: Literal["completed", "cancelled", "interrupted", "failed"] = "completed"
    thinking: Text = ""
    sources: list[GivenCitation] = Field(default_factory=list, max_length=1_000)
    model_id: Name = "imported"
    command: Literal["", "help", "clear", "persona"] = ""
    token_count: Count = 0
    usage: GivenUsage = Field(default_factory=GivenUsage)
    timings_ms: dict[Verbatim, Finite] = Field(default_factory=dict, max_length=100)
    finish_reason: Name = ""
    summary: GivenSummary | None = None
    filters: GivenFilters = Field(default_factory=GivenFilters)
    request: GivenRequest | None = None
    feedback: FeedbackBody | None = None
    warnings: list[GivenWarning] = Field(default_factory=list, max_length=MAX_WARNINGS)
    rewritten_question: GivenRewritten | None = None

    def to_given(self, at: int) -> GivenTurn:
        parent = str(self.parent_turn_id) if self.parent_turn_id else None
        return GivenTurn(
            question=self.question,
            answer=self.answer,
            turn_id=str(self.turn_id) if self.turn_id else None,
            created_us=moment(self.timestamp, f"turns.{at}.timestamp"),
            parent=parent if "parent_turn_id" in self.model_fields_set else FOLLOWS,
            status=TurnStatus(self.status),
            thinking=self.thinking,
            sources=tuple([placed(Citation(**source.model_dump())) for source in self.sources]),
            model_id=self.model_id,
            command=self.command,
            token_count=self.token_count,
            usage=Usage(**self.usage.model_dump()),
            timings_ms=self.timings_ms,
            finish_reason=self.finish_reason,
            summary=self.summary.to_summary(at) if self.summary else None,
            filters=self.filters.to_filter(),
            request=self.request.to_asked() if self.request else None,
            feedback=self.feedback.to_feedback() if self.feedback else None,
            warnings=tuple([warning.to_warning() for warning in self.warnings]),
            rewritten=self.rewritten_question.to_rewritten() if self.rewritten_question else None,
        )


class ImportMessage(WireModel):
    """A message in OpenAI's form: text of a person, a model, or the system. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    role: str = Field(description="system or developer (the first only), user or assistant.")
    content: Text = Field(description="Text, or a list of parts of the type text, which are joined.")

    @model_validator(mode="before")
    @classmethod
    def _no_tools(cls, value: Any) -> Any:
        if isinstance(value, dict) and (
            value.get("role") in _OF_TOOLS or value.get("tool_calls") or value.get("function_call")
        ):
            raise PydanticCustomError("tools", "tool calls and tool messages cannot be imported")
        return value

    @field_validator("role")
    @classmethod
    def _developer_is_system(cls, role: str) -> str:
        return "system" if role == "developer" else role

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        texts = [_text_of(part) for part in value]
        if None in texts:
            raise PydanticCustomError("parts", "only parts of the type text can be imported")
        return "".join(filter(None, texts))


class ImportPersona(PersonaBody):
    persona_id: Uuid | None = None
    updated_at: Moment | None = None


class ImportBody(WireModel):
    """A conversation from elsewhere: as turns, or as messages in OpenAI's form."""

    session_id: Uuid | None = Field(None, description="Absent: a new one is made.")
    title: Title | None = Field(None, description="Absent: taken from the first question.")
    hold: bool = Field(False, description="true: kept from expiry, which goes by the turns' times.")
    expire_days: int | None = Field(None, ge=1, le=MAX_EXPIRE_DAYS)
    created_at: Moment | None = None
    updated_at: Moment | None = None
    persona: ImportPersona | None = None
    turns: list[ImportTurn] | None = Field(None, min_length=1, max_length=MAX_TURNS)
    messages: list[ImportMessage] | None = Field(None, min_length=1, max_length=2 * MAX_TURNS + 1)

    @field_validator("persona", mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_form(self) -> ImportBody:
        if (self.turns is None) == (self.messages is None):
            raise PydanticCustomError("form", "either turns or messages must be given, and not both")
        return self

    def to_given(self, owner: str) -> GivenSession:
        """Raises BadRequestError, which names the turn or the message by its place."""
        turns = [turn.to_given(at) for at, turn in enumerate(self.turns or ())]
        given = GivenSession(
            owner=owner,
            turns=turns,
            session_id=str(self.session_id) if self.session_id else None,
            title=self.title,
            hold=self.hold,
            expire_days=self.expire_days,
            created_us=moment(self.created_at, "created_at"),
            updated_us=moment(self.updated_at, "updated_at"),
            persona=_persona(self.persona),
        )
        return _with_messages(given, self.messages) if self.messages else given


def _text_of(part: Any) -> str | None:
    """None for what is no text part."""
    if not isinstance(part, dict) or part.get("type") != "text":
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _persona(given: ImportPersona | None) -> GivenPersona | None:
    if given is None:
        return None
    persona_id = str(given.persona_id) if given.persona_id else None
    return GivenPersona(given.to_draft(), persona_id, moment(given.updated_at, "persona.updated_at"))


def _with_messages(given: GivenSession, messages: list[ImportMessage]) -> GivenSession:
    """Each user message begins a turn, which the assistant's answers; one that nobody answered is kept as
    interrupted. The first system message is the persona."""
    turns: list[GivenTurn] = []
    answered = True
    for at, message in enumerate(messages):
        if not preprocess_question(message.content):
            raise BadRequestError(f"messages.{at}.content: must not be empty.")
        if message.role == "user":
            turns.append(GivenTurn(message.content, "", status=TurnStatus.INTERRUPTED))
            answered = False
        elif message.role == "assistant" and not answered:
            turns[-1] = replace(turns[-1], answer=message.content, status=TurnStatus.COMPLETED)
            answered = True
        elif message.role == "system" and at == 0 and given.persona is None:
            given = replace(given, persona=GivenPersona(PersonaDraft(message.content)))
        else:
            raise BadRequestError(f"messages.{at}.role: {_why_refused(message.role)}")
    if not turns:
        raise BadRequestError("messages: there is no user message.")
    return replace(given, turns=turns)


def _why_refused(role: str) -> str:
    match role:
        case "assistant":
            return "an assistant message must follow a user message."
        case "system":
            return "a system message must be the first, and not beside a persona."
        case _:
            return "must be system, user or assistant."
