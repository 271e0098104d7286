"""Open the parts in the order of need, assemble them, and close them in reverse."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from api.admin.calibration import CalibrationHandler
from api.admin.erasure import ErasureHandler
from api.admin.gauges import Gauges
from api.admin.models import ModelCheck, ModelsHandler
from api.admin.reembedding import StoreReembedding
from api.admin.sample import SampleHandler, sample_is_pending
from api.admin.store_status import Readiness, StoreStatus, WatchedStore
from api.container import Container, History, opened_task
from api.doors.conversations import ConversationDoor
from api.doors.plain import PlainDoor
from api.failures import FailureTexts
from api.knowledge_handler import KnowledgeHandler
from api.memories import MemoriesHandler
from api.messages import PromptLibrary
from api.search.handler import SearchHandler
from api.search.why_not import WhyNot
from api.sessions.foreign import ForeignImporter
from api.sessions.handler import SessionsHandler
from api.sessions.shares import SharesHandler
from api.turn.commands import CommandRunner, MemoryCommands
from api.turn.gathering import Pipeline
from api.turn.prompt import PromptBuilder
from api.turn.running import RunningTurns, StreamSlots
from api.turn.tools import ToolBox
from api.wiring import parts
from config.secrets import mask_of
from config.settings import ServerSettings, Settings
from core.conversation.sessions import PersonaDraft, PersonaRules
from core.errors import StartRefusedError, UnknownModelError
from core.knowledge import SHARED_OWNER
from core.owners import owners_of
from core.relevance.talk import load_talk_model
from core.tools import ToolSource
from services.conversation.episodes import Episodes
from services.conversation.images import QuestionImages
from services.conversation.sessions import SessionStore
from services.conversation.summaries import Rewordings, SummaryService
from services.conversation.turns import HISTORY_CACHE_S, TurnStore
from services.conversation_manager import ConversationManager
from services.knowledge.base import KnowledgeBase
from services.knowledge.jobs.lanes import CpuHours
from services.llm_service import DEFAULT_MODEL_ID, LLMService, configured_llms
from services.memory.extraction import Extraction, UnreadTurns
from services.memory.records import MemoryRecords
from services.memory.turns import MemoryLearning, MemoryRecall, Reading
from services.memory.writing import MemoryWriter
from services.models.embedding import EmbeddingService
from services.models.text_filters import load_answer_filters, load_question_filters
from services.operations.backup.making import BackupFolder, Backups, Snapshots
from services.operations.metrics import Metrics
from services.operations.qa_log import QALog
from services.operations.reembedding.beside import OpenFolder, switch_if_prepared
from services.operations.repair.documents import UnsearchedDocuments
from services.operations.repair.run import Backfill
from services.operations.retention.cleanup import Retention
from services.operations.retention.expiry import SessionRecords
from services.operations.retention.traces import TurnTraces
from services.operations.schedule.runner import CleanupSchedule
from services.retrieval.foreign_rerankers import AnyReranker
from services.retrieval.insert_block import InsertBlock
from services.retrieval.query_forms import QueryBuilder, QueryRewriter
from services.retrieval.reranking import NONE, Calibrations, RerankService
from services.retrieval.retriever import LIST_DEPTH, ListPlaces, Retriever
from services.retrieval.surroundings import Neighbours, Widener
from services.store.clock import Activity, utc_now_us
from services.store.collections import collection_specs, ensure_collections
from services.store.dialect import VectorStore
from services.store.durable import refuse_unusable
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from services.sync.folders import FolderSync

log = structlog.get_logger()


@asynccontextmanager
async def open_container(
    settings: Settings, wrap: parts.WrapEmbedding | None = None
) -> AsyncIterator[Container]:
    """`wrap` wraps the configured embedding model for everything that uses it, for example in a cache.

    Raises StartRefusedError (one plain line) when the configuration or the data does not allow a start.
    """
    _refuse_unusable(settings)
    prompts = parts.open_prompts(settings.conversation)
    async with AsyncExitStack() as stack:
        embedding = await stack.enter_async_context(parts.open_embedding(settings.models, wrap))
        opener = parts.LLMOpener(settings, stack)
        tables = configured_llms(settings.models)
        llms = LLMService({name: await opener.entry(name, table) for name, table in tables.items()})
        _check_named_model(settings, llms)
        reranker = parts.open_reranker(settings, stack)
        tools = await stack.enter_async_context(parts.open_tools(settings.tools))
        await _settle_folders(settings, embedding, partial(parts.open_store, settings.store))
        store = await stack.enter_async_context(parts.open_store(settings.store))
        snapshots = await stack.enter_async_context(parts.open_snapshots(settings.store))
        cpu = CpuHours(parts.PARSING_S_PER_HOUR if settings.server.api_keys else None)
        knowledge = KnowledgeBase(store, embedding, parts.make_parser(settings, cpu), settings.store, cpu=cpu)
        running = RunningTurns(_slots(settings.server), activity := Activity())
        history = make_history(settings, store, embedding, llms, activity, snapshots, prompts)
        stack.push_async_callback(history.close)
        await stack.enter_async_context(knowledge)
        clean_up = partial(history.conversations.cleanup_expired_conversations, unattended=True)
        schedule = await stack.enter_async_context(parts.scheduled_cleanup(clean_up, settings, store))
        reembedding = StoreReembedding(
            settings.store, settings.models, store, activity, parts.open_embedding,
            partial(parts.open_store, settings.store), settings.store.embedded,
        )  # fmt: skip
        stack.push_async_callback(reembedding.cancel)
        models = ModelsHandler(
            store, settings.store.operations_collection, llms, settings.models, tables, opener.entry,
            opener.listed,
        )  # fmt: skip
        container = _assembled(history, knowledge, running, schedule, reembedding, reranker, tools, models)
        container.metrics.registry.register(Gauges(container))
        await container.readiness.prepare(*container.recoveries)
        if kind := await asyncio.to_thread(container.non_durable_file_system):
            log.warning("flush_promises_little", file_system=kind, data_dir=str(settings.store.data_dir))
        for work in container.background_work():
            await stack.enter_async_context(opened_task(work))
        stack.push_async_callback(container.close_background)
        if settings.knowledge.sources:
            await stack.enter_async_context(parts.scheduled_sync(container.sync.run, settings))
        stack.push_async_callback(container.sessions.erasure.close)
        stack.push_async_callback(running.close, 0)
        yield container


@asynccontextmanager
async def open_maintenance(settings: Settings, *, existing: bool = False) -> AsyncIterator[History]:
    """For operators' commands, which touch no vectors: also opens an earlier version's collections.

    Raises StoreLockedError when a server has it open; with `existing`, StartRefusedError if it is missing.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(parts.open_store(settings.store))
        if existing:
            await parts.refuse_foreign(store, settings.store)
        embedding = await stack.enter_async_context(parts.open_embedding(settings.models))
        await ensure_collections(
            store,
            settings.store,
            embedding_name=embedding.name,
            dimension=embedding.dimension,
            accept_unnamed=True,
        )
        snapshots = await stack.enter_async_context(parts.open_snapshots(settings.store))
        history = make_history(settings, store, embedding, LLMService({}), snapshots=snapshots)
        stack.push_async_callback(history.close)
        yield history


