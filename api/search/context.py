"""What bears on a search: what the caller says was asked before, or the branch that a session has come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.turn.pipeline import Pipeline
from api.turn.request import Gathered
from core.conversation.branch import Branch
from core.conversation.turns import Turn
from core.knowledge import KnowledgeFilter
from core.limits import NO_LIMITS
from core.relevance.query import Query
from services.conversation.sessions import SessionStore
from services.conversation_manager import UNSET
from services.retrieval.query_forms import MAX_PREVIOUS


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question with what bears on it: earlier questions of its conversation (oldest first), the answer
    to the last of them, and the date it asks about (ISO 8601: a day, a month or a year) if that is known.

    With `session_id` the branch that a turn below `parent_turn_id` grows on says what was asked before
    (UNSET: below the latest completed turn, None: a new root). `document_id`: why was it not found?
    Nothing is found beyond `filters`.
    """

    question: str
    owner: str
    top_n: int = 10
    document_id: str | None = None
    previous_questions: tuple[str, ...] = ()
    last_answer: str = ""
    date: str = ""
    session_id: str | None = None
    parent_turn_id: str | None = UNSET
    model_id: str = "default"
    filters: KnowledgeFilter = NO_LIMITS


@dataclass(frozen=True, slots=True)
class SearchContext:
    """`recent` is oldest first; without a session there is no branch and nothing else of one."""

    previous_questions: tuple[str, ...] = ()
    last_answer: str = ""
    branch: Branch | None = None
    recent: tuple[Turn, ...] = ()
    persona: str = ""


def asked_before(recent: Sequence[Turn]) -> tuple[tuple[str, ...], str]:
    """The last questions of a branch, oldest first, and what was answered to the last of them."""
    questions = tuple(turn.user_query for turn in recent[-MAX_PREVIOUS:])
    return questions, recent[-1].assistant_response if recent else ""


class SearchContexts:
    def __init__(self, pipeline: Pipeline, sessions: SessionStore) -> None:
        self._pipeline = pipeline
        self._sessions = sessions

    async def of(self, request: SearchRequest) -> SearchContext:
        """Raises UnknownSessionError (also for somebody else's), InvalidParentError."""
        if request.session_id is None:
            return SearchContext(request.previous_questions, request.last_answer)
        session = await self._sessions.get(request.session_id, request.owner)
        conversations = self._pipeline.conversations
        branch = await conversations.find_branch(session.session_id, request.owner, request.parent_turn_id)
        recent = tuple(await conversations.get_recent_history(branch))
        return SearchContext(*asked_before(recent), branch, recent, session.persona_text)

    async def history(self, context: SearchContext, query: Query, owner: str) -> Gathered:
        """The history that the prompt would hold beside the passages."""
        if context.branch is None:
            return Gathered()
        conversations = self._pipeline.conversations
        relevant = await conversations.retrieve_relevant_history(query, context.branch, context.recent, owner)
        summary = await self._pipeline.summaries.applicable(context.branch.nodes)
        return Gathered(context.recent, tuple(relevant), summary)
