"""An agent with the SDK's own client: over HTTP, and over the standard streams of `wenmai mcp`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from config.settings import VERSION
from core.errors import UnreadableDocumentError
from core.knowledge import Upload
from core.owners import LOCAL_OWNER
from routes.mcp.tools import MAX_CHUNKS
from tests.support.servers.app import make_settings, open_app, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB, CAROL = "alice", "bob", "carol"
LEAVE = "# Annual leave\n\nEvery employee has fifteen days of annual leave a year."
QUESTION = "How many days of annual leave does an employee have?"
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class Server:
    url: str
    document_id: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    settings = make_settings(tmp_path_factory.mktemp("agents"), server={"api_keys": (ALICE, BOB, CAROL)})
    async with serving(settings) as url:
        yield Server(url, await _added(url, ALICE, "leave.md", LEAVE))


async def _added(url: str, key: str, name: str, text: str) -> str:
    """The document's id, once it has been ingested."""
    async with _http(url, key) as http:
        added = (await http.post("/documents", files={"file": (name, text.encode())})).json()
        async with http.stream("GET", f"/jobs/{added['job_id']}/stream") as progress:  # to its end
            assert b'"done"' in await progress.aread()
    return str(added["document"]["document_id"])


def _http(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30)


@asynccontextmanager
async def over_http(server: Server, key: str = ALICE) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(server: Server, key: str = ALICE) -> AsyncIterator[Client]:
    environment = {**os.environ, "API_KEYS": key, "DATA_DIR": "/nonexistent"}
    command = ["-m", "scripts.wenmai", "mcp", "--url", server.url]
    async with Client(StdioServerParameters(command=sys.executable, args=command, env=environment)) as client:
        yield client


WAYS = {"http": over_http, "stdio": over_stdio}


