"""Open each part as the settings require: the only module that knows the adapters."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms.llm import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from pydantic import BaseModel, ValidationError

from api.messages import PromptLibrary
from config.deferred import import_foreign
from config.secrets import Mask
from config.settings import (
    EMBEDDED_FOLDER,
    ConversationSettings,
    ModelSettings,
    Settings,
    StoreSettings,
    ToolsSettings,
)
from config.sources import did_you_mean, in_plain_words
from config.tables import HTTP_PROVIDERS, LLMSettings
from core.dates import today
from core.errors import BadRequestError, StartRefusedError
from core.formats import recognises_text
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.operations.expiry import ExpiryReport
from core.prompt.budget import cached_count, estimate_prompt_tokens
from core.prompt.messages import Layout
from core.tools import ToolSource
from services.adapters.e5.tokens import WINDOW_TOKENS, count_tokens
from services.adapters.readers.decoding import decode
from services.adapters.readers.documents import parse_document
from services.adapters.schedule import open_schedule, open_sync_schedule, slots_of, sync_slots, zone_named
from services.conversation.images import FOLDER, ImageFiles, QuestionImages
from services.conversation.library import LibraryFolder
from services.conversation.turns import TurnStore
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.jobs.lanes import CpuHours
from services.knowledge.parsing.pieces import Work
from services.knowledge.parsing.process import ParserProcess
from services.llm_service import ListedModel, ModelEntry, WindowReply, answer_reserve, window_of
from services.models.calls import GuardedCalls
from services.models.embedding import EmbeddingService
from services.models.extractive import MODEL_NAME, ExtractiveLLM
from services.operations.backup.filling import RestoreFolders
from services.operations.backup.making import Snapshots
from services.operations.schedule.lease import LeaseStore, Pace
from services.operations.schedule.runner import CleanupSchedule
from services.retrieval.foreign_rerankers import AnyReranker
from services.store.dialect import VectorStore

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from services.adapters.llms.catalogue import Catalogue

REASON_CHARS = 200  # of a class's message about its options
T = TypeVar("T")
WrapEmbedding = Callable[[BaseEmbedding, str], BaseEmbedding]
"""Takes a model and its name as stored; returns the model to use in its place."""


# The store.


@asynccontextmanager
async def open_store(settings: StoreSettings, folder: str = EMBEDDED_FOLDER) -> AsyncIterator[VectorStore]:
    """Open the configured Qdrant server, or the embedded store in this folder of DATA_DIR, unchecked.

    Raises StoreLockedError when another process has the embedded store open, StartRefusedError.
    """
    if settings.qdrant_url:
        from services.adapters.qdrant import open_qdrant_server

        async with open_qdrant_server(settings) as server:
            yield server
    else:
        from services.adapters.edge.client import open_edge_client

        durable = settings.durability == "power"
        async with open_edge_client(settings.data_dir / folder, durable=durable) as edge:
            yield edge


@asynccontextmanager
async def open_snapshots(settings: StoreSettings) -> AsyncIterator[Snapshots | None]:
    """None for the embedded store, which needs none."""
    if not settings.qdrant_url:
        yield None
        return
    from services.adapters import qdrant

    async with qdrant.open_snapshots(settings) as snapshots:
        yield snapshots


def folders_of(settings: StoreSettings) -> RestoreFolders:
    return RestoreFolders(settings.embedded)


async def refuse_foreign(store: VectorStore, names: StoreSettings) -> None:
    """Refuse a store without our collections where none may be created. Raises StartRefusedError."""
    if not await store.collection_exists(names.conversation_collection):
        place = names.qdrant_url or names.embedded
        raise StartRefusedError(
            f"{place} has no collection {names.conversation_collection}: does it belong to another "
            "application?"
        )


# The embedding and the reranker.


@asynccontextmanager
async def open_embedding(
    models: ModelSettings, wrap: WrapEmbedding | None = None
) -> AsyncIterator[EmbeddingService]:
    """Load the model in a thread, which may take seconds. Raises StartRefusedError."""
    async with AsyncExitStack() as stack:
        model, name, dimension = await asyncio.to_thread(_embedding_model, models, stack)
        service = EmbeddingService(wrap(model, name) if wrap else model, name, dimension)
        stack.push_async_callback(service.close)
        if not dimension:
            service.dimension = len((await service.embed_passages(["dimension"]))[0])
        yield service


def _embedding_model(models: ModelSettings, stack: AsyncExitStack) -> tuple[BaseEmbedding, str, int]:
    """Return the model, its name as the store records it, and its dimension (0: ask the model)."""
    kind, _, target = models.embedding.partition(":")
    if kind == "bundled":
        from services.adapters.e5.embedding import DIMENSION, NAME, BundledEmbedding

        return BundledEmbedding(), NAME, DIMENSION
    if kind == "sentence-transformers":
        from services.adapters.models.sentence_transformers import SentenceTransformersEmbedding

        return SentenceTransformersEmbedding(target), target.rstrip("/").rpartition("/")[2], 0
    if kind == "openai":
        from services.adapters.models.endpoints import OpenAIEmbedding

        # a key is sent only to the host it was set for
        same_host = models.embedding_base_url in (None, models.openai_base_url)
        key = models.embedding_api_key or (models.openai_api_key if same_host else None)
        base_url = models.embedding_base_url or models.openai_base_url
        make = partial(OpenAIEmbedding, models.openai_embedding, base_url, key)
        embedding = construct("EMBEDDING=openai", make, models.embedding_options)
        stack.callback(embedding.close)
        return embedding, models.openai_embedding, 0
    return load_class(models.embedding, BaseEmbedding, models.embedding_options), target, 0  # type: ignore[type-abstract]


def open_reranker(settings: Settings, stack: AsyncExitStack) -> AnyReranker | None:
    """Return None when the built-in reranker judges, or none does."""
    models, timeout_s = settings.models, settings.retrieval.rerank_timeout_s
    kind, _, target = models.reranker.partition(":")
    if kind in ("calibrated", "none"):
        return None
    if kind == "cross-encoder":
        from services.adapters.models.sentence_transformers import CrossEncoderReranker

        cross_encoder = CrossEncoderReranker(target)
        stack.push_async_callback(cross_encoder.aclose)
        return cross_encoder
    if kind == "http":
        from services.adapters.models.endpoints import HttpReranker

        if not models.reranker_url:
            raise StartRefusedError("RERANKER=http needs RERANKER_URL, the address of a /rerank endpoint.")
        reranker = HttpReranker(models.reranker_url, target, models.reranker_api_key, timeout_s)
        stack.push_async_callback(reranker.aclose)
        return reranker
    return load_class(models.reranker, BaseNodePostprocessor, models.reranker_options)  # type: ignore[type-abstract]


def load_class(spec: str, base: type[T], options: Mapping[str, Any]) -> T:
    """Import and construct any LlamaIndex class named as `llama_index:package.module:Class`.

    Raises StartRefusedError naming what is missing or of the wrong kind.
    """
    _, module_name, class_name = spec.split(":")
    try:
        loaded = getattr(import_foreign(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise StartRefusedError(f"{spec!r} cannot be imported: {error}. Is its package installed?") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise StartRefusedError(f"{spec!r} is not a LlamaIndex {base.__name__}.")
    if unknown := _unknown_option(loaded, options):
        raise StartRefusedError(f"{spec!r} does not take the option {unknown}")
    return construct(repr(spec), loaded, options)


def _unknown_option(kind: type, options: Mapping[str, Any]) -> str:
    """Name an option that LlamaIndex would silently drop. For a class that passes on any keyword, only what
    looks like a typo counts."""
    makes, init = inspect.signature(kind).parameters, inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    own = init if kind.__init__ is not BaseModel.__init__ else {}  # type: ignore[misc]
    passes_on = any(each.kind is each.VAR_KEYWORD for each in (*makes.values(), *own.values()))
    known = {*makes, *getattr(kind, "model_fields", ())} - {"args", "kwargs"}
    for name in options:
        hint = did_you_mean(name, known)
        if name not in known and (hint or not passes_on):
            return f"{name}.{hint}"
    return ""


def construct(name: str, make: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Raises StartRefusedError, one line that contains no option's value."""
    try:
        return make(**options)
    except Exception as error:  # noqa: BLE001 - foreign classes, which repeat what they were passed
        refusal = _refused_options(name, options, error)
    raise StartRefusedError(refusal)  # not chained, for the same reason


