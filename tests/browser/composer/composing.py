"""A server whose model records what it received, and what a reader does around the question box."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Page

from tests.browser.support.driving import ASK, answered, ask
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.server import running_server

PUBLISH = "([name, detail]) => part('base/bus.js').then((bus) => bus.publish(name, detail))"
BOX = "#question"


@dataclass(frozen=True)
class Served:
    """It has no documents except those of the tests."""

    url: str
    model: StubLLM

    def system(self) -> str:
        """The system text that the model received for the last question."""
        messages = self.model.bodies[-1]["messages"]
        return "\n".join(message["content"] for message in messages if message["role"] == "system")

    def sessions(self) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = httpx.get(f"{self.url}/sessions?limit=200").json()["sessions"]
        return results

    def persona_of(self, session_id: str) -> Any:
        return httpx.get(f"{self.url}/sessions/{session_id}").json()["persona"]

    def first_chunk_of(self, document_id: str) -> str:
        page = httpx.get(f"{self.url}/documents/{document_id}/chunks").json()
        return str(page["chunks"][0]["chunk_id"])

    def add(self, name: str, text: str, *tags: str, path: str = "") -> str:
        """Return the document's id once a question finds it."""
        parts = {"file": (name, text.encode(), "text/markdown")}
        fields = {"tags": ",".join(tags), **({"external_id": path} if path else {})}
        added = httpx.post(f"{self.url}/documents", files=parts, data=fields, timeout=60).json()
        httpx.get(f"{self.url}/jobs/{added['job_id']}/stream", timeout=60)
        return str(added["document"]["document_id"])


@contextmanager
def served(data_dir: Path) -> Iterator[Served]:
    with running_stub(StubLLM(words=("Noted ", "[1]."))) as model:
        wiring = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "x", "LLM_MODEL": "stub"}
        with running_server(data_dir, LOAD_SAMPLE="false", **wiring) as server:
            yield Served(server.url, model)


async def publish(page: Page, name: str, detail: object) -> None:
    """Publish an event on the page's bus, as another part of the page does."""
    await page.evaluate(PUBLISH, [name, detail])


async def opened(page: Page, url: str) -> None:
    """The page, once it knows what the server offers: replies that have arrived may not have been read
    yet."""
    await page.goto(url)
    await page.wait_for_selector("#documents input[type=file][accept]", state="attached")
    await page.wait_for_selector("#model option", state="attached")


async def sent_by(page: Page, question: str, turns: int = 1) -> dict[str, Any]:
    """Ask, wait for the answer, and return the request's body."""
    async with page.expect_request(ASK) as request:
        await ask(page, question)
    await answered(page, turns)
    body = (await request.value).post_data_json
    assert isinstance(body, dict)
    return body


def session_in(page: Page) -> str:
    return page.url.rpartition("/")[2]