async def result(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    called = await client.call_tool(name, arguments)
    assert not called.is_error, called.content
    return dict(called.structured_content or {})


@pytest.mark.parametrize("way", WAYS)
async def test_every_tool_runs(server: Server, way: str) -> None:
    pieces: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        pieces.append(message or "")

    async with WAYS[way](server) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("wenmai", VERSION)
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {
            name: tool.annotations.read_only_hint for name, tool in tools.items() if tool.annotations
        } == {"ask": False, "search": True, "read": True, "recall": True}
        asked = await client.call_tool("ask", {"question": QUESTION}, progress_callback=on_progress)
        answer = dict(asked.structured_content or {})
        assert "fifteen days" in answer["answer"]
        assert answer["sources"][0]["file_name"] == "leave.md"
        assert "".join(pieces) == answer["answer"]
        again = await result(client, "ask", question="And a month?", session_id=answer["session_id"])
        assert again["parent_turn_id"] == answer["turn_id"]
        passage = (await result(client, "search", query=QUESTION))["passages"][0]
        assert passage["document_id"] == server.document_id
        around = await result(client, "read", document_id=server.document_id, chunk_id=passage["chunk_id"])
        assert around["passages"][0]["text"] == passage["text"]
        outline = await result(client, "read", document_id=server.document_id)
        assert [each["chunk_id"] for each in outline["outline"]] == [passage["chunk_id"]]
        recalled = await result(client, "recall", query=QUESTION)
        assert recalled["turns"][0]["question"] == QUESTION
        resources = (await client.list_resources()).resources
        assert [each.name for each in resources] == ["leave.md"]
        read = await client.read_resource(str(resources[0].uri))
        assert "fifteen days" in read.contents[0].text  # type: ignore[union-attr]


async def test_a_document_is_read_whole_below_its_headings(server: Server) -> None:
    """Discriminates: rules of two chapters that run together."""
    text = "# Rules\n\n## Leave\n\nFifteen days.\n\n## Travel\n\nEconomy class."
    document_id = await _added(server.url, CAROL, "book.md", text)
    async with over_http(server, CAROL) as carol:
        read = await carol.read_resource(f"wenmai://documents/{document_id}")
        shown = "Rules > Leave\n\nFifteen days.\n\nRules > Travel\n\nEconomy class."
        assert read.contents[0].text == shown  # type: ignore[union-attr]


async def test_a_file_that_could_not_be_read_is_no_resource(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        await app.add_text("rules.md", "# Rules\n\nFifteen days.")
        broken = Upload(LOCAL_OWNER, "broken.pdf", b"%PDF-1.4")
        await app.container.knowledge.refuse(broken, UnreadableDocumentError("It is damaged."))
        asked = {**HELLO, "method": "resources/list"}
        reply = await app.client.post("/mcp", json=asked, headers=ACCEPTS)
        assert "rules.md" in reply.text
        assert "broken.pdf" not in reply.text


async def test_a_passage_is_read_with_as_many_before_and_after_it_as_asked(server: Server) -> None:
    """Discriminates: one number used for both sides."""
    text = "\n\n".join(f"# Rule {number}\n\n{'Keep the door shut. ' * 20}" for number in range(5))
    document_id = await _added(server.url, CAROL, "rules.md", text)
    async with over_http(server, CAROL) as client:
        outline = (await result(client, "read", document_id=document_id))["outline"]
        ids = [each["chunk_id"] for each in outline]
        for before, after in ((2, 0), (0, 1)):
            around = {"chunk_id": ids[2], "before": before, "after": after}
            read = await result(client, "read", document_id=document_id, **around)
            assert [each["chunk_id"] for each in read["passages"]] == ids[2 - before : 3 + after]


async def test_another_owner_sees_none_of_it(server: Server) -> None:
    async with over_http(server) as alice:
        answer = await result(alice, "ask", question=QUESTION)
    async with over_http(server, BOB) as bob:
        assert (await result(bob, "search", query=QUESTION))["passages"] == []
        assert (await result(bob, "recall", query=QUESTION))["turns"] == []
        assert (await bob.list_resources()).resources == []
        for name, arguments in (
            ("read", {"document_id": server.document_id}),
            ("ask", {"question": "Go on?", "session_id": answer["session_id"]}),
        ):
            assert (await bob.call_tool(name, arguments)).is_error, name


async def test_a_document_that_is_being_ingested_is_not_an_empty_one(server: Server) -> None:
    """Discriminates: text "" for what has no passages yet."""
    text = "\n\n".join(f"# Rule {number}\n\nRule {number} holds." for number in range(3_000))
    async with over_http(server, CAROL) as carol, _http(server.url, CAROL) as http:
        added = (await http.post("/documents", files={"file": ("rules.md", text.encode())})).json()
        document_id = added["document"]["document_id"]
        with pytest.raises(MCPError, match=r"rules\.md is still being ingested"):
            await carol.read_resource(f"wenmai://documents/{document_id}")
        outline = await carol.call_tool("read", {"document_id": document_id})
        await http.delete(f"/documents/{document_id}")
    assert outline.is_error


async def test_a_long_document_is_read_to_its_end(server: Server) -> None:
    """Discriminates: only its first page of passages."""
    clauses = [f"# Clause {number}\n\nParagraph {number} holds." for number in range(MAX_CHUNKS + 5)]
    document_id = await _added(server.url, CAROL, "clauses.md", "\n\n".join(clauses))
    async with over_http(server, CAROL) as carol:
        outline = await result(carol, "read", document_id=document_id)
        assert len(outline["outline"]) == MAX_CHUNKS
        read = await carol.read_resource(f"wenmai://documents/{document_id}")
    text = read.contents[0].text  # type: ignore[union-attr]
    assert [line for line in text.splitlines() if line.startswith("Paragraph")] == [
        clause.rpartition("\n")[2] for clause in clauses
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("ask", {}, "question"),
        ("ask", {"question": " "}, "question"),
        ("ask", {"question": "Hm?", "colour": "blue"}, "colour"),
        ("read", {"document_id": "none"}, "document_id"),
        ("search", {"query": "Hm?", "top_n": 500}, "top_n"),
    ],
)
async def test_a_tools_refusal_names_the_field(
    server: Server, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with over_http(server) as client:
        called = await client.call_tool(tool, arguments)
        assert called.is_error
        assert message in called.content[0].text  # type: ignore[union-attr]


async def test_a_request_without_a_key_or_from_another_site_is_refused(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers=ACCEPTS) as http:
        key = {"authorization": f"Bearer {ALICE}"}
        assert (await http.post("/mcp", json=HELLO)).status_code == 401
        stranger = {**key, "origin": "http://elsewhere.test"}
        assert (await http.post("/mcp", json=HELLO, headers=stranger)).status_code == 403
        rebound = {**key, "host": "elsewhere.test"}
        assert (await http.post("/mcp", json=HELLO, headers=rebound)).status_code == 400
        assert (await http.post("/mcp", json=HELLO, headers=key)).status_code == 200


async def test_no_stream_that_never_carries_anything_is_opened(server: Server) -> None:
    """Discriminates: a GET that stays open, unlimited in number: no request of a stateless server is its
    own."""
    async with httpx.AsyncClient(base_url=server.url, headers=ACCEPTS) as http, asyncio.timeout(10):
        refused = await http.get("/mcp", headers={"authorization": f"Bearer {ALICE}"})
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
