"""A server that asks for a key: the reader is asked once, and again only for something they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser.support.driving import answered, ask
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

KEY = "alpha"
DIALOG = "dialog.small-dialog"
# Longer than the last time that the page looks for documents by itself after it was opened.
BACKGROUND_MS = 6_500


@pytest.fixture(scope="module")
def locked_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stub(StubLLM()) as stub:
        model = {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "stub"}
        folder: Path = tmp_path_factory.mktemp("locked")
        with running_server(folder, LOAD_SAMPLE="false", EMBEDDING=HASHING, API_KEYS=KEY, **model) as server:
            yield server.url


@pytest_asyncio.fixture(loop_scope="session")
async def declined(page: Page, locked_url: str) -> AsyncIterator[Page]:
    """The page after Esc in the dialog that its own first reads brought."""
    await page.goto(locked_url)
    await page.wait_for_selector(DIALOG)
    await page.keyboard.press("Escape")
    await page.wait_for_selector(DIALOG, state="detached")
    yield page


@pytest.mark.full("a journey of seconds in a real browser")
async def test_who_declines_is_asked_again_only_for_what_they_do(declined: Page) -> None:
    """Discriminates: a dialog for each read in the background; none for a question; a list and switches that
    stay away until the page is loaded again."""
    page = declined
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.wait_for_timeout(BACKGROUND_MS)  # in which the page asks in the background
    assert await page.locator(DIALOG).count() == 0
    await ask(page, "?")
    await page.fill(f"{DIALOG} input", KEY)
    await page.press(f"{DIALOG} input", "Enter")
    await answered(page)
    await page.wait_for_selector("#sessions .session-link")
    await page.wait_for_selector("#insert-block:visible")
    assert await page.locator(DIALOG).count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_declined_question_is_not_followed_by_another_dialog(declined: Page) -> None:
    """Discriminates: what the page reads after a turn has ended, taken for the click on Send."""
    page = declined
    await page.fill("#question", "?")
    await page.click("#composer .send")
    await page.wait_for_selector(DIALOG)
    await page.keyboard.press("Escape")
    await answered(page, status="failed")
    await page.wait_for_timeout(800)  # in which it would ask again
    assert await page.locator(DIALOG).count() == 0
