"""Turns in replies: with their citations, in the tree, with the prompt that was sent; and feedback."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from core.conversation.turns import Feedback as StoredFeedback
from core.conversation.turns import KnowledgeUse, TurnStatus
from core.tools import ToolState
from routes.wire.erasure import PROOF, RECEIPT_ID, Proof
from routes.wire.fields import AtMost, Moment, PlainText, Reply, WireModel, absent, example

TURN_ID = "7d0f4f0e-6a52-4a3b-9d0c-0a5d0c9f2a11"
SESSION_ID = "c1a7a0c2-33f1-4a52-8f0a-5a4a6d1f0b77"
DOCUMENT_ID = "5b1f6a9e-9c7d-4a0e-b2a4-2f3e1d0c9b88"
CHUNK_ID = "e2b6f1d4-1f5c-5c0a-8f3b-6a7d8e9f0a12"


class Usage(Reply):
    """Tokens of one model call."""

    prompt_tokens: int = Field(description="Tokens of the request.")
    completion_tokens: int = Field(description="Tokens of the answer, including its thinking.")
    estimated: bool = Field(description="true: estimated, because the provider did not report the numbers.")


class Citation(Reply):
    """A passage that the answer may cite by its number."""

    model_config = example(
        {
            "index": 1,
            "document_id": DOCUMENT_ID,
            "file_name": "guide.md",
            "chunk_id": CHUNK_ID,
            "score": 0.93,
            "page": None,
            "heading": "Parents and children",
            "char_start": 120,
            "char_end": 480,
            "key_passage": "Each turn names its parent.",
            "text": "Each turn names its parent. A session is a tree.",
            "reason": "",
            "cited": True,
            "passage_start": 0,
            "passage_end": 27,
            "version": "9f2c",
            "date": "2026-01-31",
        }
    )

    index: int = Field(description="The citation's number in the answer, from 1: [1].")
    document_id: str = Field(description="The id of the cited document.")
    file_name: str = Field(description="The cited document's name.")
    chunk_id: str = Field(description="The id of the cited chunk.")
    score: float = Field(description="Probability that the chunk answers the question, 0 to 1.")
    page: int | None = Field(description="The chunk's first page, from 1; null if there are no pages.")
    heading: str = Field(description="The headings above the chunk, outermost first.")
    char_start: int = Field(description="The chunk's start in the document's text, in characters.")
    char_end: int = Field(description="The chunk's end in the document's text.")
    key_passage: str = Field(description="The part of `text` that answers, verbatim.")
    text: str = Field(description="The whole chunk, as it was when the question was answered.")
    reason: str = Field(description="Why the chunk was chosen, if a model judged it (use_insert_block).")
    cited: bool = Field(False, description="true if the answer cites it; absent otherwise.")
    passage_start: int | None = Field(description="The start of the key passage in `text`, in characters.")
    passage_end: int | None = Field(description="The end of the key passage in `text`.")
    version: str = Field(description="The version of the document's content.")
    date: str = Field(description='The document\'s date, a day, a month or a year; "" for none.')
    removed: bool = Field(False, description="true if the document has been erased since; absent otherwise.")
    outdated: bool = Field(False, description="true if the document has newer content; absent otherwise.")


class TurnWarning(Reply):
    """A warning for the reader; other fields are counts."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]

    code: str = Field(description="The kind of warning, for programs.")
    message: str = Field(description="One sentence for a person.")


class Summary(Reply):
    """A summary of an earlier part of the branch."""

    text: str = Field(description="The summary.")
    start: str = Field(description="The first turn that the summary covers.")
    covers: int = Field(description="How many turns were summarised.")


class Limits(Reply):
    """A question's filters; only those in use are present."""

    tags: list[str] = absent("Documents with one of these tags.")
    document_ids: list[str] = absent("Only these documents.")
    sources: list[str] = absent("Documents of one of these followed folders.")
    since: str = absent("Documents dated on or after this date.")
    until: str = absent("Documents dated on or before this date.")


class AskedWith(Reply):
    """How the question was to be answered."""

    thinking: bool = Field(description="Whether visible thinking was requested.")
    rerank_top_n: int = Field(description="The maximum number of passages shown to the model.")
    use_insert_block: bool = Field(description="Whether a model judged the candidates one by one.")
    insert_block_llm_id: str | None = Field(description="The model that judged.")
    knowledge: KnowledgeUse = Field(description="Whether the documents were to be searched.")
    date: str = Field(description='The date stated in the request; "" for the day of the answer.')
    memory: bool = Field(True, description="Whether memories were to be used.")
    tools: list[str] = Field([], description="The tools that the model could call.")
    temperature: float | None = Field(None, description="Temperature; null: as in the model's table.")
    max_tokens: int | None = Field(None, description="The longest answer; null: as in the model's table.")


