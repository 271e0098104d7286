"""What a caller asks for, after the wire has checked its form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from core.conversation.summaries import AppliedSummary
from core.conversation.turns import AskedWith, Turn
from core.knowledge import Candidate, KnowledgeFilter
from core.limits import NO_LIMITS
from core.text import preprocess_question
from services.conversation_manager import UNSET


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One question. `parent_turn_id`: UNSET for the session's latest completed turn, None for a new root."""

    question: str
    owner: str
    request_id: str = ""
    session_id: str | None = None
    turn_id: str | None = None
    parent_turn_id: str | None = UNSET
    thinking: bool = False
    model_id: str = "default"
    rerank_top_n: int = 10
    use_insert_block: bool = False
    insert_block_llm_id: str | None = None
    filters: KnowledgeFilter = NO_LIMITS

    @property
    def asked_with(self) -> AskedWith:
        return AskedWith(self.thinking, self.rerank_top_n, self.use_insert_block, self.insert_block_llm_id)

    @property
    def fingerprint(self) -> str:
        """Tells a retry from another request under the same turn id; ids are compared apart from it."""
        return _fingerprint(self.question, self.model_id, self.asked_with, self.filters)


def repeats(request: TurnRequest, stored: Turn) -> bool:
    """Whether the request is made of what can be read of the stored turn: all that a client may know of it,
    where the question was filtered, a document it was limited to was erased, or the turn was imported."""
    if stored.request is None:
        return False
    filters = NO_LIMITS if stored.command else request.filters
    requested = _fingerprint(
        preprocess_question(request.question), request.model_id, request.asked_with, filters
    )
    return requested == _fingerprint(
        stored.user_query, stored.model_id, stored.request, stored.filters.in_order()
    )


def _fingerprint(question: str, model_id: str, how: AskedWith, filters: KnowledgeFilter) -> str:
    asked: list[object] = [
        question,
        how.thinking,
        model_id,
        how.rerank_top_n,
        how.use_insert_block,
        how.insert_block_llm_id,
    ]
    if not filters.limits_nothing:  # turns of before there were filters keep their fingerprint
        asked.append(asdict(filters))
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


# What a turn is answered from.


@dataclass(frozen=True, slots=True)
class Gathered:
    """History oldest first; `ranked` is every candidate, best first, `candidates` what may be shown.

    `expanded` are these with the text that goes into the prompt, which may be longer (none: their own).
    `refused` are the chunks that InsertBlock judged useless; `rewritten` is the wording that the question was
    searched with once more, or "".
    """

    recent: tuple[Turn, ...] = ()
    relevant: tuple[Turn, ...] = ()
    summary: AppliedSummary | None = None
    ranked: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    expanded: tuple[Candidate, ...] = ()
    refused: frozenset[str] = frozenset()
    rewritten: str = ""
