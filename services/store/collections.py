"""The collections: their definitions, and the check that stored vectors match the configured embedding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from qdrant_client.http.models import models

from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.store.dialect import VectorStore

SCHEMA_VERSION = 1
SPARSE = "sparse"
REEMBED_COMMAND = "wenmai reembed"

_TENANT = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
_KEYWORD = models.PayloadSchemaType.KEYWORD
# Used for ranges and ordering, never looked up by value.
_ORDERED = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
_BOOL = models.PayloadSchemaType.BOOL
_SHORT_TEXTS = 50_000  # 0.07 µs per text of some ten words; a passage of two hundred takes over twice that

FieldSchema = models.PayloadSchemaType | models.KeywordIndexParams | models.IntegerIndexParams
Indexes = dict[str, FieldSchema]


@dataclass(frozen=True)
class CollectionSpec:
    """Every collection also has the sparse vector; `dense` names the vectors of the embedding's dimension.

    `words_scanned`: up to this many points that pass a filter are each compared with the words of a search.
    Above that (None: above the engine's 5,000), the sparse index lists every owner's points that contain one
    of the words, and each is checked against the filter.
    """

    name: str
    dense: tuple[str, ...] = ()
    indexes: Indexes = field(default_factory=dict)
    words_scanned: int | None = None

    @property
    def words(self) -> models.SparseVectorParams:
        index = models.SparseIndexParams(full_scan_threshold=self.words_scanned)
        return models.SparseVectorParams(
            modifier=models.Modifier.IDF, index=index if self.words_scanned else None
        )


class StoredAs(BaseModel):
    """How a collection describes itself in its metadata."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    embedding: str
    dimension: int
    schema_version: int


def collection_specs(settings: StoreSettings) -> tuple[CollectionSpec, ...]:
    """Indexes exist for fields that are ordered by or counted by value (the engine requires one there), and
    for fields that narrow a search.

    No others: each is written with every point. Without one, a condition reads the payload of every point it
    is checked for, 40 µs each: a second and more of a long session, in which the embedded engine answers
    nobody. Of an object (`rewritten_question`, `prompt`) the index only knows whether it is present.
    """
    turns: Indexes = {"owner": _TENANT, "session_id": _TENANT, "parent_turn_id": _KEYWORD,
                      "status": _KEYWORD, "created_us": _ORDERED, "marks": _KEYWORD,
                      "summary_start": _KEYWORD, "rewritten_question": _KEYWORD,
                      "prompt": _KEYWORD}  # fmt: skip
    chunks: Indexes = {"owner": _TENANT, "document_id": _KEYWORD, "tags": _KEYWORD, "ready": _BOOL,
                       "position": _ORDERED, "source": _KEYWORD, "day": _ORDERED,
                       "chinese": _BOOL}  # fmt: skip
    documents: Indexes = {"owner": _TENANT, "content_hash": _KEYWORD, "external_id": _KEYWORD,
                          "created_us": _ORDERED, "source": _KEYWORD, "tags": _KEYWORD}  # fmt: skip
    sessions: Indexes = {"owner": _TENANT, "updated_us": _ORDERED, "title_turn_id": _KEYWORD}
    memories: Indexes = {"owner": _TENANT, "session_id": _KEYWORD, "created_us": _ORDERED,
                         "type": _KEYWORD, "slot": _KEYWORD, "turn_ids": _KEYWORD}  # fmt: skip
    operations: Indexes = {"began_us": _ORDERED}
    return (
        CollectionSpec(settings.conversation_collection, ("turn", "question"), turns),
        CollectionSpec(settings.knowledge_collection, ("dense",), chunks),
        CollectionSpec(settings.document_collection, (), documents),
        CollectionSpec(settings.session_collection, (), sessions),
        CollectionSpec(settings.memory_collection, ("dense",), memories, _SHORT_TEXTS),
        CollectionSpec(settings.operations_collection, (), operations),
    )


async def ensure_collections(
    store: VectorStore,
    settings: StoreSettings,
    *,
    embedding_name: str,
    dimension: int,
    accept_unnamed: bool = False,
) -> None:
    """Create what is missing. Idempotent; several workers may call it at once.

    With `accept_unnamed` a collection that does not name its embedding, as earlier versions wrote it, is
    left as it is, which suffices for work that touches no vectors. Raises StartRefusedError when a
    collection holds vectors of another embedding: they are never dropped.
    """
    expected = StoredAs(embedding=embedding_name, dimension=dimension, schema_version=SCHEMA_VERSION)
    specs = collection_specs(settings)
    if accept_unnamed:
        specs = tuple([spec for spec in specs if not await _is_unnamed(store, spec)])
    for spec in specs:
        if await store.collection_exists(spec.name):
            _check(spec, await store.get_collection(spec.name), expected)
    for spec in specs:
        await _ensure(store, spec, settings, expected)


async def _is_unnamed(store: VectorStore, spec: CollectionSpec) -> bool:
    if not await store.collection_exists(spec.name):
        return False
    return read_stored_as((await store.get_collection(spec.name)).config.metadata) is None


async def fits(store: VectorStore, spec: CollectionSpec, *, embedding_name: str, dimension: int) -> bool:
    """Whether the stored vectors are from this embedding. Raises StartRefusedError for an unknown schema."""
    info = await store.get_collection(spec.name)
    stored = read_stored_as(info.config.metadata)
    if stored is None:
        return False
    expected = StoredAs(embedding=embedding_name, dimension=dimension, schema_version=SCHEMA_VERSION)
    _check_schema(spec, stored)
    return _same_vectors(spec, info, stored, expected)


async def described_embedding(store: VectorStore, spec: CollectionSpec) -> str:
    """The name and dimension of the stored vectors' embedding, to show to a person."""
    info = await store.get_collection(spec.name)
    stored = read_stored_as(info.config.metadata)
    name = stored.embedding if stored else "an embedding it does not name"
    return f"{name} ({_described(spec, _sizes(info.config.params.vectors))})"


async def _ensure(
    store: VectorStore, spec: CollectionSpec, settings: StoreSettings, expected: StoredAs
) -> None:
    if not await store.collection_exists(spec.name):
        await _create(store, spec, settings, expected)
    info = await store.get_collection(spec.name)
    _check(spec, info, expected)  # another worker with a different configuration may have been faster
    for field_name, schema in spec.indexes.items():
        if field_name not in info.payload_schema:
            await store.create_payload_index(spec.name, field_name, schema)


async def _create(
    store: VectorStore, spec: CollectionSpec, settings: StoreSettings, stored_as: StoredAs
) -> None:
    vector = models.VectorParams(size=stored_as.dimension, distance=models.Distance.COSINE)
    try:
        await store.create_collection(
            spec.name,
            vectors_config=dict.fromkeys(spec.dense, vector),
            sparse_vectors_config={SPARSE: spec.words},
            replication_factor=settings.replication_factor,
            write_consistency_factor=settings.confirming_replicas,
            metadata=stored_as.model_dump(),
        )
    except ValueError:
        if not await store.collection_exists(spec.name):
            raise  # the reason is not that another worker created it first


def _check(spec: CollectionSpec, info: models.CollectionInfo, expected: StoredAs) -> None:
    stored = _stored_as(spec, info.config.metadata)
    _check_schema(spec, stored)
    if not _same_vectors(spec, info, stored, expected):
        sizes = _sizes(info.config.params.vectors)
        raise StartRefusedError(
            f"collection {spec.name!r} was embedded with {stored.embedding} ({_described(spec, sizes)}) and "
            f"the configured embedding is {expected.embedding} ({expected.dimension} dimensions); set "
            f"EMBEDDING back, or re-embed everything with `{REEMBED_COMMAND}`"
        )


def _check_schema(spec: CollectionSpec, stored: StoredAs) -> None:
    if stored.schema_version != SCHEMA_VERSION:
        raise StartRefusedError(
            f"collection {spec.name!r} has schema {stored.schema_version} and this version of Wenmai knows "
            f"schema {SCHEMA_VERSION}; use the version that wrote it, or choose another collection"
        )


def _same_vectors(
    spec: CollectionSpec, info: models.CollectionInfo, stored: StoredAs, expected: StoredAs
) -> bool:
    sizes = _sizes(info.config.params.vectors)
    right_sizes = all(sizes.get(name) == expected.dimension for name in spec.dense)
    return not spec.dense or (stored == expected and right_sizes)


def _stored_as(spec: CollectionSpec, metadata: dict[str, Any] | None) -> StoredAs:
    stored = read_stored_as(metadata)
    if stored is None:
        raise StartRefusedError(
            f"collection {spec.name!r} does not say which embedding its vectors are from; if an earlier "
            f"version wrote it, re-embed everything with `{REEMBED_COMMAND}`, "
            f"else choose another collection"
        )
    return stored


def read_stored_as(metadata: dict[str, Any] | None) -> StoredAs | None:
    """None when the metadata does not say which embedding the vectors are from."""
    try:
        return StoredAs.model_validate(metadata or {})
    except ValidationError:
        return None


def _described(spec: CollectionSpec, sizes: dict[str, int]) -> str:
    dimensions = sorted({sizes[name] for name in spec.dense if name in sizes})
    missing = [name for name in spec.dense if name not in sizes]
    described = " and ".join(map(str, dimensions)) + " dimensions" if dimensions else ""
    return ", ".join(part for part in (described, *(f"no vector {name!r}" for name in missing)) if part)


def _sizes(vectors: object) -> dict[str, int]:
    if not isinstance(vectors, dict):
        return {}
    return {name: params.size for name, params in vectors.items()}
