"""Imported conversations: what POST /sessions/import takes, and what importing another product's export would
add."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.conversation.importing import ImportedPersona, ImportedSession, imported_turn
from core.conversation.sessions import PersonaDraft
from core.conversation.turns import Turn, TurnStatus
from core.dates import MAX_EXPIRE_DAYS
from core.errors import BadRequestError
from core.images import SentImage
from core.text import preprocess_question
from core.tools import ToolState, cut_result
from routes.wire.fields import Reply, Uuid, WireModel, example
from routes.wire.sessions import Name, PersonaBody, Title
from routes.wire.transfer import (
    MAX_TOOL_CALLS,
    MAX_TURNS,
    ImportFunction,
    ImportToolUse,
    ImportTurn,
    Text,
    Time,
    moment,
)
from routes.wire.turns import SESSION_ID, TURN_ID


class ImportCall(WireModel):
    """A tool call that an assistant's message requests."""

    model_config = ConfigDict(extra="ignore")

    id: Name = Field(description="The id that the tool's message refers to.")
    function: ImportFunction = Field(description="The function called.")


class ImportMessage(WireModel):
    """A message in OpenAI's form: from a user, a model, the system or a tool. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    role: str = Field(description="system or developer (only the first), user, assistant or tool.")
    content: Text = Field(
        "", description="Text, or a list of parts of type text, which are joined; null with tool_calls."
    )
    tool_calls: list[ImportCall] | None = Field(
        None, max_length=MAX_TOOL_CALLS, description="The tool calls that an assistant's message requests."
    )
    tool_call_id: Name | None = Field(None, description="The call that a tool's message answers.")

    @model_validator(mode="before")
    @classmethod
    def _no_old_calls(cls, value: Any) -> Any:
        if isinstance(value, dict) and (value.get("role") == "function" or value.get("function_call")):
            raise PydanticCustomError(
                "tools", "the old form of tool calls (function_call) cannot be imported"
            )
        return value

    @property
    def is_of_tools(self) -> bool:
        return self.role == "tool" or (self.role == "assistant" and bool(self.tool_calls))

    @field_validator("role")
    @classmethod
    def _developer_is_system(cls, role: str) -> str:
        return "system" if role == "developer" else role

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return "" if value is None else value
        texts = [_text_of(part) for part in value]
        if None in texts:
            raise PydanticCustomError("parts", "only parts of type text can be imported")
        return "".join(filter(None, texts))


class ImportPersona(PersonaBody):
    """A session's own system prompt."""

    persona_id: Uuid | None = Field(None, description="The persona's id; absent: a new one is generated.")
    updated_at: Time | None = Field(None, description="When the persona was set; absent: now.")


def _not_empty(turns: list[ImportTurn] | None) -> list[ImportTurn] | None:
    """Not enforced by the schema, which also describes exports, and those may have no turns."""
    if turns is not None and not turns:
        raise PydanticCustomError("too_short", "must have one turn at least")
    return turns


