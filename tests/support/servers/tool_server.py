"""A tool server on the official SDK: over standard streams, or on a loopback port in the test's event loop.

`python -m tests.support.servers.tool_server` speaks over the standard streams.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from tests.support.waiting import until


def make_server() -> MCPServer:
    server = MCPServer("tests")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def order(item: str) -> str:
        """Orders an item."""
        return f"ordered {item}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def large() -> str:
        """More than a message may have."""
        return "x" * 20_000_000

    return server


@asynccontextmanager
async def serving_tools() -> AsyncIterator[str]:
    """Serve the tools; yields the server's address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = make_server().streamable_http_app()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await task


if __name__ == "__main__":
    make_server().run()
