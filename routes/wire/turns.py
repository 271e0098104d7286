"""Turns in replies: with their citations, in the tree, with the prompt that was sent; and a rating."""

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
    completion_tokens: int = Field(description="Tokens of the answer, its thinking included.")
    estimated: bool = Field(description="true: counted here, because the provider did not say.")


class Citation(Reply):
    """A passage that the answer may refer to by its number."""

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

    index: int = Field(description="Its number in the answer, from 1: [1].")
    document_id: str = Field(description="The document it is from.")
    file_name: str = Field(description="The document's name.")
    chunk_id: str = Field(description="The chunk it is.")
    score: float = Field(description="Probability that it answers the question, 0 to 1.")
    page: int | None = Field(description="The page it begins on, from 1; null where there are no pages.")
    heading: str = Field(description="The headings above it, from the outermost in.")
    char_start: int = Field(description="Where it begins in the document's text, in characters.")
    char_end: int = Field(description="Where it ends there.")
    key_passage: str = Field(description="The part of `text` that says it, word for word.")
    text: str = Field(description="The whole chunk, as it was then.")
    reason: str = Field(description="Why it was chosen, where a model judged (use_insert_block).")
    cited: bool = Field(False, description="true where the answer refers to it; absent otherwise.")
    passage_start: int | None = Field(description="Where the key passage begins in `text`, in characters.")
    passage_end: int | None = Field(description="Where it ends there.")
    version: str = Field(description="Which content of the document it is from.")
    date: str = Field(description='The document\'s date, a day, a month or a year; "" for none.')
    removed: bool = Field(False, description="true when the document was erased since; absent otherwise.")
    outdated: bool = Field(False, description="true when the document has newer content; absent otherwise.")


class TurnWarning(Reply):
    """What a reader was warned of; its other fields are counts."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]

    code: str = Field(description="The kind of warning, for programs.")
    message: str = Field(description="One sentence for a person.")


class Summary(Reply):
    """What an earlier part of the branch said, in few words."""

    text: str = Field(description="The summary.")
    start: str = Field(description="The first turn that it covers.")
    covers: int = Field(description="How many turns it was made of.")


class Limits(Reply):
    """What a question was limited to; only what limits is there."""

    tags: list[str] = absent("Documents that carry one of these tags.")
    document_ids: list[str] = absent("One of these documents.")
    sources: list[str] = absent("Documents of one of these followed folders.")
    since: str = absent("Dated then or later.")
    until: str = absent("Dated then or earlier.")


class AskedWith(Reply):
    """How the question was to be answered."""

    thinking: bool = Field(description="Whether visible thinking was asked for.")
    rerank_top_n: int = Field(description="How many candidates the model was shown at most.")
    use_insert_block: bool = Field(description="Whether a model judged the candidates one by one.")
    insert_block_llm_id: str | None = Field(description="Which model judged.")
    knowledge: KnowledgeUse = Field(description="Whether the documents were to be searched.")
    date: str = Field(description='When it was asked, as its request said; "" for the day it was answered.')
    memory: bool = Field(True, description="Whether memories were to be used.")
    tools: list[str] = Field([], description="What the model might call.")
    temperature: float | None = Field(None, description="null: as the model's table says.")
    max_tokens: int | None = Field(None, description="The longest answer; null: as the model's table says.")


class CalledFunction(Reply):
    """What a model asked for."""

    name: str = Field(description="The tool's name, as the model knows it.")
    arguments: str = Field(description="JSON text, as the model wrote it.")


class ToolUse(Reply):
    """A call of a tool, in the form of OpenAI's API, and what came of it."""

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

    id: str = Field(description="Its id, unique in the turn.")
    type: Literal["function"] = Field(description="Always function.")
    function: CalledFunction = Field(description="What was called.")
    state: ToolState = Field(description="What came of it; interrupted: it began, and its end is not known.")
    result: str = Field(description="What the model was sent of it, as text.")
    ms: float = Field(description="Milliseconds, with the wait for an approval.")
    step: int = Field(description="Calls of one step were asked for together; from 0.")
    read_only: bool = Field(description="Whether the tool says that it changes nothing.")


class ToolDecision(WireModel):
    """A person's word on a call of a tool."""

    model_config = example({"approve": True})

    approve: bool = Field(description="true: the call is made; false: it is not, and the model reads so.")


class DecidedCall(Reply):
    """The word was taken."""

    model_config = example({"turn_id": TURN_ID, "call_id": "call_1", "approved": True})

    turn_id: str = Field(description="The turn.")
    call_id: str = Field(description="The call.")
    approved: bool = Field(description="What was decided.")


class Feedback(Reply):
    """What a reader thinks of an answer."""

    rating: Literal["up", "down"] | None = Field(description="null: a comment alone.")
    comment: str = Field(description='Free text; "" for none.')


