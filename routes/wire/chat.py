"""A question, its answer as one object, and the events of its stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, RootModel, Tag, model_validator
from pydantic_core import PydanticCustomError

from core.conversation.turns import KnowledgeUse, TurnStage, TurnStatus
from core.images import MAX_IMAGES, SentImage
from routes.wire.fields import (
    MAX_NAMES,
    AskedDate,
    FiltersBody,
    MaxTokens,
    Named,
    PlainText,
    Reply,
    Temperature,
    Uuid,
    WireModel,
    absent,
    example,
)
from routes.wire.turns import SESSION_ID, TURN_ID, Citation, TurnWarning, Usage

DEFAULT_TOP_N = 10
MAX_TOP_N = 50
StreamFormat = Literal["prefix", "json"]


class ImageUrl(WireModel):
    """An image, in the form of OpenAI's API."""

    url: str = Field(description="data:image/png;base64,… (or jpeg, webp, gif); URLs are not fetched.")
    detail: Literal["auto", "low", "high"] = Field("auto", description="Accepted, but ignored.")


class ImageSource(WireModel):
    """An image, in the form of Claude's API."""

    type: Literal["base64"] = Field("base64", description="Always base64.")
    media_type: str = Field(max_length=40, description="image/png, image/jpeg, image/webp or image/gif.")
    data: str = Field(description="The bytes as base64.")


class QuestionPart(WireModel):
    """A part of a question: a text, or an image, either sent with it or stored with an earlier turn."""

    type: Literal["text", "image_url", "image"] = Field(description="Which of the other fields is used.")
    text: PlainText = Field("", description="The text, for type text.")
    image_url: ImageUrl | None = Field(None, description="The image, for type image_url.")
    source: ImageSource | None = Field(None, description="The image, for type image.")
    turn_id: Uuid | None = Field(None, description="For type image: the turn with the stored image.")
    number: int = Field(1, ge=1, le=MAX_IMAGES, description="With turn_id: the image's number, from 1.")

    @model_validator(mode="after")
    def _is_whole(self) -> QuestionPart:
        is_kept, has_source = self.turn_id is not None, self.source is not None
        if self.type == "image_url" and self.image_url is None:
            raise PydanticCustomError("part", "a part of type image_url needs image_url")
        if self.type == "image" and is_kept == has_source:
            raise PydanticCustomError("part", "a part of type image needs either source or turn_id")
        return self

    @property
    def image(self) -> SentImage | None:
        if self.type == "image_url" and self.image_url:
            return SentImage(self.image_url.url)
        if self.type == "image" and self.source:
            return SentImage(f"data:{self.source.media_type};base64,{self.source.data}")
        return SentImage(turn_id=str(self.turn_id), number=self.number) if self.type == "image" else None


def _form_of(question: object) -> str:
    return "~parts" if isinstance(question, list) else "~text"


MAX_PARTS = 100
Question = Annotated[
    Annotated[PlainText, Tag("~text")]
    | Annotated[list[QuestionPart], Tag("~parts"), Field(min_length=1, max_length=MAX_PARTS)],
    Discriminator(_form_of),
]


