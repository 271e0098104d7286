"""Search without an answer, in the context of earlier questions or of a session's branch. Reports every
candidate with its rank and score at each stage, and the stage that dropped it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from api.search.why_not import DocumentReport, Judged, Ranking, WhyNot
from api.turn.gathering import Pipeline, asked_before
from api.turn.prompt import Gathered, Prompt
from core.citing.citations import with_key_passages
from core.conversation.sessions import Branch, Session
from core.conversation.turns import UNSET, Turn, TurnRequest
from core.errors import EmptyQuestionError
from core.knowledge import NO_LIMITS, Candidate, Document, KnowledgeFilter, SearchScope, Surroundings
from core.relevance.probability import apply_threshold
from core.relevance.query import Query
from core.text import preprocess_question
from services.conversation.recall import Remembered
from services.conversation.sessions import SessionStore
from services.knowledge.base import KnowledgeBase
from services.llm_service import LLMService, ModelEntry
from services.retrieval.surroundings import Neighbours


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question and its context: earlier questions of its conversation (oldest first), the answer to the
    last of them, and when it is asked (ISO 8601: a day, a month or a year; "" for today).

    With `session_id`, the context is the branch that a turn below `parent_turn_id` would extend (UNSET: below
    the latest completed turn, None: a new root). `document_id` asks why that document was not found.
    Only passages within `filters` are searched.
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
    """`recent` is oldest first. `branch` and `session` are None without a session."""

    previous_questions: tuple[str, ...] = ()
    last_answer: str = ""
    branch: Branch | None = None
    recent: tuple[Turn, ...] = ()
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class SearchReport:
    """All candidates of a search, best first; `document` explains the document that was asked about.

    `reranker` names the one that judged; `fell_back` means that another was configured but did not answer.
    `sample_left_out`: Wenmai's own guide was not searched, because the owner has documents.
    """

    candidates: tuple[Judged, ...]
    reranker: str
    fell_back: bool = False
    document: DocumentReport | None = None
    sample_left_out: bool = False


@dataclass(slots=True)
class SearchHandler:
    """Searches as a chat turn does, up to the prompt; no language model is called."""

    pipeline: Pipeline
    sessions: SessionStore
    llms: LLMService
    knowledge: KnowledgeBase
    why_not: WhyNot
    neighbours: Neighbours

    async def search(self, request: SearchRequest) -> SearchReport:
        """Raises EmptyQuestionError, InvalidParentError, NotFoundError kinds (session, document, model),
        StoreUnavailableError, EmbeddingUnavailableError."""
        request, model = self._checked(request), self.llms.get(request.model_id)
        document = await self._document(request)
        context = await self._context(request)
        query = await self.pipeline.queries.build(
            request.question, context.previous_questions, last_answer=context.last_answer, date=request.date
        )
        owners = self.pipeline.owners(request.owner)
        scope = await self.pipeline.precedence.scope(query, owners, request.filters)
        (query, candidates), history = await asyncio.gather(
            self._candidates(query, scope, request.filters),
            self._history(context, query, request.owner),
        )
        reranked = await self.pipeline.reranking.rerank(query, candidates)
        in_own = await self.pipeline.retriever.in_own_language(
            query, reranked.candidates, scope, request.filters
        )
        ranked = with_key_passages(query, in_own)
        likely = apply_threshold(ranked, self.pipeline.threshold, len(ranked), request.question)
        chosen = tuple(likely[: request.top_n])
        blocks = await self.pipeline.widened(chosen, owners)
        gathered = replace(history, ranked=ranked, candidates=chosen, expanded=blocks)
        prompt = self._prompt(request, model, context, gathered)
        judged = Ranking(candidates, ranked, likely, chosen, prompt).judged()
        why = None
        if document is not None:
            why = await self.why_not.explain(query, document, owners, judged, request.filters, scope)
        return SearchReport(judged, reranked.reranker, reranked.fell_back, why, scope.without_sample)

    async def _candidates(
        self, query: Query, scope: SearchScope, limits: KnowledgeFilter
    ) -> tuple[Query, list[Candidate]]:
        search = partial(
            self.pipeline.retriever.search,
            owners=scope.owners,
            limits=limits,
            without_sample=scope.without_sample,
        )
        return await self.pipeline.queries.respelled(query, await search(query), search)

    async def recall(self, question: str, owner: str, top_n: int) -> list[Remembered]:
        """Return the owner's earlier turns, of all sessions, that are relevant to the question, best first.

        Raises EmptyQuestionError, StoreUnavailableError, EmbeddingUnavailableError.
        """
        request = self._checked(SearchRequest(question, owner))
        query = await self.pipeline.queries.build(request.question, [])
        return await self.pipeline.conversations.recall.in_all_sessions(query, owner, top_n)

    async def chunk_in_place(
        self,
        document_id: str,
        chunk_id: str,
        owners: Sequence[str],
        *,
        before: int,
        after: int,
        section: bool,
    ) -> Surroundings:
        """Return a chunk with `before` and `after` neighbours and its section. Raises NotFoundError, also for
        another owner's chunk; StoreUnavailableError."""
        chunk = await self.neighbours.get(document_id, chunk_id, owners)
        return await self.neighbours.surroundings(chunk, owners, before=before, after=after, section=section)

    async def _context(self, request: SearchRequest) -> SearchContext:
        """Raises UnknownSessionError (also for another owner's), InvalidParentError."""
        if request.session_id is None:
            return SearchContext(request.previous_questions, request.last_answer)
        session = await self.sessions.get(request.session_id, request.owner)
        conversations = self.pipeline.conversations
        branch = await conversations.find_branch(session.session_id, request.owner, request.parent_turn_id)
        recent = tuple(await conversations.get_recent_history(branch))
        return SearchContext(*asked_before(recent), branch, recent, session)

    async def _history(self, context: SearchContext, query: Query, owner: str) -> Gathered:
        """Return the history that would accompany the passages in the prompt."""
        if context.branch is None:
            return Gathered()
        conversations = self.pipeline.conversations
        relevant = await conversations.retrieve_relevant_history(query, context.branch, context.recent, owner)
        summary = await self.pipeline.summaries.applicable(context.branch.nodes)
        return Gathered(context.recent, tuple(relevant), summary)

    def _checked(self, request: SearchRequest) -> SearchRequest:
        """Clean and filter the question as the chat does."""
        question = preprocess_question(request.question)
        question = self.pipeline.question_filter(question) if question else ""
        if not question:
            raise EmptyQuestionError("question: must not be empty.")
        return replace(request, question=question)

    async def _document(self, request: SearchRequest) -> Document | None:
        if request.document_id is None:
            return None
        return await self.knowledge.get_document(request.document_id, self.pipeline.owners(request.owner))

    def _prompt(
        self, request: SearchRequest, model: ModelEntry, context: SearchContext, gathered: Gathered
    ) -> Prompt:
        asked = TurnRequest(
            request.question, request.owner, model_id=request.model_id, filters=request.filters
        )
        return self.pipeline.prompts.build(asked, model, context.session, gathered)
