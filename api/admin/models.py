"""Models added, changed and listed at run time. They are stored beside those of wenmai.toml and never replace
them; of a key only its environment variable's name is stored. Also checks whether all configured models
answer, and how fast."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import structlog
from pydantic import ValidationError

from api.failures import FailureTexts
from config.settings import ModelSettings
from config.sources import in_plain_words
from config.tables import HTTP_PROVIDERS, LLMSettings
from core.errors import (
    BadRequestError,
    ConflictError,
    EmbeddingUnavailableError,
    StartRefusedError,
    UnknownModelError,
)  # fmt: skip
from services.llm_service import DEFAULT_MODEL_ID, ListedModel, LLMService, ModelEntry
from services.models.embedding import EmbeddingService
from services.operations.doctor.models import QUESTION, Checked, check, check_llm, check_reranker
from services.retrieval.foreign_rerankers import AnyReranker
from services.store.dialect import Filter, Point, VectorStore
from services.store.points import by_ids, equals, scroll_all

log = structlog.get_logger()

RECORD = "model"
_IDS = uuid.UUID("0d6e7b0e-4c58-4a53-8d2a-6a0c9a4c2f11")
_OWN_KEYS = ("QDRANT_API_KEY", "EMBEDDING_API_KEY", "RERANKER_API_KEY")

OpenModel = Callable[[str, LLMSettings], Awaitable[ModelEntry]]
ListModels = Callable[[str, LLMSettings], Awaitable[list[ListedModel]]]
Table = Mapping[str, Any]  # the fields set in a model's table


class ModelsHandler:
    """`tables` come from wenmai.toml and the environment, `stored` from the store. `open_model` and
    `list_models` raise StartRefusedError for an unusable table or key."""

    def __init__(
        self,
        store: VectorStore,
        collection: str,
        llms: LLMService,
        settings: ModelSettings,
        tables: Mapping[str, LLMSettings],
        open_model: OpenModel,
        list_models: ListModels,
    ) -> None:
        self._store, self._collection = store, collection
        self._llms, self._settings, self._tables = llms, settings, tables
        self._open, self._list = open_model, list_models
        self._configured = {entry.model_id: entry for entry in llms.entries()}
        self.stored: dict[str, LLMSettings] = {}

    async def load(self) -> None:
        """Load the stored models. Skip those that cannot be opened or whose id wenmai.toml now uses."""
        these = Filter(must=[equals("record", RECORD)])
        async for record in scroll_all(self._store, self._collection, these):
            stored = record.payload or {}
            model_id = str(stored.get("model_id", ""))
            try:
                self._check_free(model_id)
                await self._load_one(model_id, self._checked(stored.get("table") or {}))
            except (BadRequestError, ConflictError) as error:
                log.warning("stored_model_left_out", model_id=model_id, reason=str(error))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the stored models' tables by model id."""
        return {model_id: _explicit_fields(table) for model_id, table in self.stored.items()}

    async def put(self, model_id: str, table: Table) -> None:
        """Add or change a model, effective from the next question.

        Raises BadRequestError, ConflictError for a model of wenmai.toml, StoreUnavailableError.
        """
        self._check_free(model_id)
        settings = self._checked(table)
        entry = await self._opened(model_id, settings)
        payload = {"record": RECORD, "model_id": model_id, "table": _explicit_fields(settings)}
        await self._store.upsert(self._collection, [Point(id=_point(model_id), vector={}, payload=payload)])
        self._register(entry, settings)
        log.info("model_stored", model_id=model_id, provider=settings.provider, model=settings.model)

    async def remove(self, model_id: str) -> None:
        """Raises UnknownModelError, ConflictError for a model of wenmai.toml, StoreUnavailableError."""
        self._check_free(model_id)
        if model_id not in self.stored:
            raise UnknownModelError("model_id: no such model was added here.")
        await self._store.delete(self._collection, by_ids([_point(model_id)]))
        del self.stored[model_id]
        self._llms.put(model_id, self._configured.get(model_id))
        log.info("model_removed", model_id=model_id)

    async def available(self, model_id: str, table: Table) -> list[ListedModel]:
        """List the models offered by the server of a known model, or by that of `table`.

        Raises UnknownModelError, BadRequestError, LLMUnavailableError.
        """
        known = self.stored.get(model_id) or self._tables.get(model_id)
        if model_id and known is None:
            raise UnknownModelError("model_id: no such table, neither in wenmai.toml nor here.")
        settings = known or self._checked({"model": "any", **table})
        if settings.provider not in HTTP_PROVIDERS:
            raise BadRequestError(f"provider: {settings.provider} has no list of models.")
        try:
            return await self._list(model_id or "new", settings)
        except StartRefusedError as error:
            raise BadRequestError(str(error)) from error

    def _check_free(self, model_id: str) -> None:
        from_environment = self._settings.openai_base_url or self._settings.openai_api_key
        if model_id in self._settings.llms or (model_id == DEFAULT_MODEL_ID and from_environment):
            raise ConflictError(f"model_id: {model_id!r} is configured in wenmai.toml or the environment.")

    def _checked(self, table: Table) -> LLMSettings:
        try:
            settings = LLMSettings(**table)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise BadRequestError(f"{where}: {in_plain_words(first['msg'])}") from None
        if settings.provider not in HTTP_PROVIDERS:
            raise BadRequestError(
                f"provider: {' or '.join(HTTP_PROVIDERS)}; configure others in wenmai.toml."
            )
        if "@" in urlsplit(settings.base_url or "").netloc:
            raise BadRequestError(
                "base_url: must not contain a user name or password; api_key_env names the key."
            )
        self._check_key(settings)
        return settings

    def _check_key(self, settings: LLMSettings) -> None:
        """Refuse to send a key to any server but the one it is meant for, as far as that is known."""
        variable = settings.api_key_env
        if variable is None:
            return
        if not variable.endswith("_API_KEY") or variable in _OWN_KEYS:
            raise BadRequestError(
                "api_key_env: must be the name of an environment variable that ends in _API_KEY."
            )
        homes = {each.base_url for each in self._tables.values() if each.api_key_env == variable}
        if variable == "OPENAI_API_KEY":
            homes |= {None, self._settings.openai_base_url}
        if variable == "ANTHROPIC_API_KEY":
            homes.add(None)
        if homes and settings.base_url not in homes:
            raise BadRequestError(f"api_key_env: {variable} belongs to another address.")
        if not os.environ.get(variable):
            raise BadRequestError(f"api_key_env: {variable} is not set in the server's environment.")

    async def _load_one(self, model_id: str, settings: LLMSettings) -> None:
        self._register(await self._opened(model_id, settings), settings)

    async def _opened(self, model_id: str, settings: LLMSettings) -> ModelEntry:
        try:
            return await self._open(model_id, settings)
        except StartRefusedError as error:
            raise BadRequestError(str(error)) from error

    def _register(self, entry: ModelEntry, settings: LLMSettings) -> None:
        self.stored[entry.model_id] = settings
        self._llms.put(entry.model_id, entry)


def _explicit_fields(settings: LLMSettings) -> dict[str, Any]:
    return settings.model_dump(exclude_defaults=True)


def _point(model_id: str) -> str:
    return str(uuid.uuid5(_IDS, model_id))


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """`text` words the failures."""

    llms: LLMService
    embedding: EmbeddingService
    reranker: AnyReranker | None
    text: FailureTexts

    async def run(self, model_id: str = "") -> list[Checked]:
        """Check every model in parallel, or one language model alone, each within a minute; the built-in
        answerer and reranker only compute and are skipped. Raises UnknownModelError."""
        if model_id:
            return [await check_llm(self.llms.get(model_id))]
        embed = check("embedding", self.embedding.embed_queries([QUESTION]), EmbeddingUnavailableError)
        asked = [check_llm(entry) for entry in self.llms.entries() if entry.generative]
        asked.append(embed)
        if self.reranker is not None:
            asked.append(check_reranker(self.reranker))
        return list(await asyncio.gather(*asked))
