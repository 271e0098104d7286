"""A real server whose model is a stub, and what a reader does there with the versions of a turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Page, Request, ViewportSize, expect

from tests.browser.support.driving import answered, ask
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

PHONE: ViewportSize = {"width": 390, "height": 780}


@dataclass(frozen=True)
class Stubbed:
    """`stub.words` are the model's answer."""

    url: str
    stub: StubLLM


@contextmanager
def stubbed_server(folder: Path) -> Iterator[Stubbed]:
    with running_stub(StubLLM()) as stub:
        settings = {"OPENAI_BASE_URL": stub.url, "LLM_MODEL": "stub", "EMBEDDING": HASHING}
        with running_server(folder, LOAD_SAMPLE="false", **settings) as server:
            yield Stubbed(server.url, stub)


def sent_by(page: Page) -> list[dict[str, Any]]:
    """The bodies of the questions that the page sends from now on."""
    bodies: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/knowledge_chat_conversation"):
            bodies.append(json.loads(request.post_data or ""))

    page.on("request", note)
    return bodies


async def ask_all(page: Page, *questions: str) -> None:
    """Ask on a page that shows no turns yet."""
    for turns, question in enumerate(questions, 1):
        await ask(page, question)
        await answered(page, turns)


async def shows(page: Page, *questions: str) -> None:
    await expect(page.locator(".asked")).to_have_text(list(questions))
    await answered(page, len(questions))


async def shows_version(page: Page, turn: int, text: str) -> None:
    """The pager of the n-th turn reads `text`, for example `2/3`; "" for no pager."""
    count = page.locator(f".turn:nth-child({turn}) .version-count")
    await (expect(count).to_have_text(text) if text else expect(count).not_to_be_visible())


async def click_action(page: Page, turn: int, name: str) -> None:
    """Click the button of the n-th turn; if a phone does not show it, use the turn's menu."""
    buttons = page.locator(f".turn:nth-child({turn}) .turn-actions")
    await page.hover(f".turn:nth-child({turn})")
    button = buttons.locator(f".{name}")
    if await buttons.locator(".turn-more").is_visible():
        await buttons.locator(".turn-more").click()
        button = page.get_by_role("menuitem", name=await button.get_attribute("aria-label"), exact=True)
    await button.click()


async def edit(page: Page, turn: int, question: str) -> None:
    """Replace the n-th turn's question, by its pencil."""
    await click_action(page, turn, "edit-question")
    await page.fill(".question-editor textarea", question)
    await page.press(".question-editor textarea", "Enter")


async def ids(page: Page) -> list[str]:
    results: list[str] = await page.locator(".turn").evaluate_all("turns => turns.map(t => t.dataset.turn)")
    return results


async def step(page: Page, turn: int, to: int) -> None:
    """Click ‹ (-1) or › (1) at the n-th turn."""
    await page.click(f".turn:nth-child({turn}) .version-step[data-step='{to}']")