def make_history(
    settings: Settings,
    store: VectorStore,
    embedding: EmbeddingService,
    llms: LLMService,
    activity: Activity | None = None,
    snapshots: Snapshots | None = None,
    prompts: PromptLibrary | None = None,
) -> History:
    conversation, names = settings.conversation, settings.store
    cache_s = 0.0 if names.qdrant_url else HISTORY_CACHE_S  # other workers write there too
    turns = TurnStore(store, names.conversation_collection, cache_s)
    qa_log = QALog(conversation.qa_log) if conversation.qa_log else None
    if qa_log is not None:
        qa_log.check()
    activity, prompts = activity or Activity(), prompts or PromptLibrary()
    summaries = SummaryService(turns, llms.get, conversation, partial(prompts.text, "summarize"))
    sessions = SessionStore(store, names.session_collection, operations=names.operations_collection)
    memories = MemoryRecords(store, names.memory_collection, alone=names.qdrant_url is None)
    traces = TurnTraces(
        summaries.forget, sessions, qa_log, memories, names.data_dir, Rewordings(turns).forget,
        memories_outlive=conversation.memory_outlives_turns,
    )  # fmt: skip
    receipts = ReceiptStore(store, names.operations_collection)
    space = StoreSpace(store, [spec.name for spec in collection_specs(names)], receipts, utc_now_us)
    backups = BackupFolder(Backups(store, names, snapshots), names.backups)
    records = SessionRecords(store, names.session_collection)
    back_up = partial(backups.create_before, "clean-up") if conversation.backup_before_cleanup else None
    retention = Retention(turns, records, traces, receipts, space, back_up=back_up)
    backfill = Backfill(
        turns, store, names.conversation_collection, names.session_collection, embedding, receipts,
        backups.create_before, UnsearchedDocuments(store, names),
    )  # fmt: skip
    return History(
        settings=settings, store=store, embedding=embedding, llms=llms,
        conversations=ConversationManager(turns, embedding, conversation, retention, activity=activity),
        sessions=sessions,
        summaries=summaries,
        traces=traces,
        recall=MemoryRecall(memories, conversation, embedding.name),
        activity=activity,
        qa_log=qa_log,
        calibrations=Calibrations(store, names, embedding.name, settings.models.reranker),
        receipts=receipts,
        space=space,
        backups=backups,
        backfill=backfill,
        prompts=prompts,
    )  # fmt: skip


