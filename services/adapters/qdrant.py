"""A Qdrant server or cluster: AsyncQdrantClient with its exceptions translated to ours, and snapshots."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import httpx
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from services.operations.backup.making import Snapshots
from services.operations.backup.records import CHUNK_BYTES
from services.store.dialect import StoreRequestError, UnknownPointError, VectorStore

_UNKNOWN_POINT = "No point with id"
_SERVER_FAULTS_FROM = 500
_RETRYABLE_STATUS = frozenset({401, 403, 408, 429})


class TranslatedClient:
    """Every method of the client, with exceptions translated. Points are checked before they are sent: if one
    of a batch does not fit, a server still writes those before it."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self._sizes: dict[str, dict[str, int | None]] = {}

    async def upsert(
        self, collection_name: str, points: Sequence[models.PointStruct], **more: Any
    ) -> models.UpdateResult:
        await self._check(collection_name, points)
        with translated_errors():
            return await self._client.upsert(collection_name, points, **more)

    async def update_vectors(
        self, collection_name: str, points: Sequence[models.PointVectors], **more: Any
    ) -> models.UpdateResult:
        await self._check(collection_name, points)
        with translated_errors():
            return await self._client.update_vectors(collection_name, points, **more)

    async def _check(
        self, collection: str, points: Sequence[models.PointStruct] | Sequence[models.PointVectors]
    ) -> None:
        vectors = [
            each for point in points if isinstance(point.vector, dict) for each in point.vector.items()
        ]
        if not vectors:
            return
        if collection not in self._sizes:
            self._sizes[collection] = await self._sizes_of(collection)
        for name, vector in vectors:
            _check_vector(self._sizes[collection], name, vector)

    async def _sizes_of(self, collection: str) -> dict[str, int | None]:
        """The dimensions of its vectors by name; None for sparse ones."""
        with translated_errors():
            params = (await self._client.get_collection(collection)).config.params
        dense = params.vectors if isinstance(params.vectors, dict) else {}
        sizes: dict[str, int | None] = {name: each.size for name, each in dense.items()}
        return sizes | dict.fromkeys(params.sparse_vectors or {})

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            with translated_errors():
                return await method(*args, **kwargs)

        return call


def _check_vector(sizes: Mapping[str, int | None], name: str, vector: Any) -> None:
    sparse = isinstance(vector, models.SparseVector)
    if name not in sizes or sparse != (sizes[name] is None):
        raise StoreRequestError(f"Not existing vector name error: {name}")
    values = vector.values if sparse else vector
    expected = len(vector.indices) if sparse else sizes[name]
    if len(values) != expected:
        raise StoreRequestError(f"Vector dimension error: {name} expected dim: {expected}, got {len(values)}")
    if not all(map(math.isfinite, values)):
        raise StoreRequestError(f"Vector error: {name} has a number that is not finite")


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except UnexpectedResponse as error:
        status = error.status_code or _SERVER_FAULTS_FROM
        raise _refusal(status, error.content.decode(errors="replace")) from error
    except ResponseHandlingException as error:
        raise _from_transport(error) from error
    except (httpx.HTTPError, QdrantException, OSError) as error:
        raise _unavailable("the vector store does not answer", repr(error)) from error


def _refusal(status: int, text: str) -> StoreUnavailableError | StoreRequestError:
    """A rejected key is for the operator to fix, so it counts as unavailable, not as a mistake of ours."""
    if status >= _SERVER_FAULTS_FROM or status in _RETRYABLE_STATUS:
        return _unavailable(f"the vector store answered with status {status}", text)
    if _UNKNOWN_POINT in text:
        return UnknownPointError(text)
    return StoreRequestError(f"the vector store refused the request with {status}: {text}")


def _from_transport(error: ResponseHandlingException) -> StoreUnavailableError | StoreRequestError:
    if isinstance(error.source, ValidationError):
        return StoreRequestError(f"the vector store's answer is not understood: {error.source}")
    return _unavailable("the vector store does not answer", repr(error.source))


def _unavailable(sentence: str, detail: str) -> StoreUnavailableError:
    """The detail is only for the log, as it may name hosts."""
    error = StoreUnavailableError(sentence)
    error.add_note(detail)
    return error


