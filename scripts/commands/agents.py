"""Offer a running server's tools over standard input and output, to agents that start tools as programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scripts.commands.maintenance import EXIT_OK, Options, run
from scripts.commands.server import ServerClient, at_server, at_url

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp.server.lowlevel import Server as MCPServer

    from config.settings import Settings

ASK_TIMEOUT_S = 600


@click.command("mcp", help=__doc__)
@at_url
def mcp(**options: Any) -> int:
    """Run until standard input ends."""
    return run(_mcp, Options(**options))


async def _mcp(settings: Settings, options: Options) -> int:
    return await at_server(settings, options, _serve_standard_streams)


async def _serve_standard_streams(client: ServerClient) -> int:
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    from routes.wire.server import PublicSettings

    server = client.server
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    await client.send("GET", "/settings/public", PublicSettings)  # refuses a wrong key in one line
    async with (
        httpx2.AsyncClient(headers=headers, timeout=ASK_TIMEOUT_S) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as tools,
        stdio_server() as (incoming, outgoing),
    ):
        bridge = _bridge(tools)
        await bridge.run(incoming, outgoing, bridge.create_initialization_options())
    return EXIT_OK


def _bridge(client: Client) -> MCPServer[Any]:
    """Return an MCP server that forwards every request, and relays the progress of answers."""
    from mcp import types
    from mcp.server.lowlevel import Server as MCPServer

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return await client.list_tools()

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await client.call_tool(
            params.name, params.arguments, progress_callback=context.session.report_progress
        )

    async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
        return await client.list_resources(cursor=params.cursor if params else None)

    async def read_resource(
        context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await client.read_resource(str(params.uri))

    return MCPServer(
        "wenmai",
        version=client.server_info.version if client.server_info else "",
        instructions=client.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )
