"""One table's server: connects in the background, lists its tools, and reconnects when it is lost."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from config.secrets import Mask
from config.tables import ToolSettings
from core.errors import StartRefusedError
from core.tools import (
    MAX_DESCRIPTION_CHARS,
    Tool,
    ToolFailedError,
    ToolReply,
    ToolUnfitError,
    cut_result,
    fit_schema,
    model_name,
)

if TYPE_CHECKING:
    from services.adapters.mcp.client import ToolClient

log = structlog.get_logger()

RELIST_S = 300.0  # for servers that do not say when their tools change
RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)
CLOSING_S = 4.0
MAX_STDERR_BYTES = 4_000  # of a program's standard error that are kept
MAX_LAST_LINES, MAX_LAST_CHARS = 3, 300  # of these, shown once the program has ended


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Any
    read_only: bool


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """How to reach a server, including its secrets."""

    command: Sequence[str]
    url: str
    environment: Mapping[str, str]
    headers: Mapping[str, str]
    timeout_s: float


class LostServerError(ToolFailedError):
    """The connection has ended."""


class ToolServer:
    """A ToolSource. `run` is its background task; the SDK is imported only there."""

    def __init__(self, name: str, table: ToolSettings, where: ServerAddress) -> None:
        self.name = name
        self.problem = ""
        self._reason = ""  # without the program's own words, which may differ each time
        self._stderr = b""
        self._mask = Mask([*where.environment.values(), *where.headers.values()])
        self._table = table
        self._where = where
        self._tools: dict[str, tuple[str, Tool]] = {}  # by the model's name: the server's name, and the tool
        self._client: ToolClient | None = None
        self._up = asyncio.Event()
        self._attempted = asyncio.Event()  # a connection attempt has succeeded or failed
        self._wake = asyncio.Event()  # its list has changed, it is lost, or somebody needs it
        self._lost = False

    @property
    def offered(self) -> frozenset[str]:
        """The names of the tools listed last."""
        return frozenset(self._tools)

    async def listed(self) -> Sequence[Tool]:
        if not self._attempted.is_set():
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._table.timeout_s):
                    await self._attempted.wait()
        if not self._up.is_set():
            self._wake.set()  # retried at once, without waiting for it
            return ()
        return tuple(tool for _, tool in self._tools.values())

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        try:
            async with asyncio.timeout(self._table.timeout_s):
                client, own_name = await self._connected(name)
                reply = await client.call(own_name, arguments)
        except TimeoutError:
            self._wake.set()  # lists its tools again, which reconnects a server that hangs altogether
            raise ToolFailedError(f"The tool did not answer within {self._table.timeout_s:g} s.") from None
        except LostServerError:
            self._lose()
            raise
        return ToolReply(cut_result(reply.text), reply.failed)

    async def _connected(self, name: str) -> tuple[ToolClient, str]:
        await self._up.wait()
        if name not in self._tools or self._client is None:
            raise ToolFailedError("This tool no longer exists.")
        return self._client, self._tools[name][0]

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        client = await asyncio.to_thread(_imported)
        failures = 0
        while True:
            try:
                await self._stay_connected(client)
                failures = 0
            except Exception as error:  # noqa: BLE001 - whatever a foreign server makes the SDK raise
                self._note(client.reason_of(error))
            pause = RETRY_S[min(failures, len(RETRY_S) - 1)]
            failures += 1
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _stay_connected(self, module: Any) -> None:
        """Connect, list, and stay until the connection is lost."""
        self._lost, self._stderr = False, b""
        try:
            async with (
                asyncio.timeout(self._table.timeout_s) as limit,
                module.open_client(self._where, self._wake.set, self._lose, self._on_stderr) as client,
            ):
                while not self._lost:
                    limit.reschedule(asyncio.get_running_loop().time() + self._table.timeout_s)
                    self._tools = self._offered(await client.tools())
                    limit.reschedule(None)
                    self._client = client
                    self._note("")
                    await self._until_woken()
        finally:
            self._client = None
            self._up.clear()
        log.warning("tool_server_lost", table=self.name)

    async def _until_woken(self) -> None:
        self._wake.clear()
        if self._lost:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(RELIST_S):
                await self._wake.wait()

    def _on_stderr(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-MAX_STDERR_BYTES:]

    def _last_words(self) -> str:
        """Only the program itself says why it ended, such as an unset variable or a missing module."""
        lines = self._mask(self._stderr.decode("utf-8", "replace")).splitlines()
        words = " / ".join([line.strip() for line in lines if line.strip()][-MAX_LAST_LINES:])
        return "".join(each for each in words if each.isprintable())[-MAX_LAST_CHARS:]

    def _note(self, reason: str) -> None:
        """Record the state; `reason` "" means that the server is up."""
        words = self._last_words() if reason else ""
        if reason:
            self._up.clear()
            if reason != self._reason:
                log.warning("tool_server_down", table=self.name, reason=reason, last_words=words)
        else:
            self._up.set()
            if self._reason or not self._attempted.is_set():
                log.info("tool_server_up", table=self.name, tools=len(self._tools))
        self._reason = reason
        self.problem = f"{reason} Its last output: {words}" if words else reason
        self._attempted.set()

    def _lose(self) -> None:
        self._lost = True
        self._up.clear()
        self._attempted.clear()  # it was just up, so the next attempt is worth waiting for
        self._wake.set()

    def _offered(self, listed: Sequence[ListedTool]) -> dict[str, tuple[str, Tool]]:
        table, offered = self._table, dict[str, tuple[str, Tool]]()
        for each in listed:
            if (table.allow and each.name not in table.allow) or each.name in table.deny:
                continue
            try:
                name, schema = model_name(self.name, each.name), fit_schema(each.schema)
            except ToolUnfitError as error:
                log.warning(
                    "tool_not_offered", table=self.name, tool=ascii(each.name)[:100], reason=str(error)
                )
                continue
            asks = table.confirm == "always" or (table.confirm == "write" and not each.read_only)
            description = cut_result(each.description, MAX_DESCRIPTION_CHARS)
            offered[name] = (each.name, Tool(name, description, schema, each.read_only, asks))
        return offered


def _imported() -> Any:
    """Import what takes a second: the SDK, and the library that validates arguments before the first call."""
    importlib.import_module("jsonschema")
    return importlib.import_module("services.adapters.mcp.client")


@asynccontextmanager
async def open_servers(tables: Mapping[str, ToolSettings]) -> AsyncIterator[tuple[ToolServer, ...]]:
    """Each server connects in its own task. Raises StartRefusedError for a variable that is not set."""
    servers = tuple(ToolServer(name, table, _address_of(name, table)) for name, table in tables.items())
    tasks = [asyncio.create_task(server.run(), name=f"tools {server.name}") for server in servers]
    try:
        yield servers
    finally:
        await asyncio.gather(*map(_close, tasks))


async def _close(task: asyncio.Task[None]) -> None:
    """Cancel the task; a server that does not let go is abandoned after a few seconds."""
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=CLOSING_S)
        if task.done():
            return


def _address_of(name: str, table: ToolSettings) -> ServerAddress:
    def value(variable: str) -> str:
        text = os.environ.get(variable, "")
        if not text or any(ord(char) < 32 for char in text):
            fault = "has a line break inside" if text else "is not set"
            raise StartRefusedError(
                f"[tools.{name}] needs the environment variable {variable}, which {fault}."
            )
        return text

    environment = {variable: value(variable) for variable in table.env}
    headers = {header: value(variable) for header, variable in table.headers.items()}
    return ServerAddress(table.command, table.url or "", environment, headers, table.timeout_s)
