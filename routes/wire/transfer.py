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
MAX_TEXT_CHARS = 10_000_000  # what bounds an import is the size of its body


def _whole(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_COUNTED = re.compile("[a-z_]{1,40}")

Text = Annotated[PlainText, AtMost(MAX_TEXT_CHARS)]
Verbatim = Annotated[str, AfterValidator(_whole), AtMost(MAX_TEXT_CHARS)]
"""Text of a document, or a name: kept as it is, as far as it can be stored."""
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Time = Annotated[PlainText, AtMost(64), Field(description="RFC 3339, with its zone.")]


class ImportCitation(WireModel):
    """A source of an answer."""

    index: Count = Field(description="Its number in the answer, from 1.")
    document_id: Verbatim = Field("", description="The document it is from.")
    file_name: Verbatim = Field(description="The document's name.")
    chunk_id: Verbatim = Field("", description="The chunk it is.")
    score: Finite = Field(0.0, description="Probability that it answers the question, 0 to 1.")
    page: int | None = Field(None, description="The page it begins on, from 1.")
    heading: Verbatim = Field("", description="The headings above it.")
    char_start: Count = Field(0, description="Where it begins in the document's text, in characters.")
    char_end: Count = Field(0, description="Where it ends there.")
    key_passage: Verbatim = Field("", description="The part of `text` that says it, word for word.")
    text: Verbatim = Field("", description="The whole chunk, as it was then.")
    reason: Verbatim = Field("", description="Why it was chosen, where a model judged.")
    cited: bool = Field(False, description="Whether the answer refers to it.")
    passage_start: Count | None = Field(
        None, description="Where the key passage begins in `text`, in characters."
    )
    passage_end: Count | None = Field(None, description="Where it ends there.")
    version: Verbatim = Field("", description="Which content of the document it is from.")
    date: Verbatim = Field("", description="The document's date; empty for none.")


class ImportFilters(WireModel):
    """What the question was limited to; said again, never searched with."""

    tags: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="Documents that carry one of these."
    )
    document_ids: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="One of these documents."
    )
    sources: list[Verbatim] = Field(
        default_factory=list, max_length=1_000, description="Documents of one of these folders."
    )
    since: Verbatim = Field("", description="Dated then or later.")
    until: Verbatim = Field("", description="Dated then or earlier.")

    def to_filter(self) -> KnowledgeFilter:
        lists = (tuple(self.tags), tuple(self.document_ids), tuple(self.sources))
        return KnowledgeFilter(*lists, self.since, self.until)


class ImportUsage(WireModel):
    """Tokens of one model call."""

    prompt_tokens: Count = Field(0, description="Tokens of the request.")
    completion_tokens: Count = Field(0, description="Tokens of the answer.")
    estimated: bool = Field(True, description="true: the provider did not say.")


class ImportSummary(WireModel):
    """What a turn says of those before it; the ids are of turns of this import."""

    text: Text = Field(description="The summary.")
    start: Uuid = Field(description="The first turn that it covers.")
    covers: list[Uuid] = Field(max_length=MAX_TURNS, description="The turns it was made of, oldest first.")
    previous: Uuid | None = Field(None, description="The turn whose summary it goes on from.")
    model_id: Name = Field("", description="The model that wrote it.")
    created_at: Time = Field(description="When it was written.")
    tokens: Count = Field(0, description="Its length in tokens.")

    def to_summary(self, at: int) -> Summary:
        """Raises BadRequestError, which names the turn by its place."""
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

    thinking: bool = Field(False, description="Whether visible thinking was asked for.")
    rerank_top_n: int = Field(
        10, ge=1, le=MAX_TOP_N, description="How many candidates the model was shown at most."
    )
    use_insert_block: bool = Field(False, description="Whether a model judged the candidates one by one.")
    insert_block_llm_id: Name | None = Field(None, description="Which model judged.")
    knowledge: KnowledgeUse = Field("auto", description="Whether the documents were to be searched.")
    date: IsoDate = Field("", description="When it was asked, as its request said.")
    memory: bool = Field(True, description="Whether memories were to be used.")
    tools: list[Name] = Field([], max_length=MAX_NAMES, description="What the model might call.")
    temperature: Temperature | None = Field(None, description="null: as the model's table says.")
    max_tokens: MaxTokens | None = Field(None, description="null: as the model's table says.")

    def to_asked(self) -> AskedWith:
        return AskedWith(**{**self.model_dump(), "tools": tuple(self.tools)})


