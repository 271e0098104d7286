"""Readers whose browser or hand is unusual: no storage, a key that no header can carry, a double click."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.support.driving import ASK, answered, ask
from tests.browser.support.live import QUESTION, Live

NO_STORAGE = """for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
}"""


@pytest.fixture
def speaking(live: Live) -> Live:
    live.says("灯亮", "十二个", "小时 [1]。")
    return live


async def test_without_storage_a_question_is_answered(page: Page, speaking: Live) -> None:
    """Discriminates: sessionStorage read unguarded, which looks like a lost connection."""
    await page.add_init_script(NO_STORAGE)
    await page.goto(speaking.url)
    await ask(page, QUESTION)
    await answered(page)
    assert "十二个小时" in await page.inner_text(".prose")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_stored_key_that_cannot_be_sent_is_ignored(page: Page, speaking: Live) -> None:
    """Discriminates: the stored key sent unchanged, which fetch refuses before anything is sent."""
    await page.add_init_script("sessionStorage.setItem('wenmai.key', '密钥')")
    await page.goto(speaking.url)
    await ask(page, QUESTION)
    await answered(page)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_second_click_of_a_double_click_stops_nothing(page: Page, speaking: Live) -> None:
    """Discriminates: every click on the button while an answer runs taken for Stop."""
    await page.goto(speaking.url)
    await page.fill("#question", QUESTION)
    await page.dblclick("#composer .send")
    await answered(page)
    assert "十二个小时" in await page.inner_text(".prose")


async def test_a_new_conversation_begins_with_one_click_after_a_question_that_was_never_sent(
    page: Page, speaking: Live
) -> None:
    """Discriminates: the unchanged address used to decide whether there is something to show."""
    await page.goto(speaking.url)
    await page.route(
        ASK, lambda route: route.fulfill(status=422, json={"error": {"code": "no", "message": "no"}})
    )
    await ask(page, QUESTION)
    await answered(page, status="failed")
    await page.click("#sidebar .new-chat")
    await expect(page.locator(".turn")).to_have_count(0)
