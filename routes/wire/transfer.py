"""Turns in a file, as GET /sessions/{id}/export writes them and POST /sessions/import takes them."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from core.citing.citations import placed
from core.conversation.importing import FOLLOWS, imported_turn
from core.conversation.turns import (
    MAX_REWRITTEN_CHARS,
    MAX_WARNING_CHARS,
    MAX_WARNING_COUNTS,
    MAX_WARNINGS,
    AskedWith,
    KnowledgeUse,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
)
from core.dates import LATEST_ZONE, parse_time
from core.errors import BadRequestError
from core.images import MAX_IMAGES
from core.knowledge import Citation, KnowledgeFilter
from core.tools import MAX_ARGUMENT_CHARS, CalledFunction, ToolState, ToolUse, cut_result
from routes.wire.chat import MAX_TOP_N
from routes.wire.fields import MAX_NAMES, AtMost, IsoDate, MaxTokens, PlainText, Temperature, Uuid, WireModel
from routes.wire.sessions import Name
from routes.wire.turns import FeedbackBody

MAX_TURNS = 20_000
MAX_TEXT_CHARS = 10_000_000  # an import is bounded by the size of its body


def _whole(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_COUNTED = re.compile("[a-z_]{1,40}")

Text = Annotated[PlainText, AtMost(MAX_TEXT_CHARS)]
Verbatim = Annotated[str, AfterValidator(_whole), AtMost(MAX_TEXT_CHARS)]
"""A document's text, or a name: stored unchanged but for lone surrogates."""
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Time = Annotated[PlainText, AtMost(64), Field(description="A time: RFC 3339, with a time zone.")]


class ImportCitation(WireModel):
    """A source of an answer."""

    index: Count = Field(description="The citation's number in the answer, from 1.")
    document_id: Verbatim = Field("", description="The id of the cited document.")
    file_name: Verbatim = Field(description="The cited document's name.")
    chunk_id: Verbatim = Field("", description="The id of the cited chunk.")
    score: Finite = Field(0.0, description="Probability that the chunk answers the question, 0 to 1.")
    page: int | None = Field(None, description="The page on which the chunk begins, from 1.")
    heading: Verbatim = Field("", description="The headings above the chunk.")
    char_start: Count = Field(0, description="The chunk's start in the document's text, in characters.")
    char_end: Count = Field(0, description="The chunk's end in the document's text.")
    key_passage: Verbatim = Field("", description="The part of `text` that answers, verbatim.")
    text: Verbatim = Field("", description="The whole chunk, as it was when the question was answered.")
    reason: Verbatim = Field("", description="Why the chunk was chosen, if a model judged it.")
    cited: bool = Field(False, description="Whether the answer cites it.")
    passage_start: Count | None = Field(
        None, description="The start of the key passage in `text`, in characters."
    )
    passage_end: Count | None = Field(None, description="The end of the key passage in `text`.")
    version: Verbatim = Field("", description="The version of the document's content.")
    date: Verbatim = Field("", description="The document's date; empty for none.")


class ImportFilters(WireModel):
    """The question's filters; only recorded, never searched with."""

    tags: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="Documents with one of these tags."
    )
    document_ids: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="Only these documents."
    )
    sources: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="Documents of one of these folders."
    )
    since: Verbatim = Field("", description="Documents dated on or after this date.")
    until: Verbatim = Field("", description="Documents dated on or before this date.")

    def to_filter(self) -> KnowledgeFilter:
        lists = (tuple(self.tags), tuple(self.document_ids), tuple(self.sources))
        return KnowledgeFilter(*lists, self.since, self.until)


class ImportUsage(WireModel):
    """Tokens of one model call."""

    prompt_tokens: Count = Field(0, description="Tokens of the request.")
    completion_tokens: Count = Field(0, description="Tokens of the answer.")
    estimated: bool = Field(True, description="true: not reported by the provider.")


