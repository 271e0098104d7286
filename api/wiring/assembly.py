"""The parts put together into what routes and scripts ask for. No adapter is known here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from api.admin.backups import BackupsHandler
from api.admin.erasure import ErasureHandler, halting
from api.admin.gauges import Gauges
from api.admin.reembedding import StoreReembedding
from api.admin.store_look import StoreLook, WatchedStore
from api.knowledge_handler import KnowledgeHandler
from api.search.context import SearchContexts
from api.search.handler import SearchHandler
from api.search.why_not import WhyNot
from api.sessions.handler import SessionsHandler
from api.turn.commands import CommandRunner
from api.turn.pipeline import Pipeline
from api.turn.prompt import PromptBuilder
from api.turn.running import RunningTurns
from api.turn.seats import StreamSeats
from api.wiring.parts import SHARED_OWNER, Container
from api.wiring.start import Readiness
from config.prompt_library import PromptLibrary
from config.settings import Settings, StoreSettings
from core.conversation.persona import PersonaRules
from services.conversation.memory_records import MemoryRecords
from services.conversation.sessions import SessionStore
from services.conversation.summaries import SummaryService
from services.conversation.summary_records import Rewordings
from services.conversation.tree_cache import HISTORY_CACHE_S
from services.conversation.turns import TurnStore
from services.conversation_manager import ConversationManager
from services.knowledge.base import KnowledgeBase
from services.llm_service import DEFAULT_MODEL_ID, LLMService
from services.models.embedding import EmbeddingService
from services.models.text_filters import load_answer_filters, load_question_filters
from services.operations.backup.making import Backups
from services.operations.backup.snapshots import Snapshots
from services.operations.erasure.copies import Copies
from services.operations.erasure.erase import Erasure
from services.operations.erasure.parts import ErasureParts, nothing_runs
from services.operations.metrics import Metrics
from services.operations.qa_log import QALog
from services.operations.repair.run import Backfill
from services.operations.retention.cleanup import Retention, SessionRecords
from services.operations.retention.traces import TurnTraces
from services.operations.schedule.state import CleanupSchedule
from services.retrieval.insert_block import InsertBlock
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.reranking import RerankService
from services.retrieval.retriever import LIST_DEPTH, Retriever
from services.retrieval.rewriting import QueryRewriter
from services.retrieval.surroundings import Neighbours, Widener
from services.retrieval.why_not import ListPlaces
from services.store.activity import Activity
from services.store.clock import utc_now_us
from services.store.collections import collection_specs
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from services.sync.folders import FolderSync


@dataclass(frozen=True, slots=True)
class History:
    """What keeps conversations, sums them up and forgets them; `qa_log` is None when it is off."""

    conversations: ConversationManager
    sessions: SessionStore
    summaries: SummaryService
    traces: TurnTraces
    qa_log: QALog | None
    activity: Activity
    receipts: ReceiptStore
    space: StoreSpace

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
    reembedding: StoreReembedding
    snapshots: Snapshots | None


def make_history(
    settings: Settings,
    store: VectorStore,
    embedding: EmbeddingService,
    llms: LLMService,
) -> History:
    conversation, names = settings.conversation, settings.store
    cache_s = 0.0 if names.qdrant_url else HISTORY_CACHE_S  # other workers write there, too
    turns = TurnStore(store, names.conversation_collection, cache_s)
    qa_log = QALog(conversation.qa_log) if conversation.qa_log else None
    if qa_log is not None:
        qa_log.check()
    library = PromptLibrary()
    summaries = SummaryService(
        turns, llms.get, conversation, lambda language: library.text("summarize", language)
    )
    sessions = SessionStore(store, names.session_collection)
    memories = MemoryRecords(store, names.memory_collection)
    rewordings = Rewordings(turns)
    traces = TurnTraces(summaries.forget, sessions, qa_log, memories, names.data_dir, rewordings.forget)
    records = SessionRecords(store, names.session_collection)
    receipts = ReceiptStore(store, names.operations_collection)
    collections = [spec.name for spec in collection_specs(names)]
    space = StoreSpace(store, collections, receipts, utc_now_us)
    retention = Retention(turns, records, traces, receipts, space)
    activity = Activity()
    manager = ConversationManager(turns, embedding, conversation, retention, activity=activity)
    return History(manager, sessions, summaries, traces, qa_log, activity, receipts, space)


def make_backups(settings: StoreSettings, store: VectorStore, snapshots: Snapshots | None) -> BackupsHandler:
    return BackupsHandler(Backups(store, settings, snapshots), settings.backups)


def make_backfill(
    settings: StoreSettings,
    store: VectorStore,
    embedding: EmbeddingService,
    history: History,
    backups: BackupsHandler,
) -> Backfill:
    async def back_up(reason: str) -> str:
        return (await backups.create(reason=reason)).file

    turns = history.conversations.turns
    conversations, sessions = settings.conversation_collection, settings.session_collection
    return Backfill(turns, store, conversations, sessions, embedding, history.receipts, back_up)


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
    metrics = Metrics(entry.model_id for entry in llms.entries())
    pipeline = _pipeline(opened, prompts, CommandRunner(sessions, personas), metrics)
    sync, disk = _folder_sync(opened), DiskWatch(opened.store, settings.store.low_disk_mb << 20)
    backups = make_backups(settings.store, opened.store, opened.snapshots)
    container = Container(
        settings=settings,
        chat=KnowledgeHandler(pipeline, sessions, llms, running, server, settings.conversation, readers),
        sessions=SessionsHandler(
            sessions, conversations.turns, _erasure(opened, running), personas, conversations.index_later
        ),
        search=_search(opened, pipeline),
        knowledge=opened.knowledge,
        conversations=conversations,
        summaries=history.summaries,
        backfill=make_backfill(settings.store, opened.store, opened.embedding, history, backups),
        schedule=opened.schedule,
        llms=llms,
        embedding=opened.embedding,
        running=running,
        store=opened.store,
        readiness=opened.readiness,
        receipts=history.receipts,
        space=history.space,
        reembedding=opened.reembedding,
        sync=sync,
        disk=disk,
        backups=backups,
        metrics=metrics,
        look=_look(opened, sync, disk),
    )
    metrics.registry.register(Gauges(container))
    return container


def _folder_sync(opened: Opened) -> FolderSync:
    settings = opened.settings
    return FolderSync(
        opened.knowledge,
        settings.knowledge.sources,
        opened.store,
        settings.store,
        shared_owner=SHARED_OWNER,
        max_file_bytes=settings.server.max_upload_bytes,
    )


def _look(opened: Opened, sync: FolderSync, disk: DiskWatch) -> StoreLook:
    history, names = opened.history, opened.settings.store
    return StoreLook(
        WatchedStore(opened.store, names, opened.readiness, disk, history.receipts, history.space, sync)
    )


def make_erasure(
    settings: Settings,
    store: VectorStore,
    history: History,
    knowledge: KnowledgeBase | None = None,
    running: RunningTurns | None = None,
) -> Erasure:
    """Without `knowledge` and `running`: for a command, beside which no server has the store open."""
    names = settings.store
    store_folder = None if names.qdrant_url else names.data_dir / "store"
    return Erasure(
        ErasureParts(
            store=store,
            names=names,
            turns=history.conversations.turns,
            traces=history.traces,
            receipts=history.receipts,
            copies=Copies(names.backups, store_folder),
            shared_owner=SHARED_OWNER,
            qa_log=history.qa_log,
            space=history.space,
            knowledge=knowledge,
            answers=running,
            halt=halting(running) if running is not None else nothing_runs,
        )
    )


def _erasure(opened: Opened, running: RunningTurns) -> ErasureHandler:
    history = opened.history
    erasure = make_erasure(opened.settings, opened.store, history, opened.knowledge, running)
    return ErasureHandler(erasure, history.sessions, history.conversations.turns, opened.knowledge)


def _search(opened: Opened, pipeline: Pipeline) -> SearchHandler:
    settings = opened.settings
    depth = math.ceil(settings.retrieval.reranker_input_top_n * LIST_DEPTH)
    lists = ListPlaces(opened.store, settings.store.knowledge_collection, depth)
    contexts = SearchContexts(pipeline, opened.history.sessions)
    return SearchHandler(pipeline, contexts, opened.llms, opened.knowledge, WhyNot(pipeline, lists))


def _pipeline(opened: Opened, prompts: PromptBuilder, commands: CommandRunner, metrics: Metrics) -> Pipeline:
    settings, library = opened.settings, PromptLibrary()
    neighbours = Neighbours(opened.store, settings.store.knowledge_collection)
    widen_tokens = settings.retrieval.widen_tokens
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
        metrics=metrics,
        question_filter=load_question_filters(settings.conversation.question_filters),
        answer_filters=load_answer_filters(settings.conversation.answer_filters),
        qa_log=opened.history.qa_log,
        keeps_prompts=settings.conversation.prompt_keep_days > 0,
        max_answer_chars=settings.models.max_answer_chars,
        threshold=settings.retrieval.rerank_score_threshold,
        shared_owner=SHARED_OWNER,
        is_reading=opened.knowledge.is_reading,
        find_documents=opened.knowledge.find_documents,
        widener=Widener(neighbours, widen_tokens) if widen_tokens else None,
    )