class CalledFunction(Reply):
    """A function that a model called."""

    name: str = Field(description="The tool's name, as the model knows it.")
    arguments: str = Field(description="The arguments as JSON text, as the model wrote them.")


class ToolUse(Reply):
    """A tool call, in the form of OpenAI's API, and its outcome."""

    model_config = example(
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "calendar__list", "arguments": '{"day":"2026-01-31"}'},
            "state": "done",
            "result": "no appointments",
            "ms": 41.0,
            "step": 0,
            "read_only": True,
        }
    )

    id: str = Field(description="The call's id, unique in the turn.")
    type: Literal["function"] = Field(description="Always function.")
    function: CalledFunction = Field(description="The function called.")
    state: ToolState = Field(description="The outcome; interrupted: the call began, but its end is unknown.")
    result: str = Field(description="The result as sent to the model.")
    ms: float = Field(description="The call's duration in milliseconds, including the wait for approval.")
    step: int = Field(description="The call's step, from 0; calls of one step were made together.")
    read_only: bool = Field(description="Whether the tool declares that it changes nothing.")


class ToolDecision(WireModel):
    """A person's decision on a tool call."""

    model_config = example({"approve": True})

    approve: bool = Field(description="true: the call is made; false: it is not, and the model learns that.")


class DecidedCall(Reply):
    """The decision was accepted."""

    model_config = example({"turn_id": TURN_ID, "call_id": "call_1", "approved": True})

    turn_id: str = Field(description="The turn's id.")
    call_id: str = Field(description="The call's id.")
    approved: bool = Field(description="Whether the call was approved.")


class Feedback(Reply):
    """A reader's feedback on an answer."""

    rating: Literal["up", "down"] | None = Field(description="The rating; null: only a comment.")
    comment: str = Field(description='The comment, as free text; "" for none.')


class QuestionImage(Reply):
    """A stored image: GET /turns/{turn_id}/images/{number}, numbered from 1."""

    media_type: str = Field(description="The image's type: image/png or image/jpeg.")
    width: int = Field(description="The width in pixels.")
    height: int = Field(description="The height in pixels.")
    size_bytes: int = Field(description="The size in bytes.")


class Turn(Reply):
    """One question and its answer."""

    model_config = example(
        {
            "turn_id": TURN_ID,
            "session_id": SESSION_ID,
            "parent_turn_id": None,
            "question": "父子链是什么？",
            "answer": "每一轮都记下上一轮 [1]。",
            "thinking": "",
            "sources": [],
            "status": "completed",
            "timestamp": "2026-01-31T09:30:00.000000Z",
            "seq": 0,
            "model_id": "default",
            "token_count": 12,
            "usage": {"prompt_tokens": 830, "completion_tokens": 12, "estimated": False},
            "timings_ms": {"retrieve": 41.0, "total": 912.0},
        }
    )

    turn_id: str = Field(description="The turn's id, also the retry key of its question.")
    session_id: str = Field(description="The id of the turn's session.")
    parent_turn_id: str | None = Field(description="The id of the turn before this one; null for a root.")
    question: str = Field(description="The question.")
    answer: str = Field(description="The answer, as far as it was written.")
    thinking: str = Field(description="The model's visible thinking.")
    sources: list[Citation] = Field(description="The passages shown to the model.")
    status: TurnStatus = Field(description="running while it is being answered, then how it ended.")
    timestamp: Moment = Field(description="When the question was asked.")
    seq: int = Field(description="The turn's position in the session, from 0, in the order asked.")
    model_id: str = Field(description="The configured model that answered.")
    token_count: int = Field(description="Tokens of the answer.")
    usage: Usage = Field(description="Tokens of the model call.")
    timings_ms: dict[str, float] = Field(description="Milliseconds by stage.")
    finish_reason: str = absent('Why the model stopped; "length": at a limit.')
    command: str = absent("The slash command, if the turn was one.")
    summary: Summary | None = absent("The summary stored with this turn.")
    filters: Limits | None = absent("The question's filters.")
    request: AskedWith | None = absent("How the question was to be answered, if known.")
    feedback: Feedback | None = absent("The reader's feedback.")
    warnings: list[TurnWarning] | None = absent("Warnings for the reader.")
    rewritten_question: str | None = absent("The rewritten question, used for a second search.")
    memory_ids: list[str] | None = absent("The memories and earlier turns recalled into its prompt.")
    tool_calls: list[ToolUse] | None = absent("The tools that the model called, in order.")
    images: list[QuestionImage] | None = absent("The question's images, in order.")


class Branch(Reply):
    """The turns of a branch, starting at its root."""

    model_config = example({"turns": []})

    turns: list[Turn] = Field(description="The turns, in the order of the conversation.")


