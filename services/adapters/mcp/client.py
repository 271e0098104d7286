"""The official SDK's client, reduced to what a `ToolServer` needs: list and call. Imported with the first
connection, in a thread, since that takes most of a second."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import structlog
from mcp import types
from mcp.client import Client
from mcp.client._transport import Transport
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from core.tools import MAX_RESULT_CHARS, ToolFailedError, ToolReply
from services.adapters.mcp.server import ListedTool, LostServerError, ServerAddress
from services.adapters.mcp.transports import Floodgate, OnLost, OnStderr, open_address, open_program

log = structlog.get_logger()

MAX_PAGES = 20
MAX_TOOLS = 200
LOST = frozenset({types.CONNECTION_CLOSED})


@asynccontextmanager
async def open_client(
    where: ServerAddress, on_changed: Callable[[], None], on_lost: OnLost, on_stderr: OnStderr
) -> AsyncGenerator[ToolClient, None]:
    """A connected client, protocol negotiated. Raises what the SDK raises, in groups: see `reason_of`."""

    gate = Floodgate()

    async def on_message(message: types.ServerNotification | Exception) -> None:
        if not gate.passes_message():
            log.warning("tool_server_cut_off", reason="too many messages")
            on_lost()
        elif isinstance(message, types.ToolListChangedNotification):
            on_changed()

    transport: Transport = (
        open_address(where.url, where.headers, where.timeout_s)
        if where.url
        else open_program(where.command, where.environment, on_lost, on_stderr)
    )
    # legacy: over standard streams, a probe would hang with programs that do not know it
    mode = "auto" if where.url else "legacy"
    async with Client(transport, mode=mode, message_handler=on_message, cache=None) as client:
        yield ToolClient(client)


class ToolClient:
    def __init__(self, client: Client) -> None:
        self._session = client.session

    async def tools(self) -> list[ListedTool]:
        """Raises what `open_client` raises."""
        listed: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            listed += [_listed_tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or len(listed) >= MAX_TOOLS:
                break
        return listed[:MAX_TOOLS]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """Bypasses the SDK's validation of results: the schema is the server's, and it could take forever.

        Raises ToolFailedError, LostServerError.
        """
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        try:
            result = await self._session.send_request(
                types.CallToolRequest(params=params), types.CallToolResult
            )
        except MCPError as error:
            if error.error.code in LOST:
                raise LostServerError("The tool's server ended the connection.") from error
            raise ToolFailedError(
                f"The tool's server refused the call: {error.error.message[:300]}"
            ) from error
        except ValidationError as error:
            raise ToolFailedError("The tool's server sent something that is not a result.") from error
        except (httpx2.HTTPError, OSError, RuntimeError) as error:
            raise LostServerError("The tool's server cannot be reached.") from error
        return ToolReply(_text(result), result.is_error)


def _listed_tool(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    read_only = hints is not None and hints.read_only_hint is True
    return ListedTool(tool.name, tool.description or tool.title or "", tool.input_schema, read_only)


def _text(result: types.CallToolResult) -> str:
    """A result's text; for anything else its kind and size. Stops once there is enough to be cut."""
    parts: list[str] = []
    room = MAX_RESULT_CHARS + 1
    for block in result.content:
        text = _block_text(block)
        parts.append(text)
        room -= len(text)
        if room < 0:
            break
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.ResourceLink():
            return f"[a link to {block.name}: {block.uri}]"
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes: not shown]"
        case _:
            return f"[{block.type}: not shown]"


def reason_of(error: BaseException) -> str:
    """Why there is no connection, in words that contain nothing that was sent."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case TimeoutError() | httpx2.TimeoutException():
            return "It does not answer in time."
        case FileNotFoundError():
            return "Its program is not installed."
        case PermissionError():
            return "Its program cannot be run: its file needs the permission."
        case httpx2.HTTPStatusError():
            return f"It refused the request (HTTP {error.response.status_code}): are its headers right?"
        case httpx2.HTTPError() | OSError():
            return f"It cannot be reached ({type(error).__name__})."
        case MCPError():
            return f"It ended the connection or refused it (code {error.error.code})."
        case _:
            return f"It does not speak the protocol ({type(error).__name__})."
