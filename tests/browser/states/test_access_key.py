"""A server that asks for a key: the reader is asked once, and again only for something they do. What one
key's holder sees and has started is not shown to another's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.browser.support.driving import ASK, answered, ask
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

KEY, OTHERS = "alpha", "beta"
BOX = "#question"
DIALOG = "dialog.small-dialog"
# Longer than the last delay after which the page, once opened, checks for documents on its own.
BACKGROUND_MS = 6_500


@pytest.fixture(scope="module")
def locked_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stub(StubLLM()) as stub:
        model = {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "stub"}
        folder: Path = tmp_path_factory.mktemp("locked")
        keys = {"API_KEYS": f"{KEY},{OTHERS}"}
        with running_server(folder, LOAD_SAMPLE="false", EMBEDDING=HASHING, **keys, **model) as server:
            yield server.url


@pytest_asyncio.fixture(loop_scope="session")
async def declined(page: Page, locked_url: str) -> AsyncIterator[Page]:
    """The page after Esc in the dialog that its own first requests caused."""
    await page.goto(locked_url)
    await page.wait_for_selector(DIALOG)
    await page.keyboard.press("Escape")
    await page.wait_for_selector(DIALOG, state="detached")
    yield page


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_reader_who_declines_is_asked_again_only_for_their_own_actions(declined: Page) -> None:
    """Discriminates: a dialog for each background request; no dialog for a question; a list and switches that
    stay empty until the page is reloaded."""
    page = declined
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.wait_for_timeout(BACKGROUND_MS)  # while the page sends background requests
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
    await page.wait_for_timeout(800)  # time for the page to ask again
    assert await page.locator(DIALOG).count() == 0


async def give(page: Page, key: str) -> None:
    await page.fill(f"{DIALOG} input", key)
    await page.press(f"{DIALOG} input", "Enter")


async def asked_with_key(page: Page, url: str, question: str) -> str:
    """The address of a conversation of the key's holder, with a draft in it and another in a new one."""
    await page.goto(url)
    await give(page, KEY)
    await ask(page, question)
    await answered(page)
    await page.wait_for_url("**/#/s/*")
    at = page.url
    await page.fill(BOX, "a draft in there")
    await page.click("#sidebar .new-chat")
    await page.fill(BOX, "a draft of a new one")
    await page.goto(at)
    await answered(page)
    return at


async def refuse(page: Page, key: str) -> None:
    """Its questions, as by a server that was started without a key."""

    async def answer(route: Route) -> None:
        if route.request.headers.get("authorization") != f"Bearer {key}":
            return await route.continue_()
        return await route.fulfill(status=401, body="{}", content_type="application/json")

    await page.route(ASK, answer)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_another_key_shows_nothing_of_the_previous_page(page: Page, locked_url: str) -> None:
    """Discriminates: a conversation that stays beside another owner's list; drafts that belong to the tab; a
    question of one owner asked as another's."""
    at = await asked_with_key(page, locked_url, "what does one earn?")
    await refuse(page, KEY)
    await ask(page, "asked by the first")
    await page.wait_for_selector(DIALOG)
    async with page.expect_event("load"):
        await give(page, OTHERS)
    await expect(page.locator("#sessions")).to_contain_text("问过的问题会留在这里")
    assert page.url.endswith("/#/")
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.locator(BOX)).to_have_value("")
    await page.reload()
    await expect(page.locator(BOX)).to_have_value("")
    await page.goto(at)
    await page.wait_for_selector("#thread .notice")
    await expect(page.locator(BOX)).to_have_value("")
    assert "what does one earn?" not in await page.content()
    await page.unroute(ASK)
    async with page.expect_event("load"):
        await page.click("#other-key")
    await give(page, KEY)
    await expect(page.locator(BOX)).to_have_value("a draft of a new one")
    await page.goto(at)
    await answered(page)
    await expect(page.locator(BOX)).to_have_value("asked by the first")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_switching_the_key_leaves_nothing_behind_and_asks_for_the_new_one(
    page: Page, locked_url: str
) -> None:
    """Discriminates: a page passed unchanged to the next owner; a draft that is visible behind the dialog."""
    await asked_with_key(page, locked_url, "of the first?")
    async with page.expect_event("load"):
        await page.click("#other-key")
    await page.wait_for_selector(DIALOG)
    assert await page.evaluate("sessionStorage.getItem('wenmai.key')") is None
    assert page.url.endswith("/#/")
    assert "of the first?" not in await page.content()
    await expect(page.locator(BOX)).to_have_value("")
    await expect(page.locator("#other-key")).to_be_hidden()
    await give(page, OTHERS)
    await expect(page.locator("#sessions")).to_contain_text("问过的问题会留在这里")
    await expect(page.locator("#other-key")).to_be_visible()


async def test_a_mistyped_key_is_asked_for_again_and_the_drafts_stay(declined: Page) -> None:
    """Discriminates: a key that is stored before the server accepted it: the right one is then another
    owner's."""
    page = declined
    await page.fill(BOX, "begun without a key")
    await page.click("#sidebar .open-documents")
    await page.wait_for_selector(DIALOG)
    await give(page, "alhpa")
    await expect(page.locator(f"{DIALOG} p")).to_have_text("密钥不对，请再试一次。")
    await give(page, KEY)
    await expect(page.locator("#other-key")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator(BOX)).to_have_value("begun without a key")
    await page.reload()
    await expect(page.locator(BOX)).to_have_value("begun without a key")


async def test_without_keys_there_is_no_key_to_change(page: Page, bare_url: str) -> None:
    await page.goto(bare_url)
    await page.wait_for_selector("#sessions > *")
    await expect(page.locator("#other-key")).to_be_hidden()
