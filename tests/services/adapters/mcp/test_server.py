"""Real tool servers: over standard streams and HTTP, well-behaved and not."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from config.tables import ToolSettings
from core.errors import StartRefusedError
from core.tools import MAX_RESULT_CHARS, ToolFailedError
from services.adapters.mcp.server import ToolServer, open_servers
from tests.support.servers.tool_http import tools_over_http
from tests.support.servers.tool_server import serving_tools
from tests.support.waiting import until

PROGRAM = (sys.executable, "-m", "tests.support.servers.tool_program")
SDK_PROGRAM = (sys.executable, "-m", "tests.support.servers.tool_server")


@asynccontextmanager
async def opened(**table: Any) -> AsyncIterator[ToolServer]:
    async with open_servers({"t": ToolSettings(**{"command": PROGRAM, **table})}) as (server,):
        yield server


def children() -> set[int]:
    """A test's own children are those that did not exist before it: others' may still be ending. Their own
    children do not count: a browser left from an earlier test starts and ends its own at any time."""
    return {child.pid for child in psutil.Process().children()}


async def names(server: ToolServer) -> list[str]:
    return [tool.name for tool in await server.listed()]


async def failure(server: ToolServer, name: str) -> str:
    with pytest.raises(ToolFailedError) as caught:
        await server.call(name, {})
    return str(caught.value)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[ToolServer]:
    async with opened(timeout_s=10) as each:
        yield each


async def test_a_program_is_listed_and_called(server: ToolServer) -> None:
    listed = {tool.name: tool for tool in await server.listed()}
    assert listed["t__echo"].read_only
    assert not listed["t__echo"].asks
    assert listed["t__note"].asks
    assert (await server.call("t__echo", {"text": "你好"})).text == "你好"
    assert server.problem == ""


async def test_unsafe_tools_are_not_offered(server: ToolServer) -> None:
    """Discriminates: a name with a line break in the prompt, a schema fetched from an address."""
    listed = await names(server)
    assert not [name for name in listed if not name.isascii() or not name.isprintable()]
    assert "t__fetching" not in listed
    (dotted,) = [name for name in listed if name.startswith("t__a_b")]
    assert (await server.call(dotted, {})).text == "ab"


async def test_a_result_of_ten_megabytes_is_truncated_with_a_note(server: ToolServer) -> None:
    text = (await server.call("t__large", {})).text
    assert len(text) < MAX_RESULT_CHARS + 100
    assert text.endswith(f"[… {10_000_000 - MAX_RESULT_CHARS} more characters were left out]")


async def test_a_binary_result_is_mentioned_and_not_shown(server: ToolServer) -> None:
    assert (await server.call("t__picture", {})).text == "[image, image/png, 402 bytes: not shown]"


async def test_calls_run_concurrently(server: ToolServer) -> None:
    hanging = asyncio.create_task(server.call("t__wait", {}))
    assert (await server.call("t__echo", {"text": "a"})).text == "a"
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert (await server.call("t__echo", {"text": "b"})).text == "b"


async def test_a_changed_list_is_listed_again(server: ToolServer) -> None:
    await server.call("t__grow", {})
    await until(lambda: "t__grown" in server.offered)
    assert "t__grown" in await names(server)


async def test_allow_and_deny() -> None:
    async with opened(allow=("echo", "note"), deny=("note",), confirm="always") as server:
        (tool,) = await server.listed()
    assert (tool.name, tool.asks) == ("t__echo", True)


async def test_a_call_that_hangs_ends_at_the_deadline() -> None:
    async with opened(timeout_s=1) as server:
        await server.listed()
        assert await failure(server, "t__wait") == "The tool did not answer within 1 s."
        assert (await server.call("t__echo", {"text": "a"})).text == "a"


@pytest.mark.slow("a program is started anew after a second")
@pytest.mark.parametrize("name", ["t__die", "t__endless", "t__flood"])
async def test_a_program_that_dies_or_floods_is_restarted(server: ToolServer, name: str) -> None:
    """Discriminates: memory that grows with a line that never ends, a loop that only reads notifications."""
    await server.call("t__echo", {"text": "a"})  # no other program may be started
    before = children()
    async with opened(timeout_s=15) as own:
        await own.listed()
        assert await failure(own, name) == "The tool's server ended the connection."
        assert (await own.call("t__echo", {"text": "a"})).text == "a"
        await until(lambda: len(children() - before) == 1)  # the one that was cut off gets a moment to end
    assert children() <= before


@pytest.mark.slow("a connection is made anew after a second")
async def test_a_flooding_http_server_is_disconnected_at_once(tmp_path: Path) -> None:
    """Discriminates: reading it until the call's deadline, which keeps a core busy all the while."""
    with tools_over_http("tool_http", str(tmp_path)) as url:
        async with opened(command=(), url=url, timeout_s=60) as server:
            await server.listed()
            began = time.monotonic()
            assert await failure(server, "t__flood") == "The tool's server ended the connection."
            assert time.monotonic() - began < 20
            assert (await server.call("t__echo", {"text": "a"})).text == "a"


