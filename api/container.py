"""The one place that knows the adapters: opens every part in order, closes it in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms.llm import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from api.admin.reembedding import StoreReembedding
from api.wiring.assembly import Opened, make_history, put_together
from api.wiring.models import api_key_for, check_summary_model, configured_llms
from api.wiring.parts import SHARED_OWNER
from api.wiring.parts import Container as Container
from api.wiring.start import (
    Readiness,
    load_sample_once,
    opened_task,
    sample_is_pending,
    settle_folders,
    warm_up,
)
from config.settings import (
    ConversationSettings,
    LLMSettings,
    ModelSettings,
    Settings,
    StoreSettings,
)
from core.errors import StartRefusedError
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.prompt.messages import Layout
from core.prompt.tokens import estimate_prompt_tokens
from services.adapters.e5.tokens import WINDOW_TOKENS, count_tokens
from services.adapters.readers.documents import parse_document
from services.adapters.schedule.cleanup import open_schedule
from services.adapters.schedule.crontab import slots_of, zone_named
from services.adapters.schedule.sync import check_sync_times, open_sync_schedule, sync_times
from services.knowledge.base import KnowledgeBase
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.parsing.process import ParserProcess
from services.llm_service import LLMService, ModelEntry
from services.models.calls import GuardedCalls
from services.models.embedding import EmbeddingService
from services.models.extractive import MODEL_NAME, ExtractiveLLM
from services.models.windows import answer_reserve, window_of
from services.operations.backup.snapshots import Snapshots
from services.operations.schedule.lease import LeaseStore
from services.retrieval.query_forms import QueryBuilder
from services.store.dialect import VectorStore

if TYPE_CHECKING:
    from aiohttp import ClientSession

log = structlog.get_logger()

EMBEDDED_FOLDER = "store"  # below DATA_DIR
WrapEmbedding = Callable[[BaseEmbedding, str], BaseEmbedding]
"""The model and its name as the store records it → the model to use in its place."""


@asynccontextmanager
async def open_container(settings: Settings, wrap: WrapEmbedding | None = None) -> AsyncIterator[Container]:
    """`wrap` stands between the configured embedding model and all that use it, such as a cache.

    Raises StartRefusedError (one plain line) when the configuration or the data does not allow a start.
    """
    check_schedule(settings.conversation, settings.knowledge.sync_cron)
    async with AsyncExitStack() as stack:
        embedding = await stack.enter_async_context(open_embedding(settings.models, wrap))
        await settle_folders(settings.store, EMBEDDED_FOLDER, embedding, partial(open_store, settings.store))
        store = await stack.enter_async_context(open_store(settings.store))
        snapshots = await stack.enter_async_context(open_snapshots(settings.store))
        readiness = Readiness(store, settings.store, embedding)
        llms = LLMService(await _open_llms(settings, stack))
        check_summary_model(settings, llms)
        history = make_history(settings, store, embedding, llms)
        stack.push_async_callback(history.close)
        knowledge = KnowledgeBase(store, embedding, _parser(settings), settings.store)
        stack.push_async_callback(knowledge.close)
        clean_up = partial(history.conversations.cleanup_expired_conversations, unattended=True)
        times = settings.conversation
        leases = LeaseStore(store, settings.store.operations_collection)
        scheduled = open_schedule(clean_up, times.cleanup_cron, times.timezone, leases)
        schedule = await stack.enter_async_context(scheduled)
        reranker = _open_reranker(settings, embedding.name, stack)
        reembedding = StoreReembedding(
            settings.store, settings.models, store, history.activity, open_embedding,
            partial(open_store, settings.store), settings.store.data_dir / EMBEDDED_FOLDER,
        )  # fmt: skip
        stack.push_async_callback(reembedding.close)
        container = put_together(Opened(
            settings, store, embedding, reranker, llms, history, knowledge, schedule, readiness,
            reembedding, snapshots,
        ))  # fmt: skip
        await readiness.prepare(*container.recoveries)
        later: list[Coroutine[Any, Any, object]] = [
            readiness.keep_trying(), warm_up(QueryBuilder(embedding)), history.conversations.index_missing()
        ]  # fmt: skip
        if sample_is_pending(settings):
            later.append(load_sample_once(knowledge, settings.store.data_dir, SHARED_OWNER))
        for work in later:
            await stack.enter_async_context(opened_task(work))
        stack.push_async_callback(container.close_background)
        if settings.knowledge.sources:
            following = sync_times(settings.knowledge, times.timezone)
            await stack.enter_async_context(open_sync_schedule(container.sync.run, following))
        stack.push_async_callback(container.sessions.erasure.close)
        stack.push_async_callback(container.running.close, 0)
        yield container


@asynccontextmanager
async def open_store(settings: StoreSettings, folder: str = EMBEDDED_FOLDER) -> AsyncIterator[VectorStore]:
    """The configured Qdrant server, or the embedded store in this folder of DATA_DIR. Nothing is checked.

    Raises StoreLockedError when another process has the embedded store, StartRefusedError.
    """
    if settings.qdrant_url:
        from services.adapters.qdrant.server import open_qdrant_server

        async with open_qdrant_server(settings) as server:
            yield server
    else:
        from services.adapters.edge.client import open_edge_client

        async with open_edge_client(settings.data_dir / folder) as edge:
            yield edge


@asynccontextmanager
async def open_snapshots(settings: StoreSettings) -> AsyncIterator[Snapshots | None]:
    """None for the embedded store, which needs none."""
    if not settings.qdrant_url:
        yield None
        return
    from services.adapters.qdrant import snapshots as qdrant_snapshots

    async with qdrant_snapshots.open_snapshots(settings) as snapshots:
        yield snapshots


def check_schedule(settings: ConversationSettings, sync_cron: str = "") -> None:
    """Raises StartRefusedError when CLEANUP_CRON, SYNC_CRON or TIMEZONE cannot be understood."""
    slots_of(settings.cleanup_cron, zone_named(settings.timezone))
    check_sync_times(sync_cron, settings.timezone)


def _parser(settings: Settings) -> ParserProcess:
    splitter = StructureSplitter(chunk_tokens=settings.knowledge.chunk_tokens)
    if settings.models.embedding == "bundled":
        splitter = splitter.model_copy(update={"count_tokens": count_tokens, "window_tokens": WINDOW_TOKENS})
    return ParserProcess(parse_document, splitter)


@asynccontextmanager
async def open_embedding(
    models: ModelSettings, wrap: WrapEmbedding | None = None
) -> AsyncIterator[EmbeddingService]:
    """Loading a model may take seconds and is done in a thread. Raises StartRefusedError."""
    async with AsyncExitStack() as stack:
        model, name, dimension = await asyncio.to_thread(_embedding_model, models, stack)
        service = EmbeddingService(wrap(model, name) if wrap else model, name, dimension)
        stack.push_async_callback(service.close)
        if not dimension:
            service.dimension = len((await service.embed_passages(["dimension"]))[0])
        yield service


def _embedding_model(models: ModelSettings, stack: AsyncExitStack) -> tuple[BaseEmbedding, str, int]:
    """The model, its name as the store records it, and its dimension (0: ask the model)."""
    kind, _, target = models.embedding.partition(":")
    if kind == "bundled":
        from services.adapters.e5.embedding import DIMENSION, NAME, BundledEmbedding

        return BundledEmbedding(models.embedding_threads), NAME, DIMENSION
    if kind == "sentence-transformers":
        from services.adapters.models.sentence_transformers_embedding import SentenceTransformersEmbedding

        return SentenceTransformersEmbedding(target), target.rstrip("/").rpartition("/")[2], 0
    if kind == "openai":
        from services.adapters.models.openai_embedding import OpenAIEmbedding

        # a key goes to no host but the one it was set for
        same_host = models.embedding_base_url in (None, models.openai_base_url)
        key = models.embedding_api_key or (models.openai_api_key if same_host else None)
        base_url = models.embedding_base_url or models.openai_base_url
        embedding = OpenAIEmbedding(models.openai_embedding, base_url, key, **models.embedding_options)
        stack.callback(embedding.close)
        return embedding, models.openai_embedding, 0
    from services.adapters.models.llama_index_loader import load_class

    return load_class(models.embedding, BaseEmbedding, models.embedding_options), target, 0  # type: ignore[type-abstract]


def _open_reranker(
    settings: Settings, embedding_name: str, stack: AsyncExitStack
) -> BaseNodePostprocessor | None:
    models, timeout_s = settings.models, settings.retrieval.rerank_timeout_s
    kind, _, target = models.reranker.partition(":")
    if kind == "none":
        return None
    if kind == "calibrated":
        from services.retrieval.calibrated import CalibratedReranker

        return CalibratedReranker(embedding_name)
    if kind == "cross-encoder":
        from services.adapters.models.cross_encoder import CrossEncoderReranker

        cross_encoder = CrossEncoderReranker(target)
        stack.push_async_callback(cross_encoder.aclose)
        return cross_encoder
    if kind == "http":
        from services.adapters.models.http_reranker import HttpReranker

        if not models.reranker_url:
            raise StartRefusedError("RERANKER=http needs RERANKER_URL, the address of a /rerank endpoint.")
        reranker = HttpReranker(models.reranker_url, target, models.reranker_api_key, timeout_s)
        stack.push_async_callback(reranker.aclose)
        return reranker
    from services.adapters.models.llama_index_loader import load_class

    return load_class(models.reranker, BaseNodePostprocessor, models.reranker_options)  # type: ignore[type-abstract]


async def _open_llms(settings: Settings, stack: AsyncExitStack) -> Mapping[str, ModelEntry]:
    models = settings.models
    timeouts = StreamTimeouts(models.token_timeout_s, models.token_timeout_s, models.answer_timeout_s)
    chat = settings.conversation
    layout = Layout.AUTO if chat.use_chat_mode else Layout.FLAT
    share = chat.answer_share
    entries: dict[str, ModelEntry] = {}
    opening = _OpenLLMs(models, share, stack)
    for model_id, entry in configured_llms(models).items():
        llm = await opening.open(model_id, entry)
        window = window_of(entry, llm, model_id)
        entries[model_id] = ModelEntry(
            model_id=model_id,
            provider=entry.provider.partition(":")[0],
            label=Path(entry.model).stem if entry.provider == "gguf" else entry.model or entry.provider,
            wrapper=LLMStreamWrapper(llm, timeouts),
            layout=Layout(entry.layout) if entry.layout else layout,
            context_window=window,
            max_tokens=answer_reserve(entry.max_tokens, window, share),
            generative=entry.provider != MODEL_NAME,
            begins_thinking=entry.begins_thinking,
            calls=GuardedCalls(model_id),
            count_tokens=await _open_counter(entry),
        )
    return entries


async def _open_counter(entry: LLMSettings) -> Callable[[str], int]:
    if entry.provider == MODEL_NAME and not entry.tokenizer:
        return estimate_prompt_tokens
    from services.adapters.llms.token_counters import open_token_counter

    return await asyncio.to_thread(open_token_counter, entry.tokenizer, entry.model, entry.provider)


class _OpenLLMs:
    """Opens the configured models one after the other; those on HTTP share one pool of connections."""

    def __init__(self, models: ModelSettings, answer_share: float, stack: AsyncExitStack) -> None:
        self._models = models
        self._answer_share = answer_share
        self._stack = stack
        self._client: ClientSession | None = None

    async def open(self, model_id: str, entry: LLMSettings) -> LLM:
        if entry.provider == MODEL_NAME:
            return ExtractiveLLM()
        if entry.provider in ("openai", "anthropic"):
            return await self._open_http(model_id, entry)
        if entry.provider == "gguf":
            from services.adapters.llms.gguf.llm import open_gguf_llm

            gguf = await open_gguf_llm(entry, self._answer_share, model_id)
            self._stack.push_async_callback(gguf.aclose)
            return gguf
        from services.adapters.models.llama_index_loader import load_class

        options: dict[str, Any] = {"model": entry.model} if entry.model else {}
        return load_class(entry.provider, LLM, {**options, **entry.options})  # type: ignore[type-abstract]

    async def _open_http(self, model_id: str, entry: LLMSettings) -> LLM:
        from services.adapters.http.transport import open_model_client
        from services.adapters.llms.anthropic import make_anthropic_llm
        from services.adapters.llms.openai import make_openai_llm

        key = api_key_for(model_id, entry, self._models)
        if self._client is None:
            # our own time-outs end an answer; the connection's is only a net below them
            patience_s = self._models.token_timeout_s + 5
            self._client = await self._stack.enter_async_context(open_model_client(patience_s))
        make = make_openai_llm if entry.provider == "openai" else make_anthropic_llm
        return make(entry, key, self._client, self._answer_share)
