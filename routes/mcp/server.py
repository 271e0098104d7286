"""The protocol around the tools, with the official SDK. Imported by the first request: it loads slowly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any
from uuid import UUID

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from api.container import Container
from core.errors import NotFoundError, WenmaiError
from core.knowledge import Chunk, DocumentFilter, DocumentStatus
from routes.dependencies import readable
from routes.errors import describe
from routes.mcp.tools import MAX_CHUNKS, TOOLS, Tool, ready_document

OWNER = "mcp_owner"
"""The caller's key in the scope's state."""
SCHEME = "wenmai://documents/"
MAX_RESOURCES = 100
READY = DocumentFilter(status=DocumentStatus.READY)
Context = ServerRequestContext[Any, Any]


@asynccontextmanager
async def open_sessions(container: Container, version: str) -> AsyncIterator[StreamableHTTPSessionManager]:
    """Stateless: every request is independent, so that any worker can answer it. Host, Origin and key are
    checked before it gets here."""
    sessions = StreamableHTTPSessionManager(_server(container, version), stateless=True)
    async with sessions.run():
        yield sessions


def _server(container: Container, version: str) -> Server[Any]:
    door = _Door(container)
    return Server(
        "wenmai",
        version=version,
        instructions="Answers from the documents of this Wenmai server, with citations and a stored history.",
        on_list_tools=door.list_tools,
        on_call_tool=door.call_tool,
        on_list_resources=door.list_resources,
        on_read_resource=door.read_resource,
    )


class _Door:
    def __init__(self, container: Container) -> None:
        self._container = container
        self._tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Errors that a person could fix are returned as results, which the agent reads."""
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"There is no tool {params.name!r}.")

        async def progress(length: int, piece: str) -> None:
            await context.session.report_progress(length, None, piece)

        try:
            sent = tool.takes.model_validate(params.arguments or {})
            result = await tool.run(self._container, _owner(context), sent, progress)
        except ValidationError as error:
            return _refusal(describe(error)[1])
        except WenmaiError as error:
            return _refusal(str(error))
        body = result.model_dump(mode="json", exclude_unset=True)
        text = types.TextContent(type="text", text=json.dumps(body, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=body)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The caller's readable documents, newest first."""
        cursor = params.cursor if params else None
        try:
            page = await self._container.knowledge.documents.page(
                readable(_owner(context)), MAX_RESOURCES, cursor, READY
            )
        except WenmaiError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        resources = [
            types.Resource(uri=f"{SCHEME}{each.document_id}", name=each.file_name, mime_type="text/plain")
            for each in page.documents
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=page.next_cursor)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of a document as ingested: its passages in order, below their headings."""
        uri, owner = str(params.uri), _owner(context)
        try:
            document_id = UUID(uri.removeprefix(SCHEME))
            document = await ready_document(self._container, str(document_id), readable(owner))
            chunks: list[Chunk] = []
            cursor: str | None = None
            while True:
                page = await self._container.knowledge.chunks(
                    document.document_id, readable(owner), MAX_CHUNKS, cursor
                )
                chunks += page.chunks
                if (cursor := page.next_cursor) is None:
                    break
        except (ValueError, NotFoundError) as error:
            raise MCPError(code=types.INVALID_PARAMS, message="There is no such document.") from error
        except WenmaiError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        sections = groupby(chunks, key=lambda chunk: chunk.heading)
        texts = ("\n\n".join(filter(None, (top, *(each.text for each in rest)))) for top, rest in sections)
        text = types.TextResourceContents(uri=uri, text="\n\n".join(texts), mime_type="text/plain")
        return types.ReadResourceResult(contents=[text])


def _owner(context: Context) -> str:
    return str(context.request.scope["state"][OWNER])  # type: ignore[union-attr]


def _refusal(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.takes.model_json_schema(),
        output_schema=tool.gives.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only, destructive_hint=False, open_world_hint=False
        ),
    )
