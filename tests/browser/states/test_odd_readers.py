"""Readers whose browser or hand is unusual: no storage, an older browser, a key that no header can carry, a
double click."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.support.driving import ASK, add_style, answered, ask
from tests.browser.support.live import QUESTION, Live

NO_STORAGE = """for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
}"""
# Firefox has them all since 125, Safari since 17.4; the page supports Firefox 115 and Safari 16.4.
OLDER = """delete AbortSignal.any; delete Promise.withResolvers; delete URL.canParse;
delete Element.prototype.checkVisibility; delete HTMLElement.prototype.popover;
for (const name of ["showPopover", "hidePopover", "togglePopover"]) delete HTMLElement.prototype[name];"""


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


async def test_an_older_browser_answers_shows_links_and_opens_menus(page: Page, live: Live) -> None:
    """Discriminates: any function that Firefox 115 or Safari 16.4 lacks."""
    live.says("灯亮", "十二个", "小时 [1]，见 [example.com](https://example.com/)。")
    await page.add_init_script(OLDER)
    await add_style(page, "[popover] { display: block }")  # an element like any other
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page)
    await expect(page.locator(".prose a")).to_have_text("example.com")
    await page.set_viewport_size({"width": 390, "height": 780})
    await page.click(".turn-more")
    await page.click(".menu-item:has-text('修改问题')")
    await expect(page.locator(".question-editor textarea")).to_be_focused()


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
