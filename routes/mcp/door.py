"""`/mcp`: Streamable HTTP. The caller is identified, and Host and Origin checked, as on every other route."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from api.container import Container
from routes.dependencies import ContainerDep, Owner

router = APIRouter()


class AgentDoor:
    """Starts with the first request; `close` ends what is open."""

    def __init__(self, container: Container, version: str) -> None:
        self._container = container
        self._version = version
        self._begun: asyncio.Task[None] | None = None
        self._sessions: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()

    async def sessions(self) -> Any:
        """Return the SDK's session manager. One task both opens and closes its task group."""
        if self._begun is None:
            self._begun = asyncio.create_task(self._run(), name="mcp")
        return await asyncio.shield(self._sessions)

    async def close(self) -> None:
        self._closing.set()
        if self._begun is not None:
            await self._begun

    async def _run(self) -> None:
        try:
            # in a thread, so that other requests are answered meanwhile
            server = await asyncio.to_thread(importlib.import_module, "routes.mcp.server")
            async with server.open_sessions(self._container, self._version) as sessions:
                self._sessions.set_result(sessions)
                await self._closing.wait()
        except Exception as error:
            if self._sessions.done():
                raise
            self._sessions.set_exception(error)


def open_door(app: FastAPI, container: Container) -> AgentDoor:
    app.state.agents = AgentDoor(container, app.version)
    return app.state.agents  # type: ignore[no-any-return]


@router.post("/mcp", include_in_schema=False)  # a GET's stream could carry nothing: there are no sessions
async def mcp(request: Request, container: ContainerDep, owner: Owner) -> Response:
    """Handle one request of an agent."""
    request.scope.setdefault("state", {})["mcp_owner"] = owner
    return _Handled(await request.app.state.agents.sessions())


class _Handled(Response):
    """A response by the SDK, which reads the body and writes the response itself."""

    def __init__(self, sessions: Any) -> None:
        super().__init__()
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.handle_request(scope, receive, send)
