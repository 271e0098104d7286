"""Turns: a question as it was asked and its answer, the unit of storage; parents link turns into a tree.

A turn's prompt manifest records what was sent to the model, part by part, and what came back. Texts that are
stored elsewhere (turns, summaries, memories, the passages of the turn's own sources) are referenced there,
not copied: erasing a turn erases it from every prompt that contained it. `request_sha256` proves that a
reassembled request is the one that was sent.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from core.dates import rfc3339
from core.images import ONLY_IMAGE, Image, ImageData, SentImage
from core.knowledge import NO_LIMITS, Citation, KnowledgeFilter
from core.text import Language, preprocess_question, scrub
from core.tools import ToolUse


class TurnStage(StrEnum):
    """Stages of a turn's progress. `WARNING` and `ERROR` carry their own sentences, `FINISHED` is the
    last."""

    RETRIEVING = "retrieving"
    REWRITING = "rewriting"
    RERANKING = "reranking"
    FILTERING = "filtering"
    REMEMBERING = "remembering"
    GENERATING = "generating"
    TOOL = "tool"
    RETRYING = "retrying"
    WARNING = "warning"
    ERROR = "error"
    FINISHED = "finished"


class WarnCode(StrEnum):
    """Subjects of a `WARNING`; the sentences are in api.messages, by name."""

    CONTEXT_DROPPED = "context_dropped"
    TURNS_UNREADABLE = "turns_unreadable"
    RERANKER_UNAVAILABLE = "reranker_unavailable"
    ANSWER_CUT = "answer_cut"
    TOOLS_UNAVAILABLE = "tools_unavailable"
    TOOLS_MISSING = "tools_missing"
    TOOLS_UNAPPROVED = "tools_unapproved"
    SUMMARIZED = "summarized"


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One message of the logical order, or one that was left out.

    `part` and `role` are values of core.prompt.messages.Part and Role. `turn_id` names the turn it repeats,
    or that holds the summary; `chunk_id` the passage, for parts left out of the knowledge context;
    `memory_ids` the memories, one per line; `call_ids` the tool calls of its turn; `images` how many of the
    turn's images were sent. `text` is stored only if it is stored nowhere else. `reason` says why it is
    included, or why not.
    """

    part: str
    role: str
    tokens: int
    kept: bool = True
    reason: str = ""
    turn_id: str | None = None
    chunk_id: str | None = None
    text: str | None = None
    memory_ids: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    images: int = 0