class ImportSummary(WireModel):
    """A turn's summary of earlier turns; the ids are of turns in this import."""

    text: Text = Field(description="The summary.")
    start: Uuid = Field(description="The first turn that the summary covers.")
    covers: list[Uuid] = Field(max_length=MAX_TURNS, description="The summarised turns, oldest first.")
    previous: Uuid | None = Field(None, description="The turn whose summary this one continues.")
    model_id: Name = Field("", description="The model that wrote the summary.")
    created_at: Time = Field(description="When the summary was written.")
    tokens: Count = Field(0, description="The summary's length in tokens.")

    def to_summary(self, at: int) -> Summary:
        """Raises BadRequestError naming the turn by its position."""
        return Summary(
            text=self.text,
            start=str(self.start),
            covers=tuple([str(turn_id) for turn_id in self.covers]),
            previous=str(self.previous) if self.previous else None,
            model_id=self.model_id,
            created_us=moment(self.created_at, f"turns.{at}.summary.created_at") or 0,
            tokens=self.tokens,
        )


class ImportRequest(WireModel):
    """How the question was to be answered."""

    thinking: bool = Field(False, description="Whether visible thinking was requested.")
    rerank_top_n: int = Field(
        10, ge=1, le=MAX_TOP_N, description="The maximum number of passages shown to the model."
    )
    use_insert_block: bool = Field(False, description="Whether a model judged the candidates one by one.")
    insert_block_llm_id: Name | None = Field(None, description="The model that judged.")
    knowledge: KnowledgeUse = Field("auto", description="Whether the documents were to be searched.")
    date: IsoDate = Field("", description="The date of the question, as stated in the request.")
    memory: bool = Field(True, description="Whether memories were to be used.")
    tools: list[Name] = Field([], max_length=MAX_NAMES, description="The tools that the model could call.")
    temperature: Temperature | None = Field(None, description="null: as in the model's table.")
    max_tokens: MaxTokens | None = Field(None, description="null: as in the model's table.")

    def to_asked(self) -> AskedWith:
        return AskedWith(**{**self.model_dump(), "tools": tuple(self.tools)})


class ImportWarning(WireModel):
    """A warning for the reader, as in its STATUS event; other fields are counts."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Count]

    code: Name = Field(description="The kind of warning, for programs.")
    message: Annotated[PlainText, AtMost(MAX_WARNING_CHARS)] = Field(
        "", description="One sentence for a person."
    )

    @model_validator(mode="after")
    def _few_plain_counts(self) -> ImportWarning:
        if len(self.counts) > MAX_WARNING_COUNTS:
            raise PydanticCustomError("counts", "too many counts")
        if not all(_COUNTED.fullmatch(name) for name in self.counts) or "stage" in self.counts:
            raise PydanticCustomError("counts", "a count has a name that is not allowed")
        return self

    @property
    def counts(self) -> dict[str, int]:
        return self.__pydantic_extra__

    def to_warning(self) -> TurnWarning:
        return TurnWarning(self.code, self.message, self.counts)


class ImportRewritten(WireModel):
    """The question as rewritten for a second search; the ids are of turns in this import."""

    text: Annotated[PlainText, Field(min_length=1), AtMost(MAX_REWRITTEN_CHARS)] = Field(
        description="The rewritten question."
    )
    turn_ids: list[Uuid] = Field(min_length=1, max_length=100, description="The turns it draws on.")

    def to_rewritten(self) -> RewrittenQuestion:
        return RewrittenQuestion(self.text, tuple([str(turn_id) for turn_id in self.turn_ids]))


class ImportFunction(WireModel):
    """A function that a model called."""

    name: Name = Field(description="The tool's name.")
    arguments: Text = Field("{}", description="The arguments as JSON text.")


class ImportToolUse(WireModel):
    """A tool call, in the form of OpenAI's API, and its outcome."""

    id: Name = Field(description="The call's id, unique in the turn.")
    type: Literal["function"] = Field("function", description="Always function.")
    function: ImportFunction = Field(description="The function called.")
    state: Literal["done", "failed", "refused", "interrupted", "waiting", "running"] = Field(
        "done", description="The outcome; a call that was under way becomes interrupted."
    )
    result: Text = Field("", description="The result as sent to the model.")
    ms: Finite = Field(0.0, description="The call's duration in milliseconds.")
    step: Count = Field(0, description="The call's step; calls of one step were made together.")
    at: Count = Field(0, description="The length of the answer when the call was made, in characters.")
    read_only: bool = Field(False, description="Whether the tool declares that it changes nothing.")

    def to_use(self) -> ToolUse:
        function = CalledFunction(self.function.name, self.function.arguments[:MAX_ARGUMENT_CHARS])
        shaped = {"function": function, "state": ToolState(self.state), "result": cut_result(self.result)}
        return ToolUse(**(self.model_dump() | shaped)).settled