class TreeNode(Reply):
    """A turn in the tree; of its texts, only the question."""

    turn_id: str = Field(description="The turn's id.")
    parent_turn_id: str | None = Field(description="The id of the turn before this one; null for a root.")
    status: TurnStatus = Field(description="The turn's status.")
    created_at: Moment = Field(description="When the question was asked.")
    seq: int = Field(description="The turn's position in the session, from 0.")
    command: str = Field(description='The slash command, if the turn was one; "" for a question.')
    has_summary: bool = Field(description="Whether a summary is stored with the turn.")
    question: str = Field(description="The beginning of the question, on one line.")


class Tree(Reply):
    """Every turn of a session."""

    model_config = example(
        {
            "turns": [
                {
                    "turn_id": TURN_ID,
                    "parent_turn_id": None,
                    "status": "completed",
                    "created_at": "2026-01-31T09:30:00.000000Z",
                    "seq": 0,
                    "command": "",
                    "has_summary": False,
                    "question": "父子链是什么？",
                }
            ]
        }
    )

    turns: list[TreeNode] = Field(description="The turns, in the order of time.")


class FeedbackBody(WireModel):
    """The request body of PUT /turns/{id}/feedback; null without a comment removes it."""

    model_config = example({"rating": "up", "comment": "clear"})

    rating: Literal["up", "down"] | None = Field(description="The rating; null: none.")
    comment: Annotated[PlainText, AtMost(2_000)] = Field("", description="A comment, as free text.")

    def to_feedback(self) -> StoredFeedback:
        return StoredFeedback(self.rating, self.comment.strip())


class RatedTurn(Reply):
    """A turn with its current feedback."""

    model_config = example({"turn_id": TURN_ID, "feedback": {"rating": "up", "comment": "clear"}})

    turn_id: str = Field(description="The turn's id.")
    feedback: Feedback | None = Field(description="The turn's feedback; null: it was removed.")


class StoppedTurn(Reply):
    """Whether a turn was stopped."""

    model_config = example({"turn_id": TURN_ID, "stopped": True})

    turn_id: str = Field(description="The turn's id.")
    stopped: bool = Field(description="false if the turn had already ended.")


class ErasedTurn(Reply):
    """A turn that was erased."""

    model_config = example({"turn_id": TURN_ID, "erased": True, "proof": None, "receipt_id": ""})

    turn_id: str = Field(description="The turn's id.")
    erased: bool = Field(description="Always true.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class PromptPart(Reply):
    """One message that was sent, or one that did not fit."""

    part: str = Field(description="The kind of part: persona, system, memory, summary, relevant_history, …")
    role: str = Field(description="The message's role: system, user, assistant or tool.")
    tokens: int = Field(description="The part's length in tokens.")
    kept: bool = Field(description="Whether the part was sent.")
    reason: str = Field(description="Why the part was sent or left out.")
    turn_id: str | None = Field(description="The turn that the part repeats, or whose summary it is.")
    chunk_id: str | None = Field(description="The passage that was left out.")
    memory_ids: list[str] | None = absent("The memories in the part, in the order of its lines.")
    call_ids: list[str] | None = absent("The tool calls that it requests, or the one that it answers.")
    images: int = absent("How many of the question's images the part contains; `tokens` includes them.")
    text: str | None = Field(description="The text; null if it was left out, or has been erased since.")
    removed: bool = Field(description="true: the part was sent, and has been erased since.")


class PromptRequest(Reply):
    """The request to the model, as one text."""

    body: str | None = Field(description="The JSON that was sent; null if it cannot be shown.")
    sha256: str = Field(description='SHA-256 of what was sent, in hex; "" if nothing was.')
    exact: bool = Field(description="Whether `body` has this hash.")


class Prompt(Reply):
    """What was sent to the model for a turn."""

    model_config = example({"turn_id": TURN_ID, "model_id": "default", "parts": None})

    turn_id: str = Field(description="The turn's id.")
    model_id: str = Field(description="The model that received the prompt.")
    layout: str = absent("How the parts were arranged for this provider.")
    window: int = absent("The model's window, in tokens.")
    answer_tokens: int = absent("Tokens reserved for the answer.")
    prompt_tokens: int = absent("Tokens of the prompt, as counted before sending.")
    filters: Limits | None = absent("The question's filters.")
    parts: list[PromptPart] | None = Field(description="The parts; null: not recorded (PROMPT_KEEP_DAYS).")
    request: PromptRequest | None = absent("The request as one text.")
    response: dict[str, Any] | None = absent(
        "What the provider reported about its answer: id, usage, …; with KEEP_RAW_RESPONSE its unchanged "
        "beginning, `raw`."
    )
