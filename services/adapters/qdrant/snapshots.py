"""A Qdrant server's snapshots over its HTTP API, as streams: a collection may be larger than the memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import aiohttp

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from services.operations.backup.making import Snapshots
from services.operations.backup.records import CHUNK_BYTES
from services.store.dialect import StoreRequestError

_MAKING_S = 3_600  # a large collection's snapshot is answered when it is written
_SERVER_FAULTS_FROM = 500
_RETRYABLE_STATUS = frozenset({401, 403, 408, 429})


class QdrantSnapshots:
    """Satisfies `services.backup_snapshots.Snapshots`."""

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
        """A node's snapshot has that node's shards only."""
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
        """The answer's `result`."""
        with _translated():
            async with self._http.request(method, self._url + path, params=params) as response:
                await _check(response)
                answer = json.loads(await response.read())
        return answer.get("result") if isinstance(answer, dict) else None


async def _check(response: aiohttp.ClientResponse) -> None:
    """The detail is for the log: it may name hosts."""
    if response.status < 300:
        return
    detail = (await response.content.read(2_000)).decode(errors="replace")
    if response.status >= _SERVER_FAULTS_FROM or response.status in _RETRYABLE_STATUS:
        error = StoreUnavailableError(f"the vector store answered with status {response.status}")
        error.add_note(detail)
        raise error
    raise StoreRequestError(f"the vector store refused the request with {response.status}: {detail}")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        unavailable = StoreUnavailableError("the vector store does not answer")
        unavailable.add_note(repr(error))
        raise unavailable from error
    except json.JSONDecodeError as error:
        raise StoreRequestError("the vector store's answer is not understood") from error


@asynccontextmanager
async def open_snapshots(settings: StoreSettings) -> AsyncIterator[Snapshots]:
    """Of the server at `qdrant_url`, which need not answer yet."""
    assert settings.qdrant_url is not None
    key = settings.qdrant_api_key
    headers = {"api-key": key.get_secret_value()} if key is not None else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.qdrant_timeout_s, sock_read=_MAKING_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        yield QdrantSnapshots(http, settings.qdrant_url)
