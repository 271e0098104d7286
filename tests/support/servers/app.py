"""The real application over ASGI, with the real embedded store and small models from its settings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from api.container import Container
from config.settings import Settings, load_settings
from routes.app import create_app
from tests.support.waiting import until
from tests.support.wire.sse import Streamed, frames

HASHING = "llama_index:tests.support.models.hashing_embedding:HashingEmbedding"
SCRIPTED = "llama_index:tests.support.models.scripted_llm:ScriptedLLM"
CHAT = "/knowledge_chat_conversation"


def scripted(*script: str | float, record_as: str = "", **table: Any) -> dict[str, Any]:
    """Return a model table whose LLM plays this script."""
    return {"provider": SCRIPTED, "options": {"script": list(script), "record_as": record_as}, **table}


def make_settings(data_dir: Path, **sections: dict[str, Any]) -> Settings:
    """Settings with an embedded store in `data_dir`, hashing embedding, no sample, and no model calls except
    the turns' own; `sections` override them."""
    return load_settings(
        store={"data_dir": data_dir, **sections.get("store", {})},
        models={"embedding": HASHING, **sections.get("models", {})},
        knowledge={"load_sample": False, **sections.get("knowledge", {})},
        conversation={"memory_min_messages": 0, **sections.get("conversation", {})},
        **{name: values for name, values in sections.items() if name in ("server", "retrieval", "tools")},
    )


@dataclass(frozen=True)
class App:
    client: httpx.AsyncClient
    container: Container

    async def ask(self, question: str, **body: Any) -> Streamed:
        """Ask and read the stream to its end."""
        response = await self.client.post(CHAT, json={"question": question, **body})
        assert response.status_code == 200, response.text
        return Streamed(frames(response.text))

    async def add_text(self, name: str, text: str, **fields: str) -> str:
        """Add a document, wait until it is searchable, and return its id."""
        response = await self.client.post(
            "/documents", files={"file": (name, text.encode())}, data=fields or None
        )
        assert response.status_code in (200, 201), response.text
        body = response.json()
        if body["job_id"]:
            await self.container.knowledge.wait(body["job_id"], ["local"])
        return str(body["document"]["document_id"])


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            yield App(client, app.state.container)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """Serve the application on a loopback port, with its store open in this process; yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="error", lifespan="on"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:  # otherwise the loop polls a closed socket, and misses the next one with the same descriptor
            server.should_exit = True
            await task
