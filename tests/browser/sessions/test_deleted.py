"""A conversation deleted elsewhere while the page asks in it: the question is kept, and the reader learns
why."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.composer.composing import BOX, opened, sent_by, session_in
from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live

NOTE = ".composer-note"
PATIENCE_MS = 30_000  # the page polls the state of a turn


def erase(live: Live, session_id: str) -> None:
    """A running answer is stopped first."""
    httpx.delete(f"{live.url}/sessions/{session_id}", timeout=30).raise_for_status()


async def test_a_question_to_a_deleted_conversation_comes_back_and_is_asked_in_a_new_one(
    page: Page, live: Live
) -> None:
    """Discriminates: no mention of the deletion; the question only in the box of a conversation that no
    longer exists."""
    live.says("one")
    await opened(page, live.url)
    await sent_by(page, QUESTION)
    deleted = session_in(page)
    erase(live, deleted)
    await ask(page, "and then?")
    await answered(page, 2, "failed")
    assert "已经不在了" in await page.inner_text(".error-card .cause")
    await expect(page.locator(BOX)).to_have_value("and then?", timeout=PATIENCE_MS)
    await expect(page.locator(NOTE)).to_contain_text("这段对话已被删除或过期，问题放回了输入框。")
    await page.click(f"{NOTE} button")
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.locator(BOX)).to_have_value("and then?")
    await page.press(BOX, "Enter")
    await answered(page)
    assert session_in(page) != deleted


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_answer_whose_conversation_is_deleted_returns_its_question(page: Page, live: Live) -> None:
    """It is stopped first, then deleted. Discriminates: checked once, while it still exists."""
    live.says(*["word "] * 400, pause_s=0.05)
    await opened(page, live.url)
    await ask(page, QUESTION)
    await page.wait_for_selector(".turn .prose:has-text('word')")
    await page.route("**/turns/*", lambda route: route.fulfill(body="{}"), times=1)
    erase(live, session_in(page))
    await answered(page, status="cancelled")
    await expect(page.locator(BOX)).to_have_value(QUESTION, timeout=PATIENCE_MS)
    await expect(page.locator(NOTE)).to_contain_text("已被删除", timeout=PATIENCE_MS)
    live.says("one")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_asking_again_in_a_deleted_conversation_keeps_the_question_too(page: Page, live: Live) -> None:
    """It is nowhere else any more. Discriminates: a question that repeats one from a tree that was not
    read."""
    live.says("one")
    await opened(page, live.url)
    await sent_by(page, QUESTION)
    erase(live, session_in(page))
    await page.hover(".turn")
    await page.click(".turn .regenerate")
    await answered(page, status="failed")
    await expect(page.locator(BOX)).to_have_value(QUESTION, timeout=PATIENCE_MS)
    await expect(page.locator(NOTE)).to_contain_text("已被删除", timeout=PATIENCE_MS)


async def test_an_answer_that_the_reader_stops_returns_nothing_to_the_box(page: Page, live: Live) -> None:
    """Discriminates: a deletion announced, or the question returned, although the conversation exists."""
    live.says(*["word "] * 400, pause_s=0.05)
    await opened(page, live.url)
    await ask(page, QUESTION)
    await page.wait_for_selector(".turn .prose:has-text('word')")
    async with page.expect_response("**/turns/*"):
        await page.keyboard.press("Escape")
    await answered(page, status="cancelled")
    await expect(page.locator(BOX)).to_have_value("")
    await expect(page.locator(NOTE)).to_have_text("")
    live.says("one")