class ImportBody(WireModel):
    """A conversation from elsewhere: as turns, or as messages in OpenAI's form."""

    model_config = example(
        {
            "title": "父子链",
            "turns": [
                {
                    "question": "父子链是什么？",
                    "answer": "每一轮都记下上一轮。",
                    "timestamp": "2026-01-31T17:30:00+08:00",
                }
            ],
        },
        {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]},
    )

    session_id: Uuid | None = Field(None, description="The session's id; absent: a new one is generated.")
    title: Title | None = Field(None, description="The title; absent: taken from the first question.")
    hold: bool = Field(False, description="true: exempt from expiry, which goes by the turns' times.")
    expire_days: int | None = Field(
        None, ge=1, le=MAX_EXPIRE_DAYS, description="The session's own age limit in days; null: the server's."
    )
    created_at: Time | None = Field(None, description="The time it began; absent: the first turn's.")
    updated_at: Time | None = Field(None, description="The time of its last use; absent: the last turn's.")
    persona: ImportPersona | None = Field(
        None, description="The session's own system prompt: an object, or its text alone."
    )
    turns: Annotated[list[ImportTurn] | None, AfterValidator(_not_empty)] = Field(
        None, max_length=MAX_TURNS, description="The conversation as turns; at least one for an import."
    )
    messages: list[ImportMessage] | None = Field(
        None, min_length=1, max_length=2 * MAX_TURNS + 1, description="The conversation as OpenAI messages."
    )

    @field_validator("persona", mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_form(self) -> ImportBody:
        if (self.turns is None) == (self.messages is None):
            raise PydanticCustomError("form", "give either turns or messages, not both")
        return self

    def to_import(self, owner: str) -> ImportedSession:
        """Raises BadRequestError naming the turn or message by its position."""
        turns = [turn.to_turn(at) for at, turn in enumerate(self.turns or ())]
        imported = ImportedSession(
            owner=owner,
            turns=turns,
            session_id=str(self.session_id) if self.session_id else None,
            title=self.title,
            hold=self.hold,
            expire_days=self.expire_days,
            created_us=moment(self.created_at, "created_at"),
            updated_us=moment(self.updated_at, "updated_at"),
            persona=_persona(self.persona),
            sent_images={
                at: tuple([SentImage(url) for url in turn.images])
                for at, turn in enumerate(self.turns or ())
                if turn.images
            },
        )
        return _with_messages(imported, self.messages) if self.messages else imported


def _text_of(part: Any) -> str | None:
    """Return None for anything but a text part."""
    if not isinstance(part, dict) or part.get("type") != "text":
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _persona(imported: ImportPersona | None) -> ImportedPersona | None:
    if imported is None:
        return None
    persona_id = str(imported.persona_id) if imported.persona_id else None
    return ImportedPersona(imported.to_draft(), persona_id, moment(imported.updated_at, "persona.updated_at"))


def _with_messages(imported: ImportedSession, messages: list[ImportMessage]) -> ImportedSession:
    """Each user message starts a turn, which the assistant's answers; a turn without an answer is stored as
    interrupted. The first system message is the persona."""
    turns: list[Turn] = []
    answered = True
    for at, message in enumerate(messages):
        if message.is_of_tools and not answered:
            turns[-1] = _with_tools(turns[-1], message)
            continue
        if not preprocess_question(message.content):
            raise BadRequestError(f"messages.{at}.content: must not be empty.")
        if message.role == "user":
            turns.append(imported_turn(message.content, "", status=TurnStatus.INTERRUPTED))
            answered = False
        elif message.role == "assistant" and not answered:
            answer = "\n\n".join(filter(None, (turns[-1].answer, message.content)))
            turns[-1] = replace(turns[-1], answer=answer, status=TurnStatus.COMPLETED)
            answered = True
        elif message.role == "system" and at == 0 and imported.persona is None:
            imported = replace(imported, persona=ImportedPersona(PersonaDraft(message.content)))
        else:
            raise BadRequestError(f"messages.{at}.role: {_why_refused(message.role)}")
    if not turns:
        raise BadRequestError("messages: there is no user message.")
    return replace(imported, turns=turns)


def _with_tools(turn: Turn, message: ImportMessage) -> Turn:
    """Calls in an answer are a step of its turn; a tool's message answers the call it names, or none."""
    uses = turn.tool_calls
    if message.role == "tool":
        named = (use.id == message.tool_call_id and not use.state.has_result for use in uses)
        at = next((at for at, is_named in enumerate(named) if is_named), None)
        if at is None:
            return turn
        done = replace(uses[at], state=ToolState.DONE, result=cut_result(message.content))
        return replace(turn, tool_calls=(*uses[:at], done, *uses[at + 1 :]))
    step = uses[-1].step + 1 if uses else 0
    calls = [
        ImportToolUse(id=call.id, function=call.function, state="interrupted", step=step).to_use()
        for call in message.tool_calls or ()
    ]
    answer = "\n\n".join(filter(None, (turn.answer, message.content.strip())))
    return replace(turn, answer=answer, tool_calls=(*uses, *calls)[:MAX_TOOL_CALLS])


def _why_refused(role: str) -> str:
    match role:
        case "assistant":
            return "an assistant message must follow a user message."
        case "tool":
            return "a tool message must follow the assistant message that calls it."
        case "system":
            return "a system message must be the first, and cannot be combined with a persona."
        case _:
            return "must be system, user, assistant or tool."


class ImportedConversation(Reply):
    """A conversation that was imported."""

    model_config = example({"session_id": SESSION_ID, "turns": [TURN_ID], "indexing": 1})

    session_id: str = Field(description="The id of its session.")
    turns: list[str] = Field(description="The ids of the turns, in the order of the request.")
    indexing: int = Field(description="How many turns are being embedded in the background.")


class PlannedConversation(Reply):
    """One conversation of the export."""

    session_id: str = Field(description="The id of the session it is, or will be, stored as.")
    title: str = Field(description="The conversation's title.")
    turns: int = Field(description="The number of turns.")
    fresh: int = Field(description="How many turns are not stored yet.")
    branches: int = Field(description="The number of branches.")
    persona: bool = Field(description="Whether it has a system prompt, which becomes its persona.")
    attachments: int = Field(description="Files that it mentions but the export does not contain.")
    orphans: int = Field(description="Messages whose parent is missing: each starts a branch.")
    left_out: int = Field(description="Messages that form a cycle and cannot be imported.")


class ForeignImport(Reply):
    """What an export would add or, if applied, has added."""

    model_config = example(
        {
            "product": "ChatGPT",
            "applied": False,
            "conversations": [
                {
                    "session_id": SESSION_ID,
                    "title": "父子链",
                    "turns": 12,
                    "fresh": 12,
                    "branches": 2,
                    "persona": False,
                    "attachments": 1,
                    "orphans": 0,
                    "left_out": 0,
                }
            ],
        }
    )

    product: str = Field(description="The product that made the export.")
    applied: bool = Field(description="Whether the conversations were imported.")
    conversations: list[PlannedConversation] = Field(description="The conversations, in file order.")