def _refused_options(name: str, options: Mapping[str, Any], error: Exception) -> str:
    """Word a class's complaint about its options; pydantic's complaints name only the options."""
    if isinstance(error, ValidationError):
        each = error.errors(include_url=False, include_input=False, include_context=False)
        reason = "; ".join(f"{'.'.join(map(str, one['loc']))}: {in_plain_words(one['msg'])}" for one in each)
    else:
        reason = f"{type(error).__name__}: {error}"
    values = [str(value) for value in options.values() if isinstance(value, str)]
    reason = " ".join(Mask(values)(reason).split())[:REASON_CHARS]
    named = (
        f"does not take its options ({', '.join(options)})"
        if options
        else "cannot be created without options"
    )
    return f"{name} {named}: {reason}. Correct its table in the configuration."


# The language models.


def api_key_for(model_id: str, entry: LLMSettings, models: ModelSettings) -> str:
    """Return a model's key: a self-hosted server often needs none, a public API always does.

    A provider's key is sent only to the host it was set for.
    """
    secret, variable = entry.api_key, entry.api_key_env
    if entry.provider == "anthropic":
        variable = variable or (None if entry.base_url else "ANTHROPIC_API_KEY")
    elif secret is None and not variable and entry.base_url in (None, models.openai_base_url):
        secret = models.openai_api_key
    key = (secret.get_secret_value() if secret else os.environ.get(variable or "", "")).strip()
    if not key and (variable or not entry.base_url):
        needed = variable or "OPENAI_API_KEY"
        raise StartRefusedError(f"Model {model_id!r} needs a key: {needed} is not set.")
    if any(char.isspace() for char in key):
        raise StartRefusedError(f"Model {model_id!r}: its API key contains a space or a line break.")
    return key or "none"


