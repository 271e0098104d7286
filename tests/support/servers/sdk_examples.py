"""Two tool servers from the official SDK's own examples: `simple-tool`, which fetches a website, on the
low-level server, and `quickstart`, which adds two numbers.

`python -m tests.support.servers.sdk_examples simple-tool|quickstart|FILE.py [http]`: over its standard
streams, or over HTTP with its address as the first line. A file is run unchanged and its `mcp` is the server,
as in the SDK's README (`readme_server`). The code is that of examples/servers/simple-tool and
examples/snippets/servers/mcpserver_quickstart.py, version 2.3.0.
"""

from __future__ import annotations

import importlib.metadata
import json
import runpy
import sys

import anyio
import httpx2
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server

from tests.support.servers.tool_http import serve_tools

quickstart = MCPServer("Demo")


def readme_server() -> str:
    """The first Python block of the installed SDK's README: "A server in 15 lines"."""
    readme = str(importlib.metadata.metadata("mcp").json["description"])
    return readme.partition("```python\n")[2].partition("```")[0]


@quickstart.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@quickstart.tool()
def get_current_weather(location: str, unit: str = "fahrenheit") -> str:
    """Get the current weather in a given location"""  # as in OpenAI's own example of function calling
    known = {"tokyo": ("Tokyo", "10"), "san francisco": ("San Francisco", "72"), "paris": ("Paris", "22")}
    for name, (city, temperature) in known.items():
        if name in location.lower():
            return json.dumps({"location": city, "temperature": temperature, "unit": unit})
    return json.dumps({"location": location, "temperature": "unknown"})


@quickstart.resource("greeting://{name}")
def get_greeting(name: str) -> str:
    """Get a personalized greeting"""
    return f"Hello, {name}!"


async def fetch_website(url: str) -> list[types.ContentBlock]:
    headers = {"User-Agent": "MCP Test Server (github.com/modelcontextprotocol/python-sdk)"}
    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, follow_redirects=True) as client:
        response = await client.get(url)
        response.raise_for_status()
        return [types.TextContent(type="text", text=response.text)]


async def handle_list_tools(
    ctx: ServerRequestContext, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    url = {"type": "string", "description": "URL to fetch"}
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name="fetch",
                title="Website Fetcher",
                description="Fetches a website and returns its content",
                input_schema={"type": "object", "required": ["url"], "properties": {"url": url}},
            )
        ]
    )


async def handle_call_tool(
    ctx: ServerRequestContext, params: types.CallToolRequestParams
) -> types.CallToolResult:
    if params.name != "fetch":
        raise ValueError(f"Unknown tool: {params.name}")
    arguments = params.arguments or {}
    if "url" not in arguments:
        raise ValueError("Missing required argument 'url'")
    return types.CallToolResult(content=await fetch_website(arguments["url"]))


simple_tool = Server("mcp-website-fetcher", on_list_tools=handle_list_tools, on_call_tool=handle_call_tool)


async def _over_streams() -> None:
    async with stdio_server() as streams:
        await simple_tool.run(streams[0], streams[1], simple_tool.create_initialization_options())


def main() -> None:
    name, over_http = sys.argv[1], sys.argv[2:] == ["http"]
    by_decorators = runpy.run_path(name)["mcp"] if name.endswith(".py") else quickstart
    if name == "simple-tool" and over_http:
        serve_tools(simple_tool.streamable_http_app())
    elif name == "simple-tool":
        anyio.run(_over_streams)
    elif over_http:
        serve_tools(by_decorators.streamable_http_app(json_response=name == "quickstart"))
    else:
        by_decorators.run()


if __name__ == "__main__":
    main()
