"""The page on a phone: a drawer, touch, and little space."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.browser.branches.branching import ids, shows_version
from tests.browser.support.conversations import answered_with, choose, import_session, row
from tests.browser.support.driving import answered, ask
from tests.browser.support.live import QUESTION, Live
from tests.browser.support.profiles import profile
from tests.support.models.stub_llm import Refusal

# Touch targets under 40 px. A control within a line of text is exempt.
SMALL = """() => [...document.querySelectorAll('button, a.session-link, input, select, summary')]
  .filter((node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((node) => !node.closest('[inert]') && !node.matches('.offscreen, .text-button, .cite, .prose *'))
  .map((node) => [node, node.getBoundingClientRect()])
  .filter(([, box]) => box.width > 0 && (box.height < 39.5 || box.width < 39.5))
  .map(([node, box]) => `${node.id || node.className} ${Math.round(box.width)}×${Math.round(box.height)}`)"""
SMALL_IN_ROW = SMALL.replace("document", "document.querySelector('.meta')")
WIDER = "document.documentElement.scrollWidth - innerWidth"
# Over how many lines the buttons of a turn and what precedes them are spread.
LINES = """() => new Set([...document.querySelectorAll(".meta button")]
  .filter((node) => node.checkVisibility()).map((node) => node.getBoundingClientRect())
  .map(({ top, bottom }) => Math.round((top + bottom) / 2))).size"""
LONG = "一个很长很长的标题" * 8


@pytest_asyncio.fixture(loop_scope="session", params=[390, 320])
async def phone(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    size = ViewportSize(width=request.param, height=700)
    context = await profile(browser, locale="zh-CN", viewport=size, has_touch=True, is_mobile=True)
    page = await context.new_page()
    yield page
    await context.close()


async def test_nothing_is_wider_than_the_phone_and_every_target_fits_a_finger(
    phone: Page, server_url: str
) -> None:
    chat = import_session(server_url, LONG)
    await phone.goto(server_url)
    assert await phone.evaluate(WIDER) <= 0
    assert await phone.evaluate(SMALL) == []
    await phone.goto(f"{server_url}/#/s/{chat}")
    await phone.wait_for_selector(".turn")
    assert await phone.evaluate(WIDER) <= 0
    await phone.tap("#open-sidebar")
    await phone.wait_for_selector(".session")
    assert await phone.evaluate(WIDER) <= 0
    assert await phone.evaluate(SMALL) == []


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_menu_of_a_conversation_is_not_cut_off_and_works_by_touch(
    phone: Page, server_url: str
) -> None:
    """Discriminates: a menu inside the list, which cuts it off."""
    chat = import_session(server_url, "指尖上的")
    await phone.goto(server_url)
    await phone.tap("#open-sidebar")
    await phone.tap(f"{row(chat)} .row-menu")
    await phone.wait_for_selector(".menu-item")
    whole = """[...document.querySelectorAll('.menu-item')].every((item) => {
      const { left, right, top, bottom } = item.getBoundingClientRect();
      const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
      return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight && item.contains(there);
    })"""
    assert await phone.evaluate(whole)
    await choose(phone, "保留")
    await answered_with(phone, "已保留")
    await phone.wait_for_selector(f"{row(chat)} .pin")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_drawer_traps_the_focus_and_returns_it(phone: Page, server_url: str) -> None:
    """Discriminates: a page behind the drawer that the Tab key reaches."""
    import_session(server_url, "抽屉里的")
    await phone.goto(server_url)
    await phone.tap("#open-sidebar")
    await phone.wait_for_selector(".session")
    for _ in range(12):
        await phone.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('#sidebar')"
        assert await phone.evaluate(inside)
    await phone.focus("#close-sidebar")
    await phone.keyboard.press("Escape")
    await phone.wait_for_selector("#sidebar", state="hidden")
    assert await phone.evaluate("document.activeElement.id") == "open-sidebar"
    await phone.tap("#open-sidebar")
    await phone.wait_for_selector("body.sidebar-open #backdrop")
    width = (phone.viewport_size or {"width": 0})["width"]
    await phone.touchscreen.tap(width - 10, 300)
    await phone.wait_for_selector("#sidebar", state="hidden")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_opened_conversation_shows_its_title_in_the_bar(phone: Page, server_url: str) -> None:
    chat = import_session(server_url, LONG)
    await phone.goto(server_url)
    await phone.tap("#open-sidebar")
    await phone.tap(f"{row(chat)} .session-link")
    await phone.wait_for_selector(f"#topbar h1:has-text('{LONG}')")
    await phone.wait_for_selector("#sidebar", state="hidden")
    assert await phone.evaluate("document.activeElement.tagName") == "H1"
    await phone.tap(".head-menu")
    await choose(phone, "重命名")
    await phone.keyboard.type("短名")
    await phone.keyboard.press("Enter")
    await phone.wait_for_selector("#topbar h1:has-text('短名')")


async def test_enter_breaks_the_line_and_the_button_sends(phone: Page, server_url: str) -> None:
    """A phone's keyboard has no Shift+Enter. Discriminates: half a question sent by habit; no way to a second
    line; hints about keys that do not exist."""
    await phone.goto(server_url)
    await phone.tap("#question")
    await phone.keyboard.type("父子链\n是什么？")
    assert await phone.input_value("#question") == "父子链\n是什么？"
    assert await phone.get_attribute("#question", "enterkeyhint") == "enter"
    await phone.tap("#composer .send")
    await answered(phone)
    await phone.press("#question", "ArrowUp")
    await phone.keyboard.type("\n细说")
    assert await phone.locator(".question-editor textarea").input_value() == "父子链\n是什么？\n细说"
    assert "Esc" not in await phone.inner_text(".question-editor")


async def test_above_an_open_keyboard_the_answer_keeps_its_space(phone: Page, live: Live) -> None:
    """Discriminates: the persona's line and rows of switches beside a long question on a low window."""
    width = (phone.viewport_size or {"width": 390})["width"]
    await phone.set_viewport_size({"width": width, "height": 500})
    await phone.goto(live.url)
    await phone.tap("#question")
    await phone.fill("#question", "\n".join("一二三四五六"))
    await phone.wait_for_timeout(100)
    height = await phone.evaluate("document.querySelector('#dock').offsetHeight")
    assert height < 500 / 2
    assert await phone.evaluate(WIDER) <= 0


async def test_the_question_box_stays_above_the_keyboard(phone: Page, server_url: str) -> None:
    """The keyboard reduces the page's height, as interactive-widget asks of the browser."""
    await phone.goto(server_url)
    await ask(phone, "父子链是什么\uff1f")
    await answered(phone)
    width = (phone.viewport_size or {"width": 390})["width"]
    await phone.set_viewport_size({"width": width, "height": 380})
    await phone.tap("#question")
    box = await phone.locator("#question").bounding_box()
    assert box is not None
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 380
    assert "interactive-widget=resizes-content" in str(
        await phone.get_attribute("meta[name=viewport]", "content")
    )


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_buttons_of_a_turn_are_on_one_line_and_its_menu_has_the_others(
    phone: Page, server_url: str
) -> None:
    """Discriminates: buttons that wrap; some that are nowhere; a time that a phone never shows."""
    await phone.goto(server_url)
    await ask(phone, "父子链是什么\uff1f")
    await answered(phone)
    [first] = await ids(phone)
    for _ in range(2):
        assert await phone.evaluate(LINES) == 1
        assert await phone.evaluate(SMALL_IN_ROW) == []
        assert await phone.evaluate(WIDER) <= 0
        await phone.reload()
        await answered(phone)
    await phone.tap(".took")
    await phone.wait_for_selector(".stages:has-text('提问时间')")
    await phone.tap(".turn-more")
    await expect(phone.locator(".menu-item")).to_have_text(["修改问题", "重新回答", "提示词"])
    await choose(phone, "重新回答")
    await shows_version(phone, 1, "2/2")
    await answered(phone)
    assert await phone.evaluate(LINES) == 1
    assert await phone.evaluate(WIDER) <= 0
    assert await ids(phone) != [first]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_menu_of_a_turn_works_by_keyboard_and_returns_the_focus(
    phone: Page, server_url: str
) -> None:
    """Discriminates: a dialog opened while the menu still has the focus."""
    await phone.goto(server_url)
    await ask(phone, "父子链是什么\uff1f")
    await answered(phone)
    await phone.focus(".turn-more")
    await phone.keyboard.press("Enter")
    await phone.keyboard.press("End")
    await phone.keyboard.press("Enter")
    await phone.wait_for_selector(".prompt-dialog .prompt-part")
    await phone.keyboard.press("Escape")
    await expect(phone.locator(".turn-more")).to_be_focused()
    await phone.keyboard.press("Enter")
    await phone.keyboard.press("Enter")
    await expect(phone.locator(".question-editor textarea")).to_be_focused()
    await phone.keyboard.press("Escape")
    await expect(phone.locator(".turn-more")).to_be_focused()


async def test_why_a_question_was_not_answered_is_in_view_with_the_retry_button(
    phone: Page, live: Live
) -> None:
    """Discriminates: the reason and the button below the question box, where nobody looks."""
    await phone.goto(live.url)
    live.says("甲板上有灯。\n\n" * 30)
    await ask(phone, QUESTION)
    await answered(phone)
    live.says(refuse=lambda body: Refusal("no", 429))
    await ask(phone, "灯塔还有多高\uff1f")
    await phone.wait_for_selector(".error-card .retry")
    await phone.wait_for_function(
        """() => document.querySelector(".error-card .retry").getBoundingClientRect()
      .bottom <= document.querySelector("#dock").getBoundingClientRect().top""",
        timeout=5_000,
    )


async def test_enter_on_a_phone_opens_the_typed_library_command(phone: Page, server_url: str) -> None:
    """Discriminates: a line break below /模块."""
    await phone.goto(server_url)
    await phone.fill("#question", "/模块")
    await expect(phone.locator("#completions")).to_be_visible()
    await phone.press("#question", "Enter")
    await expect(phone.locator("dialog[open]")).to_be_visible()
    await expect(phone.locator("#question")).to_have_value("")