def _assembled(
    history: History,
    knowledge: KnowledgeBase,
    running: RunningTurns,
    schedule: CleanupSchedule,
    reembedding: StoreReembedding,
    reranker: AnyReranker | None,
    tools: Sequence[ToolSource],
    models: ModelsHandler,
) -> Container:
    settings, store, llms, names = history.settings, history.store, history.llms, history.settings.store
    metrics = Metrics(entry.model_id for entry in llms.entries())
    memories = _memories(history, metrics)
    prompts, personas = _prompts(history)
    failure_text = FailureTexts(settings.models, mask_of(settings), models.stored)
    pipeline = _pipeline(
        history, knowledge, reranker, prompts, personas, metrics, memories, tools, failure_text
    )
    images = parts.make_question_images(settings, history.conversations.turns)
    search, chat = _search(history, knowledge, pipeline), _chat(history, pipeline, running, images)
    disk, readiness = DiskWatch(store, names.low_disk_mb << 20), Readiness(store, names, history.embedding)
    sync = _folder_sync(history, knowledge)
    sessions = _sessions(history, knowledge, running, pipeline, personas, images)
    return Container(
        settings=settings,
        chat=chat,
        conversation_door=ConversationDoor(chat, sessions, history.conversations, pipeline.question_filter),
        plain_door=PlainDoor(llms, pipeline),
        sessions=sessions,
        foreign=ForeignImporter(sessions, history.conversations, personas),
        shares=SharesHandler(sessions, history.sessions, owners_of(settings.server.keys)),
        search=search, knowledge=knowledge,
        sample=_sample(history, knowledge, sessions),
        conversations=history.conversations, summaries=history.summaries, backfill=history.backfill,
        schedule=schedule, running=running, readiness=readiness,
        llms=llms, embedding=history.embedding, store=store,
        receipts=history.receipts, space=history.space, backups=history.backups,
        reembedding=reembedding, disk=disk, sync=sync, metrics=metrics,
        store_status=StoreStatus(
            WatchedStore(store, names, readiness, disk, history.receipts, history.space, sync)
        ),
        calibration=CalibrationHandler(search, history.calibrations, pipeline.threshold),
        model_check=ModelCheck(llms, history.embedding, reranker, failure_text),
        memories=memories, tools=tools, models=models,
        library=parts.open_library(settings.store), prompts=history.prompts,
    )  # fmt: skip


def _prompts(history: History) -> tuple[PromptBuilder, PersonaRules]:
    settings = history.settings.conversation
    prompts = PromptBuilder(history.prompts, settings, parts.now_in(settings))
    return prompts, PersonaRules(lambda text: prompts.check_persona(text, history.llms.get(DEFAULT_MODEL_ID)))