@asynccontextmanager
async def open_qdrant_server(settings: StoreSettings) -> AsyncIterator[VectorStore]:
    """Connect to the server at `qdrant_url`. It need not be up yet: requests fail until it is."""
    key = settings.qdrant_api_key
    client = AsyncQdrantClient(
        url=settings.qdrant_url,
        api_key=None if key is None else key.get_secret_value(),
        timeout=math.ceil(settings.qdrant_timeout_s),
        check_compatibility=False,
    )
    try:
        yield cast(VectorStore, TranslatedClient(client))
    finally:
        await client.close()


# Snapshots over the HTTP API, streamed: a collection may be larger than memory.

_MAKING_S = 3_600  # the server replies only once a large collection's snapshot is written


class QdrantSnapshots:
    """Satisfies `services.operations.backup.making.Snapshots`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url.rstrip("/")

    async def create(self, collection: str) -> str:
        await self._check_whole(collection)
        result = await self._json("POST", f"{self._path(collection)}/snapshots", wait="true")
        name = result.get("name") if isinstance(result, dict) else None
        if not isinstance(name, str) or not name:
            raise StoreRequestError("the vector store's answer is not understood: a snapshot without a name")
        return name

    async def _check_whole(self, collection: str) -> None:
        """Refuse a collection with shards on other nodes: a node's snapshot has only its own shards."""
        result = await self._json("GET", f"{self._path(collection)}/cluster")
        cluster: dict[str, Any] = result if isinstance(result, dict) else {}
        here = {shard.get("shard_id") for shard in cluster.get("local_shards") or []}
        away = {shard.get("shard_id") for shard in cluster.get("remote_shards") or []} - here
        if away:
            raise StoreRequestError(
                f"collection {collection!r} has {len(away)} shards on other nodes, which a snapshot of this "
                f"node would lack: use Qdrant's own backup of the cluster, or move the store with "
                f"`wenmai migrate`"
            )

    @asynccontextmanager
    async def download(self, collection: str, name: str) -> AsyncIterator[AsyncIterator[bytes]]:
        path = f"{self._path(collection)}/snapshots/{quote(name, safe='')}"
        with _translated():
            async with self._http.get(self._url + path) as response:
                await _check(response)
                yield response.content.iter_chunked(CHUNK_BYTES)

    async def delete(self, collection: str, name: str) -> None:
        await self._json("DELETE", f"{self._path(collection)}/snapshots/{quote(name, safe='')}", wait="true")

    async def upload(self, collection: str, content: AsyncIterator[bytes], sha256: str) -> None:
        form = aiohttp.FormData()
        form.add_field(
            "snapshot", content, filename=f"{collection}.snapshot", content_type="application/octet-stream"
        )
        params = {"priority": "snapshot", "wait": "true", "checksum": sha256}
        with _translated():
            path = f"{self._path(collection)}/snapshots/upload"
            async with self._http.post(self._url + path, params=params, data=form) as response:
                await _check(response)

    def _path(self, collection: str) -> str:
        return f"/collections/{quote(collection, safe='')}"

    async def _json(self, method: str, path: str, **params: str) -> object:
        """The `result` field of the server's reply."""
        with _translated():
            async with self._http.request(method, self._url + path, params=params) as response:
                await _check(response)
                answer = json.loads(await response.read())
        return answer.get("result") if isinstance(answer, dict) else None


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:
        text = (await response.content.read(2_000)).decode(errors="replace")
        raise _refusal(response.status, text)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _unavailable("the vector store does not answer", repr(error)) from error
    except json.JSONDecodeError as error:
        raise StoreRequestError("the vector store's answer is not understood") from error


@asynccontextmanager
async def open_snapshots(settings: StoreSettings) -> AsyncIterator[Snapshots]:
    """Snapshots of the server at `qdrant_url`, which need not be up yet."""
    assert settings.qdrant_url is not None
    key = settings.qdrant_api_key
    headers = {"api-key": key.get_secret_value()} if key is not None else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.qdrant_timeout_s, sock_read=_MAKING_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        yield QdrantSnapshots(http, settings.qdrant_url)
