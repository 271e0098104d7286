"""The one place that knows the adapters: opens every part in order, closes it in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import structlog
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms.llm import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from api.configured_models import api_key_for, configured_llms
from api.knowledge_handler import KnowledgeHandler
from api.parts import Container as Container  # offered here too: this is where one is opened
from api.parts import Maintenance, Reembedding
from api.prompt import PromptBuilder
from api.running_turns import RunningTurns
from api.search_handler import SearchHandler
from api.sessions_handler import SessionsHandler
from api.start import Readiness, load_sample_once, opened_task, sample_is_pending, warm_up
from api.turn_run import Pipeline
from config.prompt_library import PromptLibrary
from config.settings import KnowledgeSettings, LLMSettings, ModelSettings, Settings, StoreSettings
from core.errors import StartRefusedError
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.messages import Layout
from services.adapters.document_readers import parse_document
from services.adapters.scheduler import open_schedule
from services.backfill import Backfill
from services.collections import ensure_collections
from services.conversation_manager import ConversationManager
from services.embedding import EmbeddingService
from services.extractive_llm import MODEL_NAME, ExtractiveLLM
from services.insert_block import InsertBlock
from services.knowledge.knowledge_base import KnowledgeBase
from services.knowledge.parsing import ParserProcess
from services.knowledge.splitter import StructureSplitter
from services.llm_service import LLMService, ModelEntry
from services.query_builder import QueryBuilder
from services.reembed_folders import COPY_SUFFIX
from services.reranking import RerankService
from services.retention import SessionRecords
from services.retriever import Retriever
from services.schedule import CleanupSchedule
from services.sessions import SessionStore
from services.store import VectorStore
from services.turn_store import TurnStore

log = structlog.get_logger()

SHARED_OWNER = "shared"  # documents that every owner may search, such as the sample knowledge base
EMBEDDED_FOLDER = "store"  # below DATA_DIR


@asynccontextmanager
async def open_container(settings: Settings) -> AsyncIterator[Container]:
    """Raises StartRefusedError (one plain line) when the configuration or the data does not allow a start."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_open_store(settings.store))
        embedding = await _open_embedding(settings.models, stack)
        readiness = Readiness(store, settings.store, embedding)
        llms = LLMService(await _open_llms(settings, stack))
        conversations = _conversations(settings, store, embedding)
        stack.push_async_callback(conversations.close)
        knowledge = await stack.enter_async_context(
            KnowledgeBase(store, embedding, _parser(settings.knowledge), settings.store)
        )
        clean_up, times = conversations.cleanup_expired_conversations, settings.conversation
        schedule = await stack.enter_async_context(
            open_schedule(clean_up, times.cleanup_cron, times.timezone)
        )
        reranker = _open_reranker(settings.models, embedding.name, stack)
        container = _assemble(
            settings, store, embedding, reranker, llms, conversations, knowledge, schedule, readiness
        )
        await readiness.prepare(container.recover_running, knowledge.recover)
        await stack.enter_async_context(opened_task(readiness.keep_trying()))
        await stack.enter_async_context(opened_task(warm_up(QueryBuilder(embedding))))
        await stack.enter_async_context(opened_task(conversations.index_missing()))
        if sample_is_pending(settings):
            sample = load_sample_once(knowledge, settings.store.data_dir, SHARED_OWNER)
            await stack.enter_async_context(opened_task(sample))
        stack.push_async_callback(container.running.close, 0)
        yield container