@dataclass(frozen=True, slots=True)
class PromptManifest:
    """`layout` is the wire form that was used; `params` the request without its messages, as JSON text, since
    a store may not preserve the order of keys.

    `window` and `answer_tokens` are the model's; `texts` the fixed introductions by name. `request_sha256` is
    that of the body as sent, in hex ("" if nothing was sent). `response` holds what the provider reported
    about its answer: id, finish_reason, usage.
    """

    model: str
    layout: str
    parts: tuple[ManifestPart, ...]
    window: int = 0
    answer_tokens: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    params: str = "{}"
    request_sha256: str = ""
    response: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all parts that were sent, as counted before sending."""
        return sum(part.tokens for part in self.parts if part.kept)

    @property
    def memory_ids(self) -> tuple[str, ...]:
        """The memories in the prompt."""
        return tuple(memory_id for part in self.parts if part.kept for memory_id in part.memory_ids)


TURN_SCHEMA = 1
UNSET = "unset"  # the parent if a question names none: the latest completed turn
MAX_WARNINGS = 20  # of one turn
MAX_WARNING_CHARS = 500
MAX_WARNING_COUNTS = 20
MAX_REWRITTEN_CHARS = 500  # a longer text is not a question


class TurnStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        return self is not TurnStatus.RUNNING


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one model call; `estimated` if the provider did not report them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """A condensed older part of a branch, stored with the last turn it covers: it applies to every branch
    that goes through that turn.

    `covers` are the turns it was made from, oldest first, in addition to those of the summary it continues,
    which is stored with the turn `previous`. `start` is the first turn covered in all.
    """

    text: str
    start: str
    covers: tuple[str, ...]
    previous: str | None
    model_id: str
    created_us: int
    tokens: int


KnowledgeUse = Literal["auto", "always", "never"]
"""Whether the documents are searched; `auto` skips small talk that is not a question to them."""


@dataclass(frozen=True, slots=True)
class AskedWith:
    """How a question was to be answered, as requested. With the same question, model and filters it is the
    same request. `date` is when it is asked (ISO 8601: a day, a month or a year), "" for the day of the
    answer. Without `memory` nothing is recalled for it, nor learned from it. `tools` are tables of the
    configuration, or single tools of one. `temperature` and `max_tokens` None: as in the model's table."""

    thinking: bool = False
    rerank_top_n: int = 10
    use_insert_block: bool = False
    insert_block_llm_id: str | None = None
    knowledge: KnowledgeUse = "auto"
    date: str = ""
    memory: bool = True
    tools: tuple[str, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TurnWarning:
    """A warning to the reader, as the STATUS event carried it.

    `counts` are its other fields by name, `at` is the event's number in the stream, 0 if unknown.
    """

    code: str
    message: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    at: int = 0


@dataclass(frozen=True, slots=True)
class RewrittenQuestion:
    """The wording of a second search of the knowledge base; `at` as in TurnWarning.

    `turn_ids` are the earlier turns it was made from: it contains their words, so it is erased with any of
    them.
    """

    text: str
    turn_ids: tuple[str, ...]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Feedback:
    """A reader's verdict on an answer; `rating` None: only a comment."""

    rating: Literal["up", "down"] | None
    comment: str = ""

    @property
    def says_nothing(self) -> bool:
        return self.rating is None and not self.comment


@dataclass(frozen=True, slots=True)
class Turn:
    """A stored turn. `created_us` is UTC microseconds; `seq` counts from 0 within the session.

    `command` is the name of the slash command ("" for a question): stored like a turn, never sent to a model.
    `prompt` is the manifest of what was sent; `summary` condenses what came before, if one was made.
    `request_hash` distinguishes a retry of the same request from another request with the same id. `layout`
    is the sequence of the streamed events until the turn was stored (api.turn.stream.layout_of), so that a
    late reader can resume. `finish_reason` is why the model ended; "length": at a limit. `filters` are what
    the question was limited to. `request` is None if unknown: earlier versions did not store it. `feedback`
    is on this answer: a regenerated one has none. `warnings`, in the order sent, and `rewritten` are what its
    stream carried beside the answer, MAX_WARNINGS at most. `tool_calls` are in the order made; those of an
    interrupted run come first, without results. `images` came with the question; their bytes are files beside
    the store.
    """

    turn_id: str
    session_id: str
    owner: str
    question: str
    created_us: int
    status: TurnStatus
    parent_turn_id: str | None = None
    answer: str = ""
    thinking: str = ""
    sources: tuple[Citation, ...] = ()
    seq: int = 0
    model_id: str = "default"
    token_count: int = 0
    usage: Usage = field(default_factory=Usage)
    timings_ms: dict[str, float] = field(default_factory=dict)
    prompt: PromptManifest | None = None
    summary: Summary | None = None
    command: str = ""
    request_hash: str = ""
    layout: tuple[int, ...] = ()
    finish_reason: str = ""
    filters: KnowledgeFilter = field(default_factory=KnowledgeFilter)
    request: AskedWith | None = None
    feedback: Feedback | None = None
    warnings: tuple[TurnWarning, ...] = ()
    rewritten: RewrittenQuestion | None = None
    tool_calls: tuple[ToolUse, ...] = ()
    images: tuple[Image, ...] = ()

    @property
    def timestamp(self) -> str:
        return rfc3339(self.created_us)

    @property
    def text(self) -> str:
        """What is embedded for the turn."""
        return f"用户: {self.question}\n助手: {self.answer}"


def settled_calls(turn: Turn) -> tuple[ToolUse, ...]:
    """Return its calls in their final form, even if the process ended before they did."""
    return tuple(use.settled for use in turn.tool_calls) if turn.status.finished else turn.tool_calls


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One question. `parent_turn_id`: UNSET for the session's latest completed turn, None for a new root.

    `language` is the reader's, None if unknown; commands, which have none, are answered in it. `persona` is
    this turn's own, overriding the session's ("": none). `cancelled_when_left`: a reader who disconnects
    cancels the turn at once, without a grace period. `begins_session`: the client may choose an unknown
    `session_id`, if the deployment allows it. `left_open`: fields that the session decides
    (core.conversation.sessions.CHOICES), since the request does not set them. `switches_thinking`:
    `how.thinking` switches the model's thinking, too, and off, none is shown; otherwise the model decides.
    `sent_images` as received; once checked, `images` replace them. `attached` is what a client sent along
    with the question: shown to the model in this turn, but not part of the question.
    """

    question: str
    owner: str
    request_id: str = ""
    session_id: str | None = None
    turn_id: str | None = None
    parent_turn_id: str | None = UNSET
    model_id: str = "default"
    how: AskedWith = field(default_factory=AskedWith)
    filters: KnowledgeFilter = NO_LIMITS
    language: Language | None = None
    persona: str = ""
    cancelled_when_left: bool = False
    begins_session: bool = True
    left_open: frozenset[str] = frozenset()
    switches_thinking: bool = False
    sent_images: tuple[SentImage, ...] = ()
    images: tuple[ImageData, ...] = ()
    attached: str = ""

    @property
    def fingerprint(self) -> str:
        """Distinguishes a retry from another request with the same turn id; ids are compared separately."""
        images = [each.image for each in self.images]
        return _fingerprint(self.question, self.model_id, self.how, self.filters, images, self.attached)


def repeats(request: TurnRequest, stored: Turn) -> bool:
    """Whether the request matches what can be read of the stored turn: the only evidence if the question was
    filtered, one of its documents was erased, or the turn was imported. Attachments cannot be read there."""
    if stored.request is None or request.attached:
        return False
    filters = NO_LIMITS if stored.command else request.filters
    images = [each.image for each in request.images]
    question = preprocess_question(request.question)
    requested = _fingerprint(question, request.model_id, request.how, filters, images)
    return requested == _fingerprint(
        stored.question, stored.model_id, stored.request, stored.filters.in_order(), stored.images
    )


def _fingerprint(
    question: str,
    model_id: str,
    how: AskedWith,
    filters: KnowledgeFilter,
    images: Sequence[Image],
    attached: str = "",
) -> str:
    asked: list[object] = [
        question,
        how.thinking,
        model_id,
        how.rerank_top_n,
        how.use_insert_block,
        how.insert_block_llm_id,
    ]
    # older turns, without these keys, must keep their fingerprints
    if not filters.limits_nothing:
        asked.append(asdict(filters))
    if how.knowledge != "auto":
        asked.append(how.knowledge)
    if how.date:
        asked.append(how.date)
    if not how.memory:
        asked.append("no memory")
    if how.tools:
        asked.append(["tools", *how.tools])
    if (how.temperature, how.max_tokens) != (None, None):
        asked.append([how.temperature, how.max_tokens])
    if images:
        asked.append(["images", *(each.sent_sha256 for each in images)])
    if attached:
        asked.append(["attached", attached])
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


# The marks of a turn: hashes by which core.conversation.lineage recognises the history that a client sends.

_FOOTER = re.compile(r"\n+---\n(?:Sources:|来源：)\n(?:\[\d+\] [^\n]*\n?)+\s*\Z")
_PARAGRAPHS = re.compile(r"\n\s*\n")
MAX_QUOTATIONS = 8  # of an answer: how many are tried as the end of its thinking
_REASONING = re.compile(r"<think>.*?</think>|<details type=\"reasoning\".*?</details>", re.S)


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A question and its answer in a client's history."""

    question: str
    answer: str

    @property
    def mark(self) -> str:
        return _hash(f"{normalised(self.question)}\0{normalised(self.answer)}")

    @property
    def question_mark(self) -> str:
        return "?" + _hash(normalised(self.question))

    @property
    def unquoted(self) -> list[PastTurn]:
        """Variants without the quotation before the answer, which is how NextChat returns thinking. Not every
        paragraph of it need have the sign: every place where it may end is tried."""
        if not self.answer.lstrip().startswith(">"):
            return []
        paragraphs = [*_PARAGRAPHS.split(self.answer.strip()), ""]
        quoted = [paragraph.startswith(">") for paragraph in paragraphs]
        ends = [at for at in range(1, len(quoted)) if quoted[at - 1] and not quoted[at]]
        return [replace(self, answer="\n\n".join(paragraphs[at:])) for at in ends[:MAX_QUOTATIONS]]


def normalised(text: str) -> str:
    """Normalise to NFC; remove reasoning that a client puts into the text, the footer of sources and image
    placeholders; reduce every run of white space to one space."""
    text = _REASONING.sub("", without_footer(scrub(text)))
    for note in ONLY_IMAGE.values():
        text = text.replace(note, " ")
    return " ".join(unicodedata.normalize("NFC", text).split())


def sources_footer(lines: Sequence[tuple[int, str]], language: Language) -> str:
    """Return the numbered sources below an answer, "" without any; removed again from histories that contain
    it."""
    if not lines:
        return ""
    items = (f"[{number}] {' '.join(line.split())}" for number, line in lines)
    return "\n".join(("\n\n---", "来源：" if language == "zh" else "Sources:", *items))


def without_footer(text: str) -> str:
    return _FOOTER.sub("", text)


def marks_of(question: str, answer: str, status: TurnStatus) -> list[str]:
    """Return the marks to store with a turn. An incomplete turn gets one of its question alone, too: its
    client may have read less of the answer than was stored."""
    past = PastTurn(question, answer)
    return [past.mark] if status is TurnStatus.COMPLETED else [past.mark, past.question_mark]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