async def _open_counter(entry: LLMSettings) -> Callable[[str], int]:
    if entry.provider == MODEL_NAME and not entry.tokenizer:
        return estimate_prompt_tokens
    from services.adapters.llms.token_counters import open_token_counter

    return await asyncio.to_thread(open_token_counter, entry.tokenizer, entry.model, entry.provider)


class LLMOpener:
    """Opens models one by one; those on HTTP share a connection pool. Its methods raise StartRefusedError."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._models, self._chat = settings.models, settings.conversation
        self._answer_share = settings.conversation.answer_share
        self._stack = stack
        self._client: ClientSession | None = None

    async def entry(self, model_id: str, table: LLMSettings) -> ModelEntry:
        models, share = self._models, self._answer_share
        timeouts = StreamTimeouts(models.token_timeout_s, models.answer_timeout_s)
        layout = Layout.AUTO if self._chat.use_chat_mode else Layout.FLAT
        llm = await self.open(model_id, table)
        window = window_of(table, llm, model_id)
        return ModelEntry(
            model_id=model_id,
            provider=table.provider.partition(":")[0],
            label=Path(table.model).stem if table.provider == "gguf" else table.model or table.provider,
            wrapper=LLMStreamWrapper(llm, timeouts),
            layout=Layout(table.layout) if table.layout else layout,
            context_window=window,
            max_tokens=answer_reserve(table.max_tokens, window, share),
            table_tokens=table.max_tokens,
            answer_share=share,
            ask_window=await self._asks_window(model_id, table),
            generative=table.provider != MODEL_NAME,
            begins_thinking=table.begins_thinking,
            vision=table.vision,
            tools_in_prompt=table.tools == "prompt",
            calls=GuardedCalls(model_id),
            count_tokens=cached_count(await _open_counter(table)),
        )

    async def open(self, model_id: str, entry: LLMSettings) -> LLM:
        if entry.provider == MODEL_NAME:
            return ExtractiveLLM()
        if entry.provider in HTTP_PROVIDERS:
            return await self._open_http(model_id, entry)
        if entry.provider == "gguf":
            from services.adapters.llms.gguf.llm import open_gguf_llm

            gguf = await open_gguf_llm(entry, self._answer_share, model_id)
            self._stack.push_async_callback(gguf.aclose)
            return gguf
        options: dict[str, Any] = {"model": entry.model} if entry.model else {}
        return load_class(entry.provider, LLM, {**options, **entry.options})  # type: ignore[type-abstract]

    async def _open_http(self, model_id: str, entry: LLMSettings) -> LLM:
        from services.adapters.llms.anthropic import AnthropicLLM
        from services.adapters.llms.openai import OpenAILLM

        key = api_key_for(model_id, entry, self._models)
        make = OpenAILLM if entry.provider == "openai" else AnthropicLLM
        return make(entry, key, await self._connections(), self._answer_share)

    async def _connections(self) -> ClientSession:
        if self._client is None:
            from services.adapters.http import open_model_client

            # our own time-outs end an answer; the connection's is only a safety net
            patience_s = self._models.token_timeout_s + 5
            self._client = await self._stack.enter_async_context(open_model_client(patience_s))
        return self._client

    async def _asks_window(
        self, model_id: str, entry: LLMSettings
    ) -> Callable[[], Awaitable[WindowReply]] | None:
        """OpenAI's own server does not report it."""
        host = urlsplit(entry.base_url or "").hostname or ""
        tells = entry.provider == "anthropic" or (entry.base_url and not host.endswith("api.openai.com"))
        if entry.provider not in HTTP_PROVIDERS or entry.context_window or not tells:
            return None
        catalogue = await self._catalogue(model_id, entry)
        return partial(catalogue.window, entry.model)

    async def listed(self, model_id: str, entry: LLMSettings) -> list[ListedModel]:
        """List what the model's server offers. Also raises LLMUnavailableError."""
        return await (await self._catalogue(model_id, entry)).models()

    async def _catalogue(self, model_id: str, entry: LLMSettings) -> Catalogue:
        from services.adapters.llms.catalogue import Catalogue

        key = api_key_for(model_id, entry, self._models)
        return Catalogue(await self._connections(), entry.provider, entry.base_url, key)