@asynccontextmanager
async def open_maintenance(settings: Settings) -> AsyncIterator[Maintenance]:
    """For work that touches no vector, on an earlier version's collection too.

    Raises StoreLockedError when a server has the embedded store.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_open_store(settings.store))
        embedding = await _open_embedding(settings.models, stack)
        await ensure_collections(
            store,
            settings.store,
            embedding_name=embedding.name,
            dimension=embedding.dimension,
            accept_unnamed=True,
        )
        conversations = _conversations(settings, store, embedding)
        stack.push_async_callback(conversations.close)
        yield Maintenance(conversations, _backfill(settings, store, conversations))


@asynccontextmanager
async def open_reembedding(settings: Settings) -> AsyncIterator[Reembedding]:
    """The store as it is, nothing made or checked. Raises StoreLockedError when a server has it open."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(_open_store(settings.store))
        embedding = await _open_embedding(settings.models, stack)
        open_target = partial(_open_store, settings.store, EMBEDDED_FOLDER + COPY_SUFFIX)
        yield Reembedding(source, embedding, open_target)


def _assemble(
    settings: Settings,
    store: VectorStore,
    embedding: EmbeddingService,
    reranker: BaseNodePostprocessor | None,
    llms: LLMService,
    conversations: ConversationManager,
    knowledge: KnowledgeBase,
    schedule: CleanupSchedule,
    readiness: Readiness,
) -> Container:
    sessions = SessionStore(store, settings.store.session_collection)
    running = RunningTurns(settings.server.max_streams)
    library = PromptLibrary()
    queries = QueryBuilder(embedding)
    pipeline = Pipeline(
        conversations=conversations,
        queries=queries,
        retriever=Retriever(store, settings.store.knowledge_collection, settings.retrieval),
        reranking=RerankService(reranker, settings.retrieval, embedding.name),
        insert_block=InsertBlock(library.text("insert_block"), settings.retrieval),
        prompts=PromptBuilder(library),
        threshold=settings.retrieval.rerank_score_threshold,
        shared_owner=SHARED_OWNER,
        is_reading=knowledge.is_reading,
    )
    return Container(
        settings=settings,
        chat=KnowledgeHandler(pipeline, sessions, llms, running, settings.server, settings.conversation),
        sessions=SessionsHandler(sessions, conversations.turns, running),
        search=SearchHandler(pipeline),
        knowledge=knowledge,
        conversations=conversations,
        backfill=_backfill(settings, store, conversations),
        schedule=schedule,
        llms=llms,
        embedding=embedding,
        running=running,
        store=store,
        readiness=readiness,
    )


def _conversations(
    settings: Settings, store: VectorStore, embedding: EmbeddingService
) -> ConversationManager:
    turns = TurnStore(store, settings.store.conversation_collection)
    records = SessionRecords(store, settings.store.session_collection)
    return ConversationManager(turns, embedding, settings.conversation, records)


def _backfill(settings: Settings, store: VectorStore, conversations: ConversationManager) -> Backfill:
    names = settings.store
    return Backfill(conversations.turns, store, names.conversation_collection, names.session_collection)


@asynccontextmanager
async def _open_store(settings: StoreSettings, folder: str = EMBEDDED_FOLDER) -> AsyncIterator[VectorStore]:
    if settings.qdrant_url:
        from services.adapters.qdrant_server import open_qdrant_server

        async with open_qdrant_server(settings) as server:
            yield server
    else:
        from services.adapters.edge_client import open_edge_client

        async with open_edge_client(settings.data_dir / folder) as edge:
            yield edge


def _parser(settings: KnowledgeSettings) -> ParserProcess:
    splitter = StructureSplitter(
        chunk_tokens=settings.chunk_tokens, overlap_tokens=settings.chunk_overlap_tokens
    )
    return ParserProcess(parse_document, splitter)


async def _open_embedding(models: ModelSettings, stack: AsyncExitStack) -> EmbeddingService:
    model, name, dimension = _embedding_model(models, stack)
    service = EmbeddingService(model, name, dimension)
    stack.push_async_callback(service.close)
    if not dimension:
        service.dimension = len((await service.embed_passages(["dimension"]))[0])
    return service


