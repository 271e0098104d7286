"""The snapshot part of a Qdrant server's HTTP API, on a loopback port."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

KEY = "the-secret-key"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class SnapshotServer:
    """`collections` are contents by name; `snapshots` those created and not deleted."""

    url: str = ""
    collections: dict[str, bytes] = field(default_factory=dict)
    snapshots: dict[tuple[str, str], bytes] = field(default_factory=dict)
    away: list[int] = field(default_factory=list)
    """Shards that are on other nodes."""
    breaks_after: int | None = None
    """The connection of a download breaks after so many bytes."""
    uploaded: list[str] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        base = "/collections/{name}"
        return [
            web.get(f"{base}/cluster", self._cluster),
            web.post(f"{base}/snapshots", self._create),
            web.get(f"{base}/snapshots/{{snapshot}}", self._download),
            web.delete(f"{base}/snapshots/{{snapshot}}", self._delete),
            web.post(f"{base}/snapshots/upload", self._upload),
        ]

    async def _cluster(self, request: web.Request) -> web.Response:
        away = [{"shard_id": shard, "peer_id": 2, "state": "Active"} for shard in self.away]
        return _result({"local_shards": [{"shard_id": 0}], "remote_shards": away})

    async def _create(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.collections:
            return web.json_response({"status": {"error": "Not found"}}, status=404)
        self.snapshots[name, "one.snapshot"] = self.collections[name]
        return _result({"name": "one.snapshot", "size": len(self.collections[name])})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        content = self.snapshots[request.match_info["name"], request.match_info["snapshot"]]
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: self.breaks_after])
        if self.breaks_after is not None and request.transport is not None:
            request.transport.abort()
        return response

    async def _delete(self, request: web.Request) -> web.Response:
        del self.snapshots[request.match_info["name"], request.match_info["snapshot"]]
        return _result(True)

    async def _upload(self, request: web.Request) -> web.Response:
        assert request.query["priority"] == "snapshot"
        content = _only_part(await request.read(), request.headers["Content-Type"])
        if hashlib.sha256(content).hexdigest() != request.query["checksum"]:
            return web.json_response({"status": {"error": "checksum mismatch"}}, status=400)
        self.collections[request.match_info["name"]] = content
        self.uploaded.append(request.match_info["name"])
        return _result(True)


def _only_part(body: bytes, content_type: str) -> bytes:
    """aiohttp's own form parser emits a warning of its own."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    head, _, rest = body.partition(b"\r\n\r\n")
    assert b'name="snapshot"' in head
    return rest.removesuffix(b"\r\n--" + boundary + b"--\r\n")


def _result(result: object) -> web.Response:
    return web.json_response({"result": result, "status": "ok", "time": 0.0})


@web.middleware
async def _with_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.headers.get("api-key") != KEY:
        return web.Response(status=401, text="Must provide an API key")
    return await handler(request)


@asynccontextmanager
async def open_snapshot_server() -> AsyncIterator[SnapshotServer]:
    server = SnapshotServer()
    app = web.Application(middlewares=[_with_key], client_max_size=1 << 30)
    app.add_routes(server.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}"
    yield server
    await runner.cleanup()