class QuestionImage(Reply):
    """An image as it is kept: GET /turns/{turn_id}/images/{number}, numbers from 1."""

    media_type: str = Field(description="image/png or image/jpeg.")
    width: int = Field(description="In pixels.")
    height: int = Field(description="In pixels.")
    size_bytes: int = Field(description="Of its file.")


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
    session_id: str = Field(description="The session it is in.")
    parent_turn_id: str | None = Field(description="The turn before it on its branch; null for a root.")
    question: str = Field(description="The question.")
    answer: str = Field(description="The answer, as far as it was written.")
    thinking: str = Field(description="The model's visible thinking.")
    sources: list[Citation] = Field(description="The passages the model was shown.")
    status: TurnStatus = Field(description="running while it is answered, then how it ended.")
    timestamp: Moment = Field(description="When it was asked.")
    seq: int = Field(description="Its place in the session, from 0, in the order of asking.")
    model_id: str = Field(description="The configured model that answered.")
    token_count: int = Field(description="Tokens of the answer.")
    usage: Usage = Field(description="Tokens of the model call.")
    timings_ms: dict[str, float] = Field(description="Milliseconds by stage.")
    finish_reason: str = absent('Why the model ended; "length": at a limit.')
    command: str = absent("The slash command it was.")
    summary: Summary | None = absent("The summary that was made with this turn.")
    filters: Limits | None = absent("What the question was limited to.")
    request: AskedWith | None = absent("How it was to be answered, where that is known.")
    feedback: Feedback | None = absent("What its reader thinks of the answer.")
    warnings: list[TurnWarning] | None = absent("What its reader was warned of.")
    rewritten_question: str | None = absent("The wording that the documents were searched with once more.")
    memory_ids: list[str] | None = absent("What its prompt was told of other conversations.")
    tool_calls: list[ToolUse] | None = absent("The tools that the model called, in order.")
    images: list[QuestionImage] | None = absent("The images of the question, in their order.")


class Branch(Reply):
    """The turns of a branch, from its root on."""

    model_config = example({"turns": []})

    turns: list[Turn] = Field(description="In the order of the conversation.")


class TreeNode(Reply):
    """A turn of the tree; of its texts only the question."""

    turn_id: str = Field(description="The turn's id.")
    parent_turn_id: str | None = Field(description="The turn before it; null for a root.")
    status: TurnStatus = Field(description="How it stands.")
    created_at: Moment = Field(description="When it was asked.")
    seq: int = Field(description="Its place in the session, from 0.")
    command: str = Field(description='The slash command it was; "" for a question.')
    has_summary: bool = Field(description="Whether a summary is stored with it.")
    question: str = Field(description="The beginning of its question, on one line.")


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

    turns: list[TreeNode] = Field(description="In time order.")


class FeedbackBody(WireModel):
    """What PUT /turns/{id}/feedback takes; null without a comment takes it away."""

    model_config = example({"rating": "up", "comment": "clear"})

    rating: Literal["up", "down"] | None = Field(description="null: no rating.")
    comment: Annotated[PlainText, AtMost(2_000)] = Field("", description="Free text.")

    def to_feedback(self) -> StoredFeedback:
        return StoredFeedback(self.rating, self.comment.strip())


class RatedTurn(Reply):
    """A turn with the feedback it has now."""

    model_config = example({"turn_id": TURN_ID, "feedback": {"rating": "up", "comment": "clear"}})

    turn_id: str = Field(description="The turn's id.")
    feedback: Feedback | None = Field(description="null: there is none any more.")


class StoppedTurn(Reply):
    """Whether a turn was stopped."""

    model_config = example({"turn_id": TURN_ID, "stopped": True})

    turn_id: str = Field(description="The turn's id.")
    stopped: bool = Field(description="false when it had ended already.")


class ErasedTurn(Reply):
    """A turn that was erased."""

    model_config = example({"turn_id": TURN_ID, "erased": True, "proof": None, "receipt_id": ""})

    turn_id: str = Field(description="The turn's id.")
    erased: bool = Field(description="Always true.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class PromptPart(Reply):
    """One message that was sent, or one that found no place."""

    part: str = Field(description="What it is: persona, system, memory, summary, relevant_history, …")
    role: str = Field(description="system, user, assistant or tool.")
    tokens: int = Field(description="Its length in tokens.")
    kept: bool = Field(description="Whether it was sent.")
    reason: str = Field(description="Why it is there, or why it is not.")
    turn_id: str | None = Field(description="The turn that it repeats, or that holds the summary.")
    chunk_id: str | None = Field(description="The passage that was left out.")
    memory_ids: list[str] | None = absent("The memories in it, in the order of its lines.")
    call_ids: list[str] | None = absent("The calls of tools that it asks for, or the one that it answers.")
    images: int = absent("How many images of the question went along; their tokens are counted in.")
    text: str | None = Field(description="null for what was left out, and for what was erased since.")
    removed: bool = Field(description="true: it was sent, and erased since.")


class PromptRequest(Reply):
    """The request to the model, as one text."""

    body: str | None = Field(description="The JSON that was sent; null when it cannot be shown.")
    sha256: str = Field(description='Fingerprint of what was sent, in hex; "" when nothing was.')
    exact: bool = Field(description="Whether `body` has this fingerprint.")


class Prompt(Reply):
    """What was sent to the model for a turn."""

    model_config = example({"turn_id": TURN_ID, "model_id": "default", "parts": None})

    turn_id: str = Field(description="The turn's id.")
    model_id: str = Field(description="The model it was sent to.")
    layout: str = absent("How the parts were laid out for this provider.")
    window: int = absent("The model's window, in tokens.")
    answer_tokens: int = absent("Tokens that were left for the answer.")
    prompt_tokens: int = absent("Tokens of the prompt, as counted before sending.")
    filters: Limits | None = absent("What the question was limited to.")
    parts: list[PromptPart] | None = Field(description="null when no record is kept (PROMPT_KEEP_DAYS).")
    request: PromptRequest | None = absent("The request as one text.")
    response: dict[str, Any] | None = absent(
        "What the provider said of its answer: id, usage, …; with KEEP_RAW_RESPONSE its beginning as it "
        "came, `raw`."
    )