def _embedding_model(models: ModelSettings, stack: AsyncExitStack) -> tuple[BaseEmbedding, str, int]:
    """The model, its name as the store records it, and its dimension (0: ask the model)."""
    kind, _, target = models.embedding.partition(":")
    if kind == "bundled":
        from services.adapters.bundled_embedding import DIMENSION, NAME, BundledEmbedding

        return BundledEmbedding(), NAME, DIMENSION
    if kind == "sentence-transformers":
        from services.adapters.sentence_transformers_embedding import SentenceTransformersEmbedding

        return SentenceTransformersEmbedding(target), target.rstrip("/").rpartition("/")[2], 0
    if kind == "openai":
        from services.adapters.openai_embedding import OpenAIEmbedding

        # a key goes to no host but the one it was set for
        same_host = models.embedding_base_url in (None, models.openai_base_url)
        key = models.embedding_api_key or (models.openai_api_key if same_host else None)
        base_url = models.embedding_base_url or models.openai_base_url
        embedding = OpenAIEmbedding(models.embedding_model, base_url, key, **models.embedding_options)
        stack.callback(embedding.close)
        return embedding, models.embedding_model, 0
    from services.adapters.llama_index_loader import load_class

    return load_class(models.embedding, BaseEmbedding, models.embedding_options), target, 0  # type: ignore[type-abstract]


def _open_reranker(
    models: ModelSettings, embedding_name: str, stack: AsyncExitStack
) -> BaseNodePostprocessor | None:
    kind, _, target = models.reranker.partition(":")
    if kind == "none":
        return None
    if kind == "calibrated":
        from services.calibrated_reranker import CalibratedReranker

        return CalibratedReranker(embedding_name)
    if kind == "cross-encoder":
        from services.adapters.cross_encoder import CrossEncoderReranker

        return CrossEncoderReranker(target)
    if kind == "http":
        from services.adapters.http_reranker import HttpReranker

        if not models.reranker_url:
            raise StartRefusedError("RERANKER=http needs RERANKER_URL, the address of a /rerank endpoint.")
        reranker = HttpReranker(models.reranker_url, models.reranker_model, models.reranker_api_key)
        stack.push_async_callback(reranker.aclose)
        return reranker
    from services.adapters.llama_index_loader import load_class

    return load_class(models.reranker, BaseNodePostprocessor, models.reranker_options)  # type: ignore[type-abstract]


async def _open_llms(settings: Settings, stack: AsyncExitStack) -> Mapping[str, ModelEntry]:
    models = settings.models
    timeouts = StreamTimeouts(models.first_token_timeout_s, models.token_timeout_s, models.answer_timeout_s)
    layout = Layout(settings.conversation.message_layout)
    if not settings.conversation.use_chat_mode:
        layout = Layout.FLAT
    entries: dict[str, ModelEntry] = {}
    for model_id, entry in configured_llms(models).items():
        llm = await _open_llm(model_id, entry, models, stack)
        entries[model_id] = ModelEntry(
            model_id=model_id,
            provider=entry.provider.partition(":")[0],
            label=entry.model or entry.provider,
            wrapper=LLMStreamWrapper(llm, timeouts),
            layout=Layout(entry.layout) if entry.layout else layout,
            context_window=entry.context_window or 32_768,
            max_tokens=entry.max_tokens,
            generative=entry.provider != MODEL_NAME,
        )
    return entries


async def _open_llm(model_id: str, entry: LLMSettings, models: ModelSettings, stack: AsyncExitStack) -> LLM:
    if entry.provider == MODEL_NAME:
        return ExtractiveLLM()
    if entry.provider == "openai":
        from services.adapters.openai_llm import make_http_client, make_openai_llm

        # our own time-outs end an answer; the connection's is only a net below them
        patience_s = max(models.first_token_timeout_s, models.token_timeout_s) + 5
        client = await stack.enter_async_context(make_http_client(patience_s))
        return make_openai_llm(entry, api_key_for(model_id, entry, models), client, patience_s)
    from services.adapters.llama_index_loader import load_class

    options: dict[str, Any] = {"model": entry.model} if entry.model else {}
    return load_class(entry.provider, LLM, {**options, **entry.options})  # type: ignore[type-abstract]
