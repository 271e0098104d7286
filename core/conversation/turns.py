"""Turns: one question and its answer, the unit that is stored and that forms a tree by its parents."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from core.knowledge import Citation, KnowledgeFilter
from core.moments import END_US
from core.prompt.manifest import PromptManifest

TURN_SCHEMA = 1
MAX_WARNINGS = 20  # of one turn
MAX_WARNING_CHARS = 500
MAX_WARNING_COUNTS = 20
MAX_REWRITTEN_CHARS = 500  # longer is no question


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
    """Token counts of one model call; `estimated` when the provider did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """What the older part of a branch said, stored with the last turn it covers: it holds on every branch
    that goes through that turn.

    `covers` are the turns it was made of, oldest first, in addition to those of the summary it goes on from,
    which is stored with the turn `previous`. `start` is the first turn covered in all.
    """

    text: str
    start: str
    covers: tuple[str, ...]
    previous: str | None
    model_id: str
    created_us: int
    tokens: int


@dataclass(frozen=True, slots=True)
class AskedWith:
    """How a question was to be answered, as its request said. With the question, the model, and the filters
    it is the same request again."""

    thinking: bool = False
    rerank_top_n: int = 10
    use_insert_block: bool = False
    insert_block_llm_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnWarning:
    """A warning to the reader, as the STATUS event carried it.

    `counts` are its other fields by name, `at` is the event's number in the stream, 0 where it is not known.
    """

    code: str
    message: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    at: int = 0


@dataclass(frozen=True, slots=True)
class RewrittenQuestion:
    """The wording that the knowledge base was searched with once more; `at` as in TurnWarning.

    `turn_ids` are the earlier turns that it was made of: their words are in it, so it goes when one of them
    does.
    """

    text: str
    turn_ids: tuple[str, ...]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a reader says of an answer; `rating` None: a comment alone."""

    rating: Literal["up", "down"] | None
    comment: str = ""

    @property
    def says_nothing(self) -> bool:
        return self.rating is None and not self.comment


@dataclass(frozen=True, slots=True)
class Turn:
    """A stored turn. `created_us` is UTC microseconds; `seq` counts from 0 within the session.

    `command` is the name of the slash command it was ("" for a question): kept like a turn, never sent to a
    model. `prompt` is the manifest of what was sent; `summary` says what came before, where one was made.
    `request_hash` distinguishes a retry of the same request from another request under the same id. `layout`
    is how the streamed events followed each other until the turn was stored
    (core.conversation.events.layout_of), so that
    a late reader can go on. `finish_reason` is why the model ended; "length": at a limit. `filters` are what
    the question was limited to. `request` is None where it is not known: earlier versions did not keep it.
    `feedback` is of this answer: one that is given anew has none. `warnings`, in the order sent, and
    `rewritten` are what its stream carried beside the answer, MAX_WARNINGS at most.
    """

    turn_id: str
    session_id: str
    owner: str
    user_query: str
    created_us: int
    status: TurnStatus
    parent_turn_id: str | None = None
    assistant_response: str = ""
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

    @property
    def timestamp(self) -> str:
        return rfc3339(self.created_us)

    @property
    def text(self) -> str:
        """What is embedded as the turn."""
        return f"用户: {self.user_query}\n助手: {self.assistant_response}"


def rfc3339(created_us: int) -> str:
    """UTC microseconds as RFC 3339 with microseconds and Z, which sorts as text in time order.

    A time that cannot be one, as a damaged record may hold, is shown as the nearest that can: the beginning
    of 1970, or the end of the year 9999.
    """
    created_us = min(max(created_us, 0), END_US - 1)
    moment = datetime.fromtimestamp(created_us // 1_000_000, UTC).replace(microsecond=created_us % 1_000_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
