"""The parts put together into what routes and scripts ask for. No adapter is known here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from api.commands import CommandRunner
from api.knowledge_handler import KnowledgeHandler
from api.parts import SHARED_OWNER, Container
from api.pipeline import Pipeline
from api.prompt import PromptBuilder
from api.running_turns import RunningTurns
from api.search_context import SearchContexts
from api.search_handler import SearchHandler
from api.sessions_handler import SessionsHandler
from api.start import Readiness
from api.stream_seats import StreamSeats
from api.why_not import WhyNot
from config.prompt_library import PromptLibrary
from config.settings import Settings
from core.persona import PersonaRules
from services.activity import Activity
from services.backfill import Backfill
from services.conversation_manager import ConversationManager
from services.embedding import EmbeddingService
from services.insert_block import InsertBlock
from services.knowledge.knowledge_base import KnowledgeBase
from services.llm_service import DEFAULT_MODEL_ID, LLMService
from services.qa_log import QALog
from services.query_builder import QueryBuilder
from services.query_rewrite import QueryRewriter
from services.reranking import RerankService
from services.retention import SessionRecords
from services.retriever import LIST_DEPTH, Retriever
from services.schedule import CleanupSchedule
from services.sessions import SessionStore
from services.store import VectorStore
from services.summaries import SummaryService
from services.text_filters import load_answer_filters, load_question_filters
from services.turn_store import TurnStore
from services.turn_traces import TurnTraces
from services.why_not import ListPlaces


@dataclass(frozen=True, slots=True)
class History:
    """What keeps conversations, sums them up and forgets them; `qa_log` is None when it is off."""

    conversations: ConversationManager
    sessions: SessionStore
    summaries: SummaryService
    traces: TurnTraces
    qa_log: QALog | None
    activity: Activity

    async def close(self) -> None:
        """What was begun in the background is finished, briefly; the log is written to its end."""
        await self.summaries.close()
        await self.conversations.close()
        if self.qa_log is not None:
            await self.qa_log.close()


@dataclass(frozen=True, slots=True)
class Opened:
    """Every part that had to be opened."""

    settings: Settings
    store: VectorStore
    embedding: EmbeddingService
    reranker: BaseNodePostprocessor | None
    llms: LLMService
    history: History
    knowledge: KnowledgeBase
    schedule: CleanupSchedule
    readiness: Readiness


def make_history(
    settings: Settings, store: VectorStore, embedding: EmbeddingService, llms: LLMService
) -> History:
    conversation, names = settings.conversation, settings.store
    cache_s = 0.0 if names.qdrant_url else conversation.history_cache_s  # other workers write there, too
    turns = TurnStore(store, names.conversation_collection, cache_s)
    qa_log = QALog(conversation.qa_log) if conversation.qa_log else None
    if qa_log is not None:
        qa_log.check()
    library = PromptLibrary()
    summaries = SummaryService(
        turns, llms.get, conversation, lambda language: library.text("summarize", language)
    )
    sessions = SessionStore(store, names.session_collection)
    traces = TurnTraces(summaries.forget, sessions, qa_log)
    records = SessionRecords(store, names.session_collection)
    activity = Activity()
    manager = ConversationManager(turns, embedding, conversation, records, traces, activity=activity)
    return History(manager, sessions, summaries, traces, qa_log, activity)


def make_backfill(settings: Settings, store: VectorStore, conversations: ConversationManager) -> Backfill:
    names = settings.store
    return Backfill(conversations.turns, store, names.conversation_collection, names.session_collection)


def put_together(opened: Opened) -> Container:
    settings, history, llms = opened.settings, opened.history, opened.llms
    conversations = history.conversations
    sessions = history.sessions
    server = settings.server
    per_owner = server.max_streams_per_key if server.api_keys else None  # without keys all are one owner
    running = RunningTurns(StreamSeats(server.max_streams, per_owner), history.activity)
    # who asked and who came back: a connection that was lost may not have been missed yet
    readers = StreamSeats(2 * server.max_streams, 2 * per_owner if per_owner else None)
    prompts = PromptBuilder(PromptLibrary(), settings.conversation)
    personas = PersonaRules(
        settings.conversation.max_persona_chars,
        lambda text: prompts.check_persona(text, llms.get(DEFAULT_MODEL_ID)),
    )
    pipeline = _pipeline(opened, prompts, CommandRunner(sessions, personas))
    return Container(
        settings=settings,
        chat=KnowledgeHandler(pipeline, sessions, llms, running, server, settings.conversation, readers),
        sessions=SessionsHandler(
            sessions, conversations.turns, running, history.traces, personas, conversations.index_later
        ),
        search=_search(opened, pipeline),
        knowledge=opened.knowledge,
        conversations=conversations,
        summaries=history.summaries,
        backfill=make_backfill(settings, opened.store, conversations),
        schedule=opened.schedule,
        llms=llms,
        embedding=opened.embedding,
        running=running,
        store=opened.store,
        readiness=opened.readiness,
    )


def _search(opened: Opened, pipeline: Pipeline) -> SearchHandler:
    settings = opened.settings
    depth = math.ceil(settings.retrieval.reranker_input_top_n * LIST_DEPTH)
    lists = ListPlaces(opened.store, settings.store.knowledge_collection, depth)
    contexts = SearchContexts(pipeline, opened.history.sessions)
    return SearchHandler(pipeline, contexts, opened.llms, opened.knowledge, WhyNot(pipeline, lists))


def _pipeline(opened: Opened, prompts: PromptBuilder, commands: CommandRunner) -> Pipeline:
    settings, library = opened.settings, PromptLibrary()
    return Pipeline(
        conversations=opened.history.conversations,
        summaries=opened.history.summaries,
        queries=QueryBuilder(opened.embedding),
        retriever=Retriever(opened.store, settings.store.knowledge_collection, settings.retrieval),
        reranking=RerankService(opened.reranker, settings.retrieval, opened.embedding.name),
        insert_block=InsertBlock(library.text("insert_block"), settings.retrieval),
        rewriter=QueryRewriter(
            lambda language: library.text("rewrite", language), settings.retrieval.rewrite_timeout_s
        ),
        prompts=prompts,
        commands=commands,
        question_filter=load_question_filters(settings.conversation.question_filters),
        answer_filters=load_answer_filters(settings.conversation.answer_filters),
        qa_log=opened.history.qa_log,
        keeps_prompts=settings.conversation.prompt_keep_days > 0,
        max_answer_chars=settings.models.max_answer_chars,
        threshold=settings.retrieval.rerank_score_threshold,
        shared_owner=SHARED_OWNER,
        is_reading=opened.knowledge.is_reading,
        find_documents=opened.knowledge.find_documents,
    )
