"""The library's picker, and the prompt templates that a slash completes."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Page

from tests.browser.composer.composing import BOX, Served, opened, sent_by, session_in
from tests.browser.support.driving import answered

PERSONAS = """# 售前
你是售前顾问，先问用途。

# 售后
你是售后顾问，先致歉。

# 周报
总结{项目}在{日期}的进展，只写{项目}。
"""
ENTRY = ".library-entry"
CARD = ".persona-card"


def uploaded(server: Served) -> None:
    for path in ("客服/人设.md", "日常/闲谈.md"):
        httpx.put(f"{server.url}/library/{path}", content=PERSONAS.encode()).raise_for_status()


async def open_picker(page: Page, command: str = "/模块") -> None:
    await page.type(BOX, command)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(ENTRY)


async def choose(page: Page, *names: str) -> None:
    for name in names:
        await page.click(f"{ENTRY}:has-text('{name}')")
    await page.wait_for_selector(".library-text")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_item_becomes_the_persona_and_another_replaces_it_under_the_same_id(
    page: Page, server: Served
) -> None:
    """Discriminates: a persona that is lost after a reload, or recreated when it is replaced."""
    uploaded(server)
    await opened(page, server.url)
    await sent_by(page, "first")
    await open_picker(page)
    await choose(page, "客服", "人设", "售前")
    assert "先问用途" in await page.inner_text(".library-text")
    await page.click("text=设置为系统提示词")
    await page.wait_for_selector(f"{CARD} b:text('售前')")
    assert await page.locator("dialog.library").count() == 0
    first = server.persona_of(session_in(page))
    assert (first["batch_name"], first["item"]) == ("人设", "售前")
    await page.reload()
    await page.wait_for_selector(f"{CARD} .persona-from:text('来自 人设')")
    await open_picker(page, "/library")
    await choose(page, "客服", "人设", "售后")
    assert "会替换现在的人设" in await page.inner_text("dialog.library")
    await page.click("text=设置为系统提示词")
    await page.wait_for_selector(f"{CARD} b:text('售后')")
    second = server.persona_of(session_in(page))
    assert (second["persona_id"], second["item"]) == (first["persona_id"], "售后")
    await sent_by(page, "second", 2)
    assert "你是售后顾问" in server.system()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_persona_chosen_before_the_first_question_is_sent_with_it(page: Page, server: Served) -> None:
    uploaded(server)
    await opened(page, server.url)
    await open_picker(page)
    await choose(page, "客服", "人设", "售前")
    await page.click("text=设置为系统提示词")
    await page.wait_for_selector(f"{CARD} b:text('售前')")
    await page.reload()
    await sent_by(page, "first")
    assert server.persona_of(session_in(page))["batch_name"] == "人设"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_item_is_put_into_the_box_for_editing_and_not_sent(page: Page, server: Served) -> None:
    """Discriminates: an item that is sent at once, or replaces what was typed."""
    uploaded(server)
    await opened(page, server.url)
    await page.fill(BOX, "请看：\n/模块")
    await page.press(BOX, "Enter")
    await choose(page, "客服", "人设", "售前")
    await page.click("text=作为对话内容")
    quoted = "请看：\n[引用: 人设]\n标题: 售前\n内容: 你是售前顾问，先问用途。\n"
    assert await page.input_value(BOX) == quoted
    await page.keyboard.type("怎么改？")
    assert await page.input_value(BOX) == f"{quoted}怎么改？"
    assert await page.locator(".turn").count() == 0
    await page.keyboard.press("Enter")
    await answered(page)
    assert "标题: 售前" in str(server.model.bodies[-1]["messages"])


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_picker_is_used_with_the_keyboard_alone(page: Page, server: Served) -> None:
    """Discriminates: a way back that forgets the position; Esc that loses what was typed."""
    uploaded(server)
    await opened(page, server.url)
    await page.click("#language")
    await page.type(BOX, "/li")
    assert "/library" in await page.inner_text("#completions")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(ENTRY)
    focused = "document.activeElement.dataset.name"
    await page.keyboard.press("ArrowDown")
    second = await page.evaluate(focused)
    await page.keyboard.press("ArrowRight")
    await page.wait_for_selector(".library-path li >> nth=1")
    await page.keyboard.press("Backspace")
    await page.wait_for_selector(".library-path li >> nth=1", state="detached")
    assert await page.evaluate(focused) == second
    for depth in (1, 2, 3):
        await page.keyboard.press("Enter")
        await page.wait_for_selector(f".library-path li >> nth={depth}")
    assert await page.evaluate("document.activeElement.className") == "library-text"
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Use in the conversation"
    await page.keyboard.press("Enter")
    assert (await page.input_value(BOX)).startswith("[Quote: ")
    assert await page.evaluate("document.activeElement.id") == "question"
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("/library")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(ENTRY)
    await page.keyboard.press("Escape")
    await page.wait_for_selector("dialog.library", state="detached")  # on its event, one task later
    quoted = await page.input_value(BOX)
    assert quoted.startswith("[Quote: ")
    await page.keyboard.type("And?")
    assert await page.input_value(BOX) == f"{quoted}And?", "the caret is where it was"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_template_is_completed_and_its_variables_are_tab_stops(page: Page, server: Served) -> None:
    """Discriminates: a variable that is filled only in the first of its places."""
    uploaded(server)
    await opened(page, server.url)
    await page.type(BOX, "/周")
    await page.wait_for_selector("#completions >> text=周报")
    await page.keyboard.press("Enter")
    assert await page.input_value(BOX) == "总结{项目}在{日期}的进展，只写{项目}。"
    assert "Tab" in await page.inner_text("#composer .hint")
    await page.keyboard.type("问脉")
    await page.keyboard.press("Tab")
    assert await page.input_value(BOX) == "总结问脉在{日期}的进展，只写问脉。"
    await page.keyboard.type("今天")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.id") != "question", "the last one lets the focus go on"
    assert await page.locator(".turn").count() == 0
    assert await page.input_value(BOX) == "总结问脉在今天的进展，只写问脉。"