def _chat(
    history: History, pipeline: Pipeline, running: RunningTurns, images: QuestionImages
) -> KnowledgeHandler:
    server = history.settings.server
    readers = _slots(server, 2)  # a reader may come back before its lost connection is noticed
    return KnowledgeHandler(
        pipeline, history.sessions, history.llms, running, server, history.settings.conversation, readers,
        images,
    )  # fmt: skip


def _sample(history: History, knowledge: KnowledgeBase, sessions: SessionsHandler) -> SampleHandler:
    knowledge.jobs.sample_pending = sample_is_pending(history.settings)
    return SampleHandler(knowledge, sessions.erasure, history.settings.store.data_dir)


def _sessions(
    history: History,
    knowledge: KnowledgeBase,
    running: RunningTurns,
    pipeline: Pipeline,
    personas: PersonaRules,
    images: QuestionImages,
) -> SessionsHandler:
    turns, index_later = history.conversations.turns, history.conversations.index_later
    erase, memories = history.make_erasure(knowledge, running), history.recall.records
    erasure = ErasureHandler(erase, history.sessions, turns, knowledge, memories, history.make_owners())
    check_origin = partial(_check_origin, pipeline, knowledge)
    return SessionsHandler(
        history.sessions, turns, memories, pipeline.episodes, erasure, images, personas, index_later,
        check_origin, partial(_check_choices, history.llms, pipeline.tools), pipeline.prompts.now,
    )  # fmt: skip


def _check_choices(llms: LLMService, tools: ToolBox, choices: Mapping[str, Any]) -> None:
    if choices.get("model_id") is not None:
        llms.get(choices["model_id"])
    tools.check(choices.get("tools") or ())


async def _check_origin(
    pipeline: Pipeline, knowledge: KnowledgeBase, draft: PersonaDraft, owner: str
) -> PersonaDraft:
    owners = pipeline.owners(owner)
    chunk_id = await knowledge.checked_passage(draft.document_id, draft.chunk_id, owners)
    return replace(draft, chunk_id=chunk_id)


def _slots(server: ServerSettings, each: int = 1) -> StreamSlots:
    """`each` slots per stream that may run. Without keys, all callers are one owner."""
    per_owner = each * server.max_streams_per_key if server.api_keys else None
    return StreamSlots(each * server.max_streams, per_owner)


def _folder_sync(history: History, knowledge: KnowledgeBase) -> FolderSync:
    settings = history.settings
    return FolderSync(
        knowledge, settings.knowledge.sources, history.store, settings.store,
        max_file_bytes=settings.server.max_upload_bytes,
    )  # fmt: skip


def _search(history: History, knowledge: KnowledgeBase, pipeline: Pipeline) -> SearchHandler:
    settings = history.settings
    depth = math.ceil(settings.retrieval.reranker_input_top_n * LIST_DEPTH)
    lists = ListPlaces(history.store, settings.store.knowledge_collection, depth)
    neighbours = Neighbours(history.store, settings.store.knowledge_collection)
    return SearchHandler(
        pipeline, history.sessions, history.llms, knowledge, WhyNot(pipeline, lists), neighbours
    )


def _memories(history: History, metrics: Metrics) -> MemoriesHandler:
    records, embedding = history.recall.records, history.embedding
    writer = MemoryWriter(records, embedding.embed_passages, embedding.name, metrics.memory_refused)
    on = history.settings.conversation.memory_recall != "off"
    learning = MemoryLearning(records, writer, on=on, reading=_memory_reading(history))
    return MemoriesHandler(records, writer, learning)


def _memory_reading(history: History) -> Reading | None:
    """None if MEMORY_MIN_MESSAGES is 0 or the model only quotes."""
    settings = history.settings
    conversation, names = settings.conversation, settings.store
    model = history.llms.get(conversation.summary_model_id)
    if not conversation.memory_min_messages or not model.generative:
        return None
    extraction = Extraction(model.reply, partial(history.prompts.text, "remember"))
    unread = UnreadTurns(history.store, names.conversation_collection, alone=names.qdrant_url is None)
    min_turns = math.ceil(conversation.memory_min_messages / 2)  # a turn is two messages
    return Reading(unread, extraction, history.activity, min_turns)