MAX_TOOL_CALLS = 1_000  # per turn
AS_STORED = (
    "question", "answer", "thinking", "model_id", "command", "token_count", "timings_ms", "finish_reason",
)  # fmt: skip
"""Fields of a turn that are written to a file unchanged."""


class ImportTurn(WireModel):
    """One question and its answer."""

    question: Text = Field(description="The question; not empty.")
    answer: Text = Field("", description="The answer; may be empty, as in a note.")
    turn_id: Uuid | None = Field(None, description="The turn's id; absent: a new one is generated.")
    timestamp: Time | None = Field(None, description="When it was asked: RFC 3339, with a time zone.")
    parent_turn_id: Uuid | None = Field(
        None, description="The parent turn in this list; absent: the previous turn; null: none, a root."
    )
    status: Literal["completed", "cancelled", "interrupted", "failed"] = Field(
        "completed", description="How the turn ended."
    )
    thinking: Text = Field("", description="The model's visible thinking.")
    sources: list[ImportCitation] = Field(
        default_factory=list, max_length=1_000, description="The passages shown to the model."
    )
    model_id: Name = Field("imported", description="The model that answered.")
    command: Literal["", "help", "clear", "persona", "remember", "forget", "memories"] = Field(
        "", description="The slash command, if the turn was one; empty for a question."
    )
    token_count: Count = Field(0, description="Tokens of the answer.")
    usage: ImportUsage = Field(default_factory=ImportUsage, description="Tokens of the model call.")
    timings_ms: dict[Verbatim, Finite] = Field(
        default_factory=dict, max_length=100, description="Milliseconds by stage."
    )
    finish_reason: Name = Field("", description="Why the model stopped.")
    summary: ImportSummary | None = Field(None, description="The summary stored with the turn.")
    filters: ImportFilters = Field(default_factory=ImportFilters, description="The question's filters.")
    request: ImportRequest | None = Field(None, description="How the question was to be answered.")
    feedback: FeedbackBody | None = Field(None, description="The reader's feedback.")
    warnings: list[ImportWarning] = Field(
        default_factory=list, max_length=MAX_WARNINGS, description="Warnings for the reader."
    )
    rewritten_question: ImportRewritten | None = Field(
        None, description="The rewritten question, used for a second search."
    )

    tool_calls: list[ImportToolUse] = Field(
        default_factory=list, max_length=MAX_TOOL_CALLS, description="The tools that the model called."
    )
    images: list[str] = Field(
        default_factory=list, max_length=MAX_IMAGES, description="The question's images, as data: URLs."
    )

    def to_turn(self, at: int) -> Turn:
        """Raises BadRequestError naming the turn by its position."""
        parent = str(self.parent_turn_id) if self.parent_turn_id else None
        return imported_turn(
            turn_id=str(self.turn_id) if self.turn_id else "",
            created_us=moment(self.timestamp, f"turns.{at}.timestamp") or 0,
            parent_turn_id=parent if "parent_turn_id" in self.model_fields_set else FOLLOWS,
            status=TurnStatus(self.status),
            sources=tuple([placed(Citation(**source.model_dump())) for source in self.sources]),
            usage=Usage(**self.usage.model_dump()),
            summary=self.summary.to_summary(at) if self.summary else None,
            filters=self.filters.to_filter(),
            request=self.request.to_asked() if self.request else None,
            feedback=self.feedback.to_feedback() if self.feedback else None,
            warnings=tuple([warning.to_warning() for warning in self.warnings]),
            rewritten=self.rewritten_question.to_rewritten() if self.rewritten_question else None,
            tool_calls=tuple([use.to_use() for use in self.tool_calls]),
            **{name: getattr(self, name) for name in AS_STORED},
        )


def moment(text: str | None, field: str) -> int | None:
    """Return UTC microseconds. Raises BadRequestError for a time that is unreadable or has no time zone."""
    if text is None:
        return None
    moment_us = parse_time(text, UTC)
    if moment_us is None:
        raise BadRequestError(f"{field}: not a time in the form 2026-01-31T23:59:59+08:00.")
    if moment_us != parse_time(text, LATEST_ZONE):
        raise BadRequestError(f"{field}: has no time zone; add Z or an offset such as +08:00.")
    return moment_us