class ChatBody(WireModel):
    """The request body of POST /knowledge_chat_conversation. If absent, `model_id`, `temperature`,
    `max_tokens`, `thinking`, `tools` and `knowledge` default to the session's choices."""

    model_config = example({"question": "父子链是什么？", "stream_format": "json"})

    question: Question = Field(
        description="The question; 1 to MAX_QUESTION_CHARS characters after trimming. Or a list of parts: "
        "texts, and images for a model with vision."
    )
    session_id: Uuid | None = Field(None, description="The session to continue; absent: a new one.")
    begin_session: bool = Field(
        True, description="false: an unknown session_id returns 404, even with CLIENT_SESSION_IDS."
    )
    turn_id: Uuid | None = Field(None, description="Your own id for this turn, for retries.")
    parent_turn_id: Uuid | None = Field(
        None, description="The parent turn; absent: the latest completed one; null: none, a new root."
    )
    thinking: bool = Field(
        False, description="true: the model reasons before it answers; false: no thinking is shown."
    )
    model_id: str = Field("default", max_length=200, description="The configured model that answers.")
    temperature: Temperature | None = Field(None, description="Temperature; absent: as in the model's table.")
    max_tokens: MaxTokens | None = Field(
        None, description="Maximum length of the answer in tokens; absent: as in the model's table."
    )
    rerank_top_n: int = Field(
        DEFAULT_TOP_N, ge=1, le=MAX_TOP_N, description="Maximum number of passages that the model receives."
    )
    use_insert_block: bool = Field(
        False, description="true: a model judges each candidate, including those below the threshold."
    )
    insert_block_llm_id: str | None = Field(
        None, max_length=200, description="The model that judges the candidates; absent: model_id."
    )
    filters: FiltersBody | None = Field(None, description="Which documents are searched; absent: all.")
    knowledge: KnowledgeUse = Field(
        "auto",
        description="Whether to search the documents; auto: as the setting KNOWLEDGE says, by default for "
        "everything but small talk and requests about the conversation itself.",
    )
    date: AskedDate = ""
    memory: bool = Field(
        True, description="false: nothing is recalled from other conversations or learned from this turn."
    )
    tools: list[Named] = Field(
        [],
        max_length=MAX_NAMES,
        description="What the model may call: names of [tools] tables, single tools as table__tool, or "
        "search_knowledge: the model searches the documents itself.",
    )
    stream: bool = Field(True, description="false: one JSON object instead of a stream.")
    stream_format: StreamFormat = Field(
        "prefix", description="The stream's format: data with prefixes, or named events with JSON."
    )

    @property
    def text(self) -> str:
        if isinstance(self.question, str):
            return self.question
        return "\n\n".join(part.text for part in self.question if part.type == "text")

    @property
    def images(self) -> tuple[SentImage, ...]:
        parts = [] if isinstance(self.question, str) else self.question
        return tuple([part.image for part in parts if part.image is not None])


class TurnError(Reply):
    """Why a turn failed."""

    message: str = Field(description="One sentence for a person.")
    code: str = Field(description="The kind of error, for programs.")
    retryable: bool = Field(description="Whether a retry may succeed.")
    cause: str = absent("Why a model did not answer: rate_limited, timeout, unreachable, empty and others.")
    retry_after_s: int = absent("How many seconds the model's server asks clients to wait.")
    request_id: str = absent("The request's id in the server's log.")


class Answer(Reply):
    """`stream: false`: all parts of the stream in one object."""

    model_config = example(
        {
            "thinking": "",
            "answer": "每一轮都记下上一轮 [1]。",
            "sources": [],
            "session_id": SESSION_ID,
            "turn_id": TURN_ID,
            "parent_turn_id": None,
            "status": "completed",
            "usage": {"prompt_tokens": 830, "completion_tokens": 12, "estimated": False},
            "timings_ms": {"total": 912.0},
        }
    )

    thinking: str = Field(description="The model's visible thinking.")
    answer: str = Field(description="The answer, as far as it was written.")
    sources: list[Citation] = Field(description="The passages shown to the model.")
    session_id: str = Field(description="The id of the turn's session.")
    warnings: list[TurnWarning] | None = absent("Warnings for the reader.")
    rewritten_question: str | None = absent("The rewritten question, used for a second search.")
    error: TurnError | None = absent("Why the turn failed; answer and thinking hold the text until then.")
    turn_id: str = Field(description="The turn's id.")
    parent_turn_id: str | None = Field(description="The id of the turn before this one; null for a root.")
    status: TurnStatus = Field(description="How the turn ended.")
    usage: Usage = Field(description="Tokens of the model call.")
    timings_ms: dict[str, float] = Field(description="Milliseconds by stage.")
    finish_reason: str = absent('Why the model stopped; "length": at a limit.')


class SessionData(Reply):
    """Which session the turn is in."""

    session_id: str = Field(description="The session's id.")


