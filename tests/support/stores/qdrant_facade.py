"""The few requests of Qdrant's REST interface that a lease makes, on loopback, for several processes.

Answered by the reference engine in memory, one after the other, as a server answers those to one point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic import TypeAdapter
from qdrant_client import AsyncQdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.waiting import until

_POINTS = TypeAdapter(models.PointsList)
_PAYLOAD = TypeAdapter(models.SetPayload)
_IDS = TypeAdapter(models.PointRequest)
_DONE = {"operation_id": 0, "status": "completed"}


class Facade:
    """`requests` counts. While `away`, every request is answered with 503."""

    def __init__(self, engine: AsyncQdrantClient) -> None:
        self._engine = engine
        self._one = asyncio.Lock()
        self.requests = 0
        self.away = False
        self.url = ""

    def app(self) -> Starlette:
        path = "/collections/{name}/points"
        return Starlette(
            routes=[
                Route(path, self._answered(self._upsert), methods=["PUT"]),
                Route(path, self._answered(self._retrieve), methods=["POST"]),
                Route(f"{path}/payload", self._answered(self._set_payload), methods=["POST"]),
            ]
        )

    def _answered(
        self, act: Callable[[str, bytes], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[JSONResponse]]:
        async def endpoint(request: Request) -> JSONResponse:
            self.requests += 1
            if self.away:
                return JSONResponse({"status": {"error": "away"}, "time": 0.0}, 503)
            body = await request.body()
            async with self._one:
                result = await act(request.path_params["name"], body)
            return JSONResponse({"result": result, "status": "ok", "time": 0.0})

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
        hits = await self._engine.retrieve(name, _IDS.validate_json(body).ids)
        return [record.model_dump(mode="json", exclude_none=True) for record in hits]


@asynccontextmanager
async def open_facade() -> AsyncIterator[Facade]:
    """With an empty operations collection."""
    engine = AsyncQdrantClient(":memory:")
    await engine.create_collection("operations", vectors_config={})
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