async def test_a_cancelled_call_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: its still open request hitting the limit of a read. In real time."""
    monkeypatch.setattr("services.adapters.mcp.transports.CONNECT_TIMEOUT_S", 0.2)
    with tools_over_http("tool_http", str(tmp_path)) as url:
        async with opened(command=(), url=url, timeout_s=1) as server:
            await server.listed()
            first = asyncio.create_task(failure(server, "t__wait"))
            await asyncio.sleep(0.8)
            assert await failure(server, "t__wait") == await first == "The tool did not answer within 1 s."
            assert (await server.call("t__echo", {"text": "a"})).text == "a"


async def test_a_server_that_refuses_the_key_is_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: the SDK's code for it, which says that the server is broken."""
    monkeypatch.setenv("TOOLS_TOKEN", "wrong")
    with tools_over_http("tool_http", str(tmp_path)) as url:
        async with opened(command=(), url=url, headers={"Authorization": "TOOLS_TOKEN"}) as server:
            assert await server.listed() == ()
            assert server.problem == "It refused the request (HTTP 401): are its headers right?"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"command": ("no-such-program",)}, "Its program is not installed."),
        ({"command": (sys.executable, "-c", "pass")}, "It ended the connection or refused it (code -32000)."),
        ({"command": ("yes",)}, "It ended the connection or refused it (code -32000)."),
        ({"command": ("sleep", "100"), "timeout_s": 0.3}, "It does not answer in time."),
        ({"command": (), "url": "http://127.0.0.1:9/mcp"}, "It cannot be reached (ConnectError)."),
    ],
)
async def test_a_server_that_is_down_costs_no_more_than_its_deadline(
    table: dict[str, Any], reason: str
) -> None:
    before = children()
    async with opened(**table) as server:
        began = time.monotonic()
        assert await server.listed() == ()
        assert time.monotonic() - began < 10
        await until(lambda: server.problem)
        assert server.problem == reason
        began = time.monotonic()
        assert await server.listed() == ()
        assert time.monotonic() - began < 0.1
    assert children() <= before


@pytest.mark.slow("imports the SDK's server twice")
async def test_the_sdk_s_own_server_over_standard_streams() -> None:
    async with opened(command=SDK_PROGRAM) as server:
        assert await names(server) == ["t__add", "t__order", "t__large"]
        assert (await server.call("t__add", {"a": 2, "b": 3})).text == "5"
        assert (await server.call("t__add", {"a": "x", "b": 3})).failed


async def test_the_sdk_s_own_server_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLS_TOKEN", "Bearer s3cret")
    async with (
        serving_tools() as url,
        opened(command=(), url=url, headers={"Authorization": "TOOLS_TOKEN"}) as server,
    ):
        assert await names(server) == ["t__add", "t__order", "t__large"]
        assert (await server.call("t__add", {"a": 2, "b": 3})).text == "5"
        assert "server" in await failure(server, "t__large")
        assert (await server.call("t__add", {"a": 2, "b": 4})).text == "6"


async def test_an_unset_variable_is_refused_by_name() -> None:
    with pytest.raises(
        StartRefusedError, match=r"\[tools.t\] needs the environment variable NO_SUCH, which is not set"
    ):
        async with opened(env=("NO_SUCH",)):
            pass


async def test_a_program_gets_only_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: passing the models' keys to a program. The program ends at once if it has one."""
    monkeypatch.setenv("MODEL_KEY", "s3cret")
    monkeypatch.setenv("NAMED", "yes")
    script = 'test "$NAMED" = yes && test -z "$MODEL_KEY" && exec sleep 100'
    async with opened(command=("sh", "-c", script), env=("NAMED",), timeout_s=0.5) as server:
        await until(lambda: server.problem)
        assert server.problem == "It does not answer in time."


async def test_the_reason_a_program_ended_is_logged_and_it_is_never_reported_as_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Discriminates: discarding its own words; a secret among them; "up" in the log at each attempt."""
    monkeypatch.setenv("CALENDAR_TOKEN", "tango-token-77")
    code = "import os, sys; sys.exit('no calendar for ' + os.environ['CALENDAR_TOKEN'])"
    table = {"command": (sys.executable, "-c", code), "env": ("CALENDAR_TOKEN",)}
    with structlog.testing.capture_logs() as logs:
        async with opened(**table, timeout_s=10) as server:
            await until(lambda: "no calendar for" in server.problem, 20)
            for _ in range(2):
                assert await server.listed() == ()
                await asyncio.sleep(0.5)
            assert "tango-token-77" not in server.problem
    events = [each["event"] for each in logs]
    assert "tool_server_up" not in events
    down = [each for each in logs if each["event"] == "tool_server_down"]
    assert any("no calendar for" in each["last_words"] for each in down)
    assert "tango-token-77" not in str(logs)
