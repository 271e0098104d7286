"""What POST /sessions/import takes; GET /sessions/{id}/export gives the same form."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.citations import placed
from core.conversation_import import FOLLOWS, GivenPersona, GivenSession, GivenTurn
from core.errors import BadRequestError
from core.knowledge import Citation, KnowledgeFilter
from core.moments import LATEST_ZONE, parse_time
from core.persona import PersonaDraft
from core.text import preprocess_question
from core.turns import Summary, TurnStatus, Usage
from routes.fields import AtMost, PlainText, Uuid, WireModel
from routes.schemas import Name, PersonaBody, Title
from services.sessions import MAX_EXPIRE_DAYS

MAX_TURNS = 20_000
MAX_TEXT_CHARS = 10_000_000  # what bounds an import is the size of its body


def _whole(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_OF_TOOLS = ("tool", "function")

Text = Annotated[PlainText, AtMost(MAX_TEXT_CHARS)]
Verbatim = Annotated[str, AfterValidator(_whole), AtMost(MAX_TEXT_CHARS)]
"""Text of a document, or a name: kept as it is, as far as it can be stored."""
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[PlainText, AtMost(64), Field(description="RFC 3339, with its zone.")]


class GivenCitation(WireModel):
    """A source of an answer (PROTOCOL section 5)."""

    index: Count
    document_id: Verbatim = ""
    file_name: Verbatim
    chunk_id: Verbatim = ""
    score: Finite = 0.0
    page: int | None = None
    heading: Verbatim = ""
    char_start: Count = 0
    char_end: Count = 0
    key_passage: Verbatim = ""
    text: Verbatim = ""
    reason: Verbatim = ""
    cited: bool = False
    passage_start: Count | None = None
    passage_end: Count | None = None
    version: Verbatim = ""
    date: Verbatim = ""


class GivenFilters(WireModel):
    """What the question was limited to; said again, never searched with."""

    tags: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    document_ids: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    sources: list[Verbatim] = Field(default_factory=list, max_length=1_000)
    since: Verbatim = ""
    until: Verbatim = ""

    def to_filter(self) -> KnowledgeFilter:
        lists = (tuple(self.tags), tuple(self.document_ids), tuple(self.sources))
        return KnowledgeFilter(*lists, self.since, self.until)


class GivenUsage(WireModel):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    estimated: bool = True


class GivenSummary(WireModel):
    """What a turn says of those before it; the ids are of turns of this import."""

    text: Text
    start: Uuid
    covers: list[Uuid] = Field(max_length=MAX_TURNS)
    previous: Uuid | None = None
    model_id: Name = ""
    created_at: Moment
    tokens: Count = 0


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
            summary=_summary(self.summary, at),
            filters=self.filters.to_filter(),
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


def moment(text: str | None, field: str) -> int | None:
    """UTC microseconds. Raises BadRequestError for a time that cannot be read or names no zone."""
    if text is None:
        return None
    found = parse_time(text, UTC)
    if found is None:
        raise BadRequestError(f"{field}: not a time in the form 2026-01-31T23:59:59+08:00.")
    if found != parse_time(text, LATEST_ZONE):
        raise BadRequestError(f"{field}: names no time zone; add Z or an offset such as +08:00.")
    return found


def _summary(given: GivenSummary | None, at: int) -> Summary | None:
    if given is None:
        return None
    return Summary(
        text=given.text,
        start=str(given.start),
        covers=tuple([str(turn_id) for turn_id in given.covers]),
        previous=str(given.previous) if given.previous else None,
        model_id=given.model_id,
        created_us=moment(given.created_at, f"turns.{at}.summary.created_at") or 0,
        tokens=given.tokens,
    )


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