def _stages() -> str:
    """Return every stage with its additional fields."""
    along = {
        TurnStage.TOOL: " (call_id, name, state, ms, step, arguments, result)",
        TurnStage.WARNING: " (code and counts)",
        TurnStage.ERROR: " (code, retryable, request_id, cause, retry_after_s)",
        TurnStage.FINISHED: " (turn_id, parent_turn_id, status, usage, timings_ms)",
    }
    *others, last = (stage.value + along.get(stage, "") for stage in TurnStage)
    return f"{', '.join(others)}, and last {last}."


class StatusData(Reply):
    """Progress; further fields depend on the stage."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]

    stage: str = Field(description=_stages())
    message: str = Field(description="One sentence for a person.")


class TextData(Reply):
    """A piece of text; joined, the pieces are the whole text."""

    text: str = Field(description="The text of this piece.")


class SourceData(Reply):
    """The citations of the answer."""

    citations: list[Citation] = Field(description="The citations, numbered from 1.")


class ErrorData(Reply):
    """Why the turn failed."""

    message: str = Field(description="One plain sentence for a person.")


class DoneData(Reply):
    """Empty. Without an error before it, the turn is stored."""


class _Numbered(Reply):
    """An event with its number in the stream."""

    id: str = Field(description="<turn_id>:<n>, n counting from 1; the value for Last-Event-ID.")


class SessionEvent(_Numbered):
    """Once, first. In prefix format: SESSION:, then the id."""

    event: Literal["session"] = Field(description="The event's name.")
    data: SessionData = Field(description="One line of JSON.")


class StatusEvent(_Numbered):
    """Any number of times. In prefix format: STATUS:, then the JSON."""

    event: Literal["status"] = Field(description="The event's name.")
    data: StatusData = Field(description="One line of JSON.")


class TextEvent(_Numbered):
    """A piece of the thinking or of the answer. In prefix format: THINK: or CONTENT:, then the piece."""

    event: Literal["think", "content"] = Field(description="The event's name.")
    data: TextData = Field(description="One line of JSON.")


class SourceEvent(_Numbered):
    """Once, after the turn is stored. In prefix format: SOURCE:, then the array of citations."""

    event: Literal["source"] = Field(description="The event's name.")
    data: SourceData = Field(description="One line of JSON.")


class ErrorEvent(_Numbered):
    """At most once. In prefix format: ERROR:, then the sentence."""

    event: Literal["error"] = Field(description="The event's name.")
    data: ErrorData = Field(description="One line of JSON.")


class DoneEvent(_Numbered):
    """Once, last. In prefix format: DONE:."""

    event: Literal["done"] = Field(description="The event's name.")
    data: DoneData = Field(description="An empty object.")


class StreamEvent(RootModel[SessionEvent | StatusEvent | TextEvent | SourceEvent | ErrorEvent | DoneEvent]):
    """One Server-Sent Event of a turn, its data parsed as JSON (`stream_format: json`). Order of events:
    session, then any of status, think and content, then source, error, status, done."""

    model_config = example({"id": f"{TURN_ID}:1", "event": "session", "data": {"session_id": SESSION_ID}})


# The earlier chat system's protocol, POST /api/v1/chat.


class EarlierChatBody(WireModel):
    """The request body of POST /api/v1/chat."""

    model_config = example({"message": "父子链是什么？", "session_id": SESSION_ID})

    message: PlainText = Field(description="The question; 1 to MAX_QUESTION_CHARS characters after trimming.")
    session_id: Uuid | None = Field(None, description="The session to continue; absent: a new one.")


class EarlierEvent(Reply):
    """The data of one event: `session_created` once, first, for a new session; `thinking` and `text` as they
    come; `done` once, last."""

    model_config = example(
        {"type": "session_created", "data": {"session_id": SESSION_ID}},
        {"type": "text", "data": "每一轮都"},
        {
            "type": "done",
            "data": {"final_message": "每一轮都记下上一轮。", "session_id": SESSION_ID, "turn_id": TURN_ID},
        },
    )

    type: Literal["session_created", "thinking", "text", "done"] = Field(description="The kind of event.")
    data: str | dict[str, Any] = Field(
        description="A piece of text; for session_created: session_id; for done: final_message (the whole "
        "answer), session_id, turn_id and, if the turn failed, error (a sentence)."
    )
