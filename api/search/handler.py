"""Retrieval alone: every candidate with its rank and score at each stage, and the stage that dropped it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from api.search.context import SearchContext, SearchContexts
from api.search.context import SearchRequest as SearchRequest
from api.search.stages import Judged, Ranking
from api.search.why_not import DocumentReport, WhyNot
from api.turn.pipeline import Pipeline
from api.turn.prompt import Prompt
from api.turn.request import Gathered, TurnRequest
from core.citing.key_passages import with_key_passages
from core.errors import EmptyQuestionError
from core.knowledge import Document
from core.relevance.probability import apply_threshold
from core.text import preprocess_question
from services.knowledge.base import KnowledgeBase
from services.llm_service import LLMService, ModelEntry


@dataclass(frozen=True, slots=True)
class SearchReport:
    """All candidates of a search, best first; `document` answers for the one that was asked about.

    `reranker` is the one that judged; `fell_back` says that another was configured and did not answer.
    """

    candidates: tuple[Judged, ...]
    reranker: str
    fell_back: bool = False
    document: DocumentReport | None = None


class SearchHandler:
    """Searches as a turn of the chat does, up to the prompt; no model is called."""

    def __init__(
        self,
        pipeline: Pipeline,
        contexts: SearchContexts,
        llms: LLMService,
        knowledge: KnowledgeBase,
        why_not: WhyNot,
    ) -> None:
        self._pipeline = pipeline
        self._contexts = contexts
        self._llms = llms
        self._knowledge = knowledge
        self._why_not = why_not

    async def search(self, request: SearchRequest) -> SearchReport:
        """Raises EmptyQuestionError, InvalidParentError, NotFoundError kinds (session, document, model),
        StoreUnavailableError, EmbeddingUnavailableError."""
        request, model = self._checked(request), self._llms.get(request.model_id)
        document = await self._document(request)
        context = await self._contexts.of(request)
        query = await self._pipeline.queries.build(
            request.question,
            context.previous_questions,
            last_answer=context.last_answer,
            date=request.date,
        )
        owners = self._pipeline.owners(request.owner)
        candidates, history = await asyncio.gather(
            self._pipeline.retriever.search(query, owners, request.filters),
            self._contexts.history(context, query, request.owner),
        )
        reranked = await self._pipeline.reranking.rerank(query, candidates)
        ranked = with_key_passages(query, reranked.candidates)
        chosen = tuple(apply_threshold(ranked, self._pipeline.threshold, request.top_n))
        blocks = await self._pipeline.widened(chosen, owners)
        gathered = replace(history, ranked=ranked, candidates=chosen, expanded=blocks)
        prompt = self._prompt(request, model, context, gathered)
        judged = Ranking(candidates, ranked, chosen, self._pipeline.threshold, prompt).judged()
        why = None
        if document is not None:
            why = await self._why_not.explain(query, document, owners, judged, request.filters)
        return SearchReport(judged, reranked.reranker, reranked.fell_back, why)

    def _checked(self, request: SearchRequest) -> SearchRequest:
        """The question as the chat cleans and filters it."""
        question = preprocess_question(request.question)
        question = preprocess_question(self._pipeline.question_filter(question)) if question else ""
        if not question:
            raise EmptyQuestionError("question: must not be empty.")
        return replace(request, question=question)

    async def _document(self, request: SearchRequest) -> Document | None:
        if request.document_id is None:
            return None
        return await self._knowledge.get_document(request.document_id, self._pipeline.owners(request.owner))

    def _prompt(
        self, request: SearchRequest, model: ModelEntry, context: SearchContext, gathered: Gathered
    ) -> Prompt:
        asked = TurnRequest(
            request.question, request.owner, model_id=request.model_id, filters=request.filters
        )
        return self._pipeline.prompts.build(asked, model, context.persona, gathered)