def open_tools(settings: ToolsSettings) -> AbstractAsyncContextManager[Sequence[ToolSource]]:
    """Tools are listed in the background. Raises StartRefusedError."""
    if not settings.tools:
        return nullcontext(())
    from services.adapters.mcp.server import open_servers

    return open_servers(settings.tools)


# Parsing, files, and schedules.


PARSING_S_PER_HOUR = 3_600  # per key, one core's worth: embedding the content takes longer


def make_parser(settings: Settings, cpu: CpuHours) -> ParserProcess:
    splitter = StructureSplitter(chunk_tokens=settings.knowledge.chunk_tokens)
    if settings.models.embedding == "bundled":
        splitter = splitter.model_copy(update={"count_tokens": count_tokens, "window_tokens": WINDOW_TOKENS})
    recognise: Work | None = None
    if recognises_text():
        from services.adapters.readers.scans import recognise
    return ParserProcess(parse_document, splitter, cpu=cpu, recognise=recognise)


def make_question_images(settings: Settings, turns: TurnStore) -> QuestionImages:
    from services.adapters.images import Redrawing

    return QuestionImages(ImageFiles(settings.store.data_dir / FOLDER), Redrawing(), turns)


def open_library(settings: StoreSettings) -> LibraryFolder:
    """Raises StartRefusedError when LIBRARY_DIR is not a folder."""
    _check_folder("LIBRARY_DIR", settings.library_dir)
    return LibraryFolder(settings.library, decode, named=settings.library_dir is not None)


def open_prompts(settings: ConversationSettings) -> PromptLibrary:
    """Raises StartRefusedError naming the broken file of PROMPTS_DIR."""
    _check_folder("PROMPTS_DIR", settings.prompts_dir)
    try:
        return PromptLibrary(settings.prompts_dir)
    except BadRequestError as error:
        raise StartRefusedError(f"PROMPTS_DIR is refused: {error}") from error


def _check_folder(name: str, folder: Path | None) -> None:
    if folder is not None and not folder.is_dir():
        raise StartRefusedError(f"{name} = {str(folder)!r} is refused: it is not a folder.")


def check_schedule(settings: ConversationSettings, sync_cron: str = "") -> None:
    """Raises StartRefusedError when CLEANUP_CRON, SYNC_CRON or TIMEZONE cannot be understood."""
    slots_of(settings.cleanup_cron, zone_named(settings.timezone))
    sync_slots(sync_cron, settings.timezone)


def today_in(settings: ConversationSettings) -> Callable[[], date]:
    """Return a function that gives today's date in TIMEZONE."""
    return partial(today, zone_named(settings.timezone))


def now_in(settings: ConversationSettings) -> Callable[[], datetime]:
    """Return a function that gives the current time in TIMEZONE."""
    return partial(datetime.now, zone_named(settings.timezone))


def scheduled_cleanup(
    clean_up: Callable[[], Awaitable[ExpiryReport]], settings: Settings, store: VectorStore
) -> AbstractAsyncContextManager[CleanupSchedule]:
    times = settings.conversation
    lease = LeaseStore(store, settings.store.operations_collection)
    pace = Pace(alone=settings.store.qdrant_url is None)
    return open_schedule(clean_up, times.cleanup_cron, times.timezone, lease, pace=pace)


def scheduled_sync(
    sync: Callable[[], Awaitable[object]], settings: Settings
) -> AbstractAsyncContextManager[None]:
    slots = sync_slots(settings.knowledge.sync_cron, settings.conversation.timezone)
    return open_sync_schedule(sync, slots, at_start=slots is not None)
