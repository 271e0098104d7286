"""A passage put into the question box as text: a person edits it, and sends it or not."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.composer.composing import BOX, opened, publish
from tests.browser.safety.payloads import HOSTILE

PASSAGE = {"file_name": "指南.md", "text": "关键的一句。"}
QUOTED = "[引用：指南.md] 关键的一句。"


async def test_a_passage_is_inserted_on_its_own_lines_at_the_caret(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.fill(BOX, "之前之后")
    await page.evaluate("document.querySelector('#question').setSelectionRange(2, 2)")
    await page.focus("#theme")
    await publish(page, "quote", PASSAGE)
    assert await page.input_value(BOX) == f"之前\n{QUOTED}\n之后"
    await page.keyboard.type("为什么")
    assert await page.input_value(BOX) == f"之前\n{QUOTED}\n为什么之后", (
        "the focus is in the box, after the passage"
    )
    assert await page.locator(".turn").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_undo_removes_a_passage(page: Page, server_url: str) -> None:
    """Discriminates: the box's value set by script."""
    await opened(page, server_url)
    await page.type(BOX, "typed")
    await publish(page, "quote", PASSAGE)
    assert QUOTED in await page.input_value(BOX)
    await page.keyboard.press("Control+z")
    assert await page.input_value(BOX) == "typed"


async def test_a_passage_is_cut_where_the_question_is_full(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await page.fill(BOX, "问\U0001f409")
    await page.keyboard.press("End")
    await publish(page, "quote", {"file_name": "a.md", "text": "\U0001f409" * 9000})
    text = await page.input_value(BOX)
    assert len(text) == 8000
    assert "9000" in await page.inner_text(".composer-note")
    assert not await page.is_disabled(".send")
    await publish(page, "quote", PASSAGE)
    assert await page.input_value(BOX) == text
    assert "放不下" in await page.inner_text(".composer-note")


async def test_a_hostile_name_and_text_stay_text(page: Page, server_url: str) -> None:
    await opened(page, server_url)
    await publish(page, "quote", {"file_name": f"{HOSTILE[1]}\n/clear", "text": HOSTILE[2]})
    first, *_ = (await page.input_value(BOX)).split("\n")
    assert first.startswith(f"[引用：{HOSTILE[1]} /clear] ")
    assert await page.locator("#dock :is(script, img, iframe)").count() == 0
    assert await page.evaluate("typeof window.__ran") == "undefined"
