"""The SDK of OpenAI against a served Wenmai, whose model is a stub that records what it receives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import make_settings, serving
from tests.support.waiting import until

Message = dict[str, Any]


@dataclass
class Numbered(StubLLM):
    """Its nth answer is "answer n", unless it has `words`. `window` is that of its table; 0: unspecified."""

    words: tuple[str, ...] = ()
    window: int = 0
    answers: int = 0

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        self.answers += 1
        return self.words or ("answer ", str(self.answers))

    def reset(self) -> None:
        """Restore the initial state, for the next test of a file."""
        vars(self).update({**vars(Numbered()), "url": self.url})


@dataclass
class Door:
    """`client` is the SDK, `http` our own routes."""

    client: AsyncOpenAI
    http: httpx.AsyncClient
    stub: Numbered
    messages: list[Message] = field(default_factory=list)

    async def ask(self, messages: list[Message], model: str = "wenmai", **more: Any) -> Any:
        return await self.client.chat.completions.create(model=model, messages=messages, **more)  # type: ignore[arg-type]

    async def sessions(self) -> list[dict[str, Any]]:
        sessions: list[dict[str, Any]] = (await self.http.get("/sessions")).json()["sessions"]
        return sessions

    async def tree(self, session_id: str) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = (await self.http.get(f"/sessions/{session_id}/tree")).json()["turns"]
        return turns

    def received(self) -> str:
        """Return the last request that the stub received, unchanged."""
        return json.dumps(json.loads(self.stub.raw_bodies[-1]), ensure_ascii=False)


@asynccontextmanager
async def door(folder: Path, stub: Numbered | None = None, **sections: dict[str, Any]) -> AsyncIterator[Door]:
    """A Wenmai without documents of its own, at an address of its own."""
    stub = stub or Numbered()
    with running_stub(stub):
        table = {"provider": "openai", "model": "stub", "base_url": stub.url, "api_key": "x"}
        window = {"context_window": stub.window} if stub.window else {}
        models = {"llms": {"default": {**table, **window}}, **sections.pop("models", {})}
        async with (
            serving(make_settings(folder, models=models, **sections)) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
            httpx.AsyncClient(base_url=url, timeout=30) as http,
        ):
            yield Door(client, http, stub)


async def read_until(stream: Any, mark: str) -> str:
    """Read a stream as a client does, until `mark` has arrived, and then leave.

    The task is cancelled, which closes the SDK's generators one inside the other. A loop that is left early
    abandons them in a cycle: a thread that collects garbage may finalise one while the loop is closing it
    ("async generator already executing").
    """
    text = ""

    async def read() -> None:
        nonlocal text
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""

    reading = asyncio.create_task(read())
    await until(lambda: reading.done() or mark in text)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    return text


async def add(client: httpx.AsyncClient, name: str, text: str) -> None:
    added = (await client.post("/documents", files={"file": (name, text.encode())})).json()
    while added["job_id"] is not None:  # None: ingested by another test
        job = (await client.get(f"/jobs/{added['job_id']}")).json()
        assert job["stage"] not in ("failed", "cancelled")
        if job["stage"] == "done":
            return
        await asyncio.sleep(0.05)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}
