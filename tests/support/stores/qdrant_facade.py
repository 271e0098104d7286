"""The part of Qdrant's REST API that Wenmai uses, on loopback, for several processes.

The in-memory reference engine answers the requests one by one, as a server does for requests to the same
point.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import uvicorn
from pydantic import BaseModel, TypeAdapter
from qdrant_client import AsyncQdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.waiting import until

_POINTS = TypeAdapter(models.PointsList)
_PAYLOAD = TypeAdapter(models.SetPayload)
_IDS = TypeAdapter(models.PointRequest)
_SELECTED = TypeAdapter(models.PointsSelector)
_DONE = {"operation_id": 0, "status": "completed"}


class Facade:
    """`requests` counts the requests. While `away`, every request gets a 503."""

    def __init__(self, engine: AsyncQdrantClient) -> None:
        self._engine = engine
        self._one = asyncio.Lock()
        self.requests = 0
        self.away = False
        self.url = ""

    def app(self) -> Starlette:
        one = "/collections/{name}"
        path = f"{one}/points"
        acts: tuple[tuple[str, str, Callable[[str, bytes], Awaitable[Any]]], ...] = (
            ("PUT", path, self._upsert), ("POST", path, self._retrieve),
            ("POST", f"{path}/payload", self._set_payload),
            ("POST", f"{path}/payload/delete", self._delete_payload),
            ("POST", f"{path}/delete", self._delete), ("POST", f"{path}/scroll", self._scroll),
            ("POST", f"{path}/count", self._count), ("POST", f"{path}/query/batch", self._query),
            ("PUT", f"{path}/vectors", self._vectors), ("POST", f"{one}/facet", self._facet),
            ("GET", f"{one}/exists", self._exists), ("GET", one, self._get),
            ("PUT", one, self._create), ("PUT", f"{one}/index", self._index),
        )  # fmt: skip
        return Starlette(routes=[Route(at, self._answered(act), methods=[how]) for how, at, act in acts])

    def _answered(
        self, act: Callable[[str, bytes], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[JSONResponse]]:
        async def endpoint(request: Request) -> JSONResponse:
            self.requests += 1
            if self.away:
                return JSONResponse({"status": {"error": "away"}, "time": 0.0}, 503)
            body = await request.body()
            try:
                async with self._one:
                    result = await act(request.path_params["name"], body)
            except KeyError as error:  # in a server's words
                return JSONResponse({"status": {"error": f"No point with id {error}"}, "time": 0.0}, 404)
            except ValueError as error:  # a collection that another worker has just created
                return JSONResponse({"status": {"error": str(error)}, "time": 0.0}, 409)
            return JSONResponse({"result": _plain(result), "status": "ok", "time": 0.0})

        return endpoint

    async def _upsert(self, name: str, body: bytes) -> object:
        await self._engine.upsert(name, _POINTS.validate_json(body).points)
        return _DONE

    async def _set_payload(self, name: str, body: bytes) -> object:
        expected = _PAYLOAD.validate_json(body)
        target = expected.filter or models.PointIdsList(points=expected.points or [])
        await self._engine.set_payload(name, expected.payload, points=target)
        return _DONE

    async def _retrieve(self, name: str, body: bytes) -> object:
        asked = _IDS.validate_json(body)
        how = (_or(asked.with_payload, True), _or(asked.with_vector, False))
        return await self._engine.retrieve(name, asked.ids, *how)

    async def _delete_payload(self, name: str, body: bytes) -> object:
        asked = models.DeletePayload.model_validate_json(body)
        target = asked.filter or models.PointIdsList(points=asked.points or [])
        await self._engine.delete_payload(name, asked.keys, points=target)
        return _DONE

    async def _delete(self, name: str, body: bytes) -> object:
        await self._engine.delete(name, cast(Any, _SELECTED.validate_json(body)))
        return _DONE

    async def _scroll(self, name: str, body: bytes) -> object:
        asked = models.ScrollRequest.model_validate_json(body)
        points, following = await self._engine.scroll(
            name, asked.filter, asked.limit or 10, asked.order_by, asked.offset,
            _or(asked.with_payload, True), _or(asked.with_vector, False),
        )  # fmt: skip
        return {"points": points, "next_page_offset": following}

    async def _count(self, name: str, body: bytes) -> object:
        return await self._engine.count(name, models.CountRequest.model_validate_json(body).filter)

    async def _query(self, name: str, body: bytes) -> object:
        searches = models.QueryRequestBatch.model_validate_json(body).searches
        return await self._engine.query_batch_points(name, searches)

    async def _vectors(self, name: str, body: bytes) -> object:
        await self._engine.update_vectors(name, models.UpdateVectors.model_validate_json(body).points)
        return _DONE

    async def _facet(self, name: str, body: bytes) -> object:
        asked = models.FacetRequest.model_validate_json(body)
        return await self._engine.facet(name, asked.key, asked.filter, asked.limit or 10)

    async def _exists(self, name: str, body: bytes) -> object:
        return {"exists": await self._engine.collection_exists(name)}

    async def _get(self, name: str, body: bytes) -> object:
        return await self._engine.get_collection(name)

    async def _create(self, name: str, body: bytes) -> object:
        asked = models.CreateCollection.model_validate_json(body)
        vectors = cast(Any, asked.vectors or {})
        return await self._engine.create_collection(
            name, vectors, asked.sparse_vectors, metadata=asked.metadata
        )

    async def _index(self, name: str, body: bytes) -> object:
        return _DONE  # the reference engine scans all points


def _or(chosen: Any, otherwise: bool) -> Any:
    return otherwise if chosen is None else chosen


def _plain(result: object) -> object:
    """Convert the result to its JSON form."""

    def dumped(each: object) -> object:
        return each.model_dump(mode="json", exclude_none=True) if isinstance(each, BaseModel) else str(each)

    return json.loads(json.dumps(result, default=dumped))


@asynccontextmanager
async def open_facade(*collections: str) -> AsyncIterator[Facade]:
    """Serve a facade with these collections, empty and without vectors."""
    engine = AsyncQdrantClient(":memory:")
    for name in collections:
        await engine.create_collection(name, vectors_config={})
    facade = Facade(engine)
    config = uvicorn.Config(
        facade.app(), port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        facade.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield facade
    finally:
        server.should_exit = True
        await serving
        await engine.close()
