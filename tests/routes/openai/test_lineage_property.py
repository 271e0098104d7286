"""Random edits, regenerations, truncated and rewritten histories, sent as message lists: what is stored is
the tree of the messages. With the real application and the real embedded store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.store.dialect import Filter
from services.store.points import equals
from tests.routes.openai.support import Message, assistant, user
from tests.support.models.counting_llm import COUNTING
from tests.support.servers.app import App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = ("alice", "bob")
EXAMPLES = count(1)
OPERATIONS = ("ask", "edit", "regenerate", "rewrite", "forget the oldest", "elsewhere", "again", "reformat")
Pair = tuple[str, str]
Node = tuple[Pair, ...]
"""A turn as the path of questions and answers that leads to it."""

steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9)), min_size=1, max_size=12)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    models = {"llms": {"default": COUNTING}}
    server = {"api_keys": KEYS}
    async with open_app(
        make_settings(tmp_path_factory.mktemp("tree"), models=models, server=server)
    ) as opened:
        yield opened


@dataclass
class Client:
    """Keeps the branches of one owner's conversations like a chat client: as lists of messages, without
    ids."""

    app: App
    key: str
    name: str
    path: Node = ()
    nodes: list[Node] = field(default_factory=list)
    number: int = 0

    def new_text(self) -> str:
        self.number += 1
        return f"{self.name} text {self.number}"

    async def send(self, past: Node, question: str, *, below: Node | None = None) -> None:
        """`below`: the branch that the server knows `past` as; otherwise `past` itself."""
        below = past if below is None else below
        messages: list[Message] = [each for q, a in past for each in (user(q), assistant(a))]
        body = {"model": "wenmai", "messages": [*messages, user(question)]}
        headers = {"authorization": f"Bearer {self.key}"}
        response = await self.app.client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200, response.text
        answer = response.json()["choices"][0]["message"]["content"]
        known = set(self.nodes)
        self.nodes += [below[:end] for end in range(1, len(below) + 1) if below[:end] not in known]
        self.path = (*below, (question, answer))
        self.nodes.append(self.path)

    async def do(self, operation: str, number: int) -> None:
        path = self.path
        at = number % len(path) if path else 0
        match operation:
            case "edit":
                await self.send(path[:at], self.new_text())
            case "regenerate" if path:
                await self.send(path[:at], path[at][0])
            case "rewrite" if path:
                rewritten = (path[at][0], self.new_text())
                await self.send((*path[:at], rewritten, *path[at + 1 :]), self.new_text())
            case "forget the oldest" if self.is_known_by(path[at:]):
                await self.send(path[at:], self.new_text(), below=path)
            case "elsewhere":
                await self.send(
                    tuple((self.new_text(), self.new_text()) for _ in range(at + 1)), self.new_text()
                )
            case "again" if self.nodes:
                self.path = self.nodes[number % len(self.nodes)]
            case "reformat" if path:
                loose = tuple((f" {q}\n", a.replace(" ", "  ") + "\r\n") for q, a in path)
                await self.send(loose, self.new_text(), below=path)
            case _:
                await self.send(path, self.new_text())

    def is_known_by(self, suffix: Node) -> bool:
        """Whether no other branch has this first turn."""
        return bool(suffix) and len([node for node in self.nodes if node[-1] == suffix[0]]) == 1

    async def stored(self) -> Counter[tuple[Pair, Pair | None]]:
        """Return every stored turn with this client's texts, each with its parent's texts."""
        payloads = await read(self.app)
        texts = {each["turn_id"]: (each["user_query"], each["assistant_response"]) for each in payloads}
        sessions = {each["turn_id"]: each["session_id"] for each in payloads}
        for each in payloads:
            parent = each["parent_turn_id"]
            assert parent is None or sessions[parent] == each["session_id"]
        mine = [each for each in payloads if each["user_query"].startswith(f"{self.name} ")]
        assert len({each["owner"] for each in mine}) <= 1
        return Counter((texts[each["turn_id"]], texts.get(each["parent_turn_id"])) for each in mine)

    @property
    def expected(self) -> Counter[tuple[Pair, Pair | None]]:
        return Counter((node[-1], node[-2] if len(node) > 1 else None) for node in self.nodes)


async def read(app: App) -> list[dict[str, Any]]:
    turns = app.container.conversations.turns
    return [
        record.payload or {} async for record in turns.scroll(Filter(must=[equals("model_id", "default")]))
    ] + [record.payload or {} async for record in turns.scroll(Filter(must=[equals("model_id", "imported")]))]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mine=steps, yours=steps)
@example(  # the same last turn on two branches: the parents decide
    mine=[("ask", 0), ("ask", 0), ("ask", 0), ("rewrite", 1), ("again", 2), ("ask", 0)], yours=[("edit", 0)]
)
async def test_the_stored_tree_is_the_tree_of_the_messages(
    app: App, mine: list[tuple[str, int]], yours: list[tuple[str, int]]
) -> None:
    """Two owners at once. Discriminates: an edit that continues from the latest turn, a history imported
    twice, a turn of another owner taken for the parent, a regeneration answered as a retry."""
    example = next(EXAMPLES)
    clients = [Client(app, key, f"{key}{example}") for key in KEYS]
    for client, operations in zip(clients, (mine, yours), strict=True):
        for operation, number in operations:
            await client.do(operation, number)
    for client in clients:
        assert await client.stored() == client.expected