def _reranking(history: History, reranker: AnyReranker | None) -> RerankService:
    return RerankService(
        reranker,
        history.settings.retrieval,
        history.embedding.name,
        history.calibrations.current,
        keeps_order=history.settings.models.reranker == NONE,
    )


def _pipeline(
    history: History,
    knowledge: KnowledgeBase,
    reranker: AnyReranker | None,
    prompts: PromptBuilder,
    personas: PersonaRules,
    metrics: Metrics,
    memories: MemoriesHandler,
    tools: Sequence[ToolSource],
    failure_text: FailureTexts,
) -> Pipeline:
    settings, store, library = history.settings, history.store, history.prompts
    conversation = settings.conversation
    neighbours = Neighbours(store, settings.store.knowledge_collection)
    widen_tokens = settings.retrieval.widen_tokens
    turns, recall = history.conversations.turns, history.conversations.recall
    return Pipeline(
        conversations=history.conversations,
        summaries=history.summaries,
        queries=QueryBuilder(history.embedding, parts.today_in(conversation)),
        retriever=Retriever(
            store, settings.store.knowledge_collection, settings.retrieval, embedding=history.embedding.name
        ),
        reranking=_reranking(history, reranker),
        insert_block=InsertBlock(partial(library.text, "insert_block")),
        rewriter=QueryRewriter(partial(library.text, "rewrite"), settings.retrieval.rewrite_timeout_s),
        prompts=prompts,
        commands=CommandRunner(history.sessions, MemoryCommands(memories), personas),
        metrics=metrics,
        question_filter=load_question_filters(conversation.question_filters, conversation.blocked_words),
        answer_filters=load_answer_filters(conversation.answer_filters, conversation.blocked_words),
        qa_log=history.qa_log,
        keeps_prompts=conversation.prompt_keep_days > 0,
        keeps_raw=conversation.keep_raw_response,
        max_answer_chars=settings.models.max_answer_chars,
        threshold=settings.retrieval.rerank_score_threshold,
        judged_top_n=settings.retrieval.reranker_input_top_n,
        knowledge=settings.retrieval.knowledge,
        talk_model=load_talk_model(history.embedding.name),
        shared_owner=SHARED_OWNER,
        jobs=knowledge.jobs,
        find_documents=knowledge.documents.known,
        precedence=knowledge.precedence,
        failure_text=failure_text,
        memories=history.recall,
        episodes=Episodes(turns, recall, parts.now_in(conversation)),
        learning=memories.learning,
        tools=ToolBox(tools, settings.tools, history.conversations.save_tool_calls),
        widener=Widener(neighbours, widen_tokens) if widen_tokens else None,
    )


def _refuse_unusable(settings: Settings) -> None:
    """Check what can be known before anything is opened. Raises StartRefusedError."""
    conversation = settings.conversation
    parts.check_schedule(conversation, settings.knowledge.sync_cron)
    load_question_filters(conversation.question_filters, conversation.blocked_words)
    load_answer_filters(conversation.answer_filters, conversation.blocked_words)
    refuse_unusable(settings.store.data_dir)


def _check_named_model(settings: Settings, llms: LLMService) -> None:
    """Raises StartRefusedError."""
    try:
        llms.get(settings.conversation.summary_model_id)
    except UnknownModelError as error:
        raise StartRefusedError(f"SUMMARY_MODEL_ID is refused: {error}") from error


async def _settle_folders(settings: Settings, embedding: EmbeddingService, open_folder: OpenFolder) -> None:
    """Before the embedded store is opened, switch to a copy prepared with this embedding's vectors, if any.
    Raises StartRefusedError, also when a restore into it was interrupted."""
    names = settings.store
    if not names.qdrant_url:
        parts.folders_of(names).refuse_interrupted()
        await switch_if_prepared(names.embedded, names, embedding, open_folder)