class ImportWarning(WireModel):
    """What a reader was warned of, as the STATUS event said it; its other fields are counts."""

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
    """How a question was put to be searched with again; the ids are of turns of this import."""

    text: Annotated[PlainText, Field(min_length=1), AtMost(MAX_REWRITTEN_CHARS)] = Field(
        description="The wording."
    )
    turn_ids: list[Uuid] = Field(min_length=1, max_length=100, description="Those that it was made of.")

    def to_rewritten(self) -> RewrittenQuestion:
        return RewrittenQuestion(self.text, tuple([str(turn_id) for turn_id in self.turn_ids]))


class ImportFunction(WireModel):
    """What a model asked for."""

    name: Name = Field(description="The tool's name.")
    arguments: Text = Field("{}", description="JSON text.")


class ImportToolUse(WireModel):
    """A call of a tool, in the form of OpenAI's API, and what came of it."""

    id: Name = Field(description="Its id, unique in the turn.")
    type: Literal["function"] = Field("function", description="Always function.")
    function: ImportFunction = Field(description="What was called.")
    state: Literal["done", "failed", "refused", "interrupted", "waiting", "running"] = Field(
        "done", description="What came of it; one that was under way is interrupted."
    )
    result: Text = Field("", description="What the model was sent of it.")
    ms: Finite = Field(0.0, description="Milliseconds.")
    step: Count = Field(0, description="Calls of one step were asked for together.")
    at: Count = Field(0, description="How many characters the answer had then.")
    read_only: bool = Field(False, description="Whether the tool says that it changes nothing.")

    def to_use(self) -> ToolUse:
        function = CalledFunction(self.function.name, self.function.arguments[:MAX_ARGUMENT_CHARS])
        shaped = {"function": function, "state": ToolState(self.state), "result": cut_result(self.result)}
        return ToolUse(**(self.model_dump() | shaped)).settled


MAX_TOOL_CALLS = 1_000  # of one turn
AS_STORED = (
    "question", "answer", "thinking", "model_id", "command", "token_count", "timings_ms", "finish_reason",
)  # fmt: skip
"""Fields of a turn that stand in a file as they are."""


class ImportTurn(WireModel):
    """One question and its answer."""

    question: Text = Field(description="Not empty.")
    answer: Text = Field("", description="May be empty: a note, or one voice of a chat.")
    turn_id: Uuid | None = Field(None, description="Absent: a new one is made.")
    timestamp: Time | None = Field(None, description="RFC 3339, with its zone.")
    parent_turn_id: Uuid | None = Field(
        None, description="Absent: the turn before it in the list; null: a root; else a turn_id given here."
    )
    status: Literal["completed", "cancelled", "interrupted", "failed"] = Field(
        "completed", description="How it ended."
    )
    thinking: Text = Field("", description="The model's visible thinking.")
    sources: list[ImportCitation] = Field(
        default_factory=list, max_length=1_000, description="The passages the model was shown."
    )
    model_id: Name = Field("imported", description="The model that answered.")
    command: Literal["", "help", "clear", "persona"] = Field(
        "", description="The slash command it was; empty for a question."
    )
    token_count: Count = Field(0, description="Tokens of the answer.")
    usage: ImportUsage = Field(default_factory=ImportUsage, description="Tokens of the model call.")
    timings_ms: dict[Verbatim, Finite] = Field(
        default_factory=dict, max_length=100, description="Milliseconds by stage."
    )
    finish_reason: Name = Field("", description="Why the model ended.")
    summary: ImportSummary | None = Field(None, description="The summary that was made with it.")
    filters: ImportFilters = Field(
        default_factory=ImportFilters, description="What the question was limited to."
    )
    request: ImportRequest | None = Field(None, description="How it was to be answered.")
    feedback: FeedbackBody | None = Field(None, description="What its reader thinks of it.")
    warnings: list[ImportWarning] = Field(
        default_factory=list, max_length=MAX_WARNINGS, description="What its reader was warned of."
    )
    rewritten_question: ImportRewritten | None = Field(
        None, description="The wording that the documents were searched with once more."
    )

    tool_calls: list[ImportToolUse] = Field(
        default_factory=list, max_length=MAX_TOOL_CALLS, description="The tools that the model called."
    )
    images: list[str] = Field(
        default_factory=list, max_length=MAX_IMAGES, description="Those of the question, as data: URLs."
    )

    def to_turn(self, at: int) -> Turn:
        """Raises BadRequestError, which names the turn by its place."""
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
    """UTC microseconds. Raises BadRequestError for a time that cannot be read or names no zone."""
    if text is None:
        return None
    moment_us = parse_time(text, UTC)
    if moment_us is None:
        raise BadRequestError(f"{field}: not a time in the form 2026-01-31T23:59:59+08:00.")
    if moment_us != parse_time(text, LATEST_ZONE):
        raise BadRequestError(f"{field}: names no time zone; add Z or an offset such as +08:00.")
    return moment_us
