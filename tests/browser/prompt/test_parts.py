"""The parts of a prompt: their shares of the window, the link to their turns, and the omitted ones."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from core.prompt.messages import Layout
from tests.browser.prompt.test_panel import opened, part, prompt
from tests.browser.safety.test_page_sources import WORDS, words_of
from tests.browser.support.driving import TURN_ID


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_window_is_shown_in_shares_with_their_names(page: Page, server_url: str) -> None:
    """Discriminates: shares of the prompt instead of the window; omitted parts included."""
    await opened(page, server_url, prompt())
    legend = await page.locator(".window-legend li").all_inner_texts()
    assert [each.replace("\n", " ") for each in legend] == [
        "系统提示 50 token · < 1%", "相关历史 30 token · < 1%", "问题 20 token · < 1%",
        "为回答预留 2048 token · 25%", "空闲 6044 token · 74%",
    ]  # fmt: skip
    widths = (
        "[...document.querySelectorAll('.window-bar > span')].map((piece) => parseFloat(piece.style.width))"
    )
    assert round(sum(await page.evaluate(widths))) == 100


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_part_links_to_its_turn_on_the_page(page: Page, server_url: str) -> None:
    """Discriminates: a link to a turn that is not on the page; the focus back on the button instead."""
    here = part("recent_history", 30, "说过的话。", turn_id=TURN_ID)
    await opened(page, server_url, prompt(parts=[here, part("summary", 5, "摘要。", turn_id="t3")]))
    await page.click(".prompt-part >> nth=1")
    assert await page.inner_text(".prompt-part >> nth=1 >> .part-turn") == "这一轮不在当前显示的对话里"
    await page.click(".prompt-part >> nth=0")
    await page.click(".part-turn button")
    await page.wait_for_selector("dialog.prompt-dialog", state="detached")
    assert await page.evaluate("document.activeElement.closest('.turn') !== null")
    assert await page.evaluate("document.activeElement.className") == "asked"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_passages_left_out_for_the_same_reason_share_a_row(page: Page, server_url: str) -> None:
    passages = [
        part("knowledge", 0, None, kept=False, reason="below_threshold", chunk_id=f"c{n}") for n in range(17)
    ]
    turns = [
        part("recent_history", 9, None, kept=False, reason="over_budget", turn_id=f"t{n}") for n in range(2)
    ]
    await opened(page, server_url, prompt(parts=[part("question", 20, "问？"), *turns, *passages]))
    rows = await page.locator(".prompt-part[data-state=dropped] .part-head").all_inner_texts()
    assert len(rows) == 3
    assert rows[2].split("\n") == ["知识库内容", "× 17", "用户", "没有放进去相关度不够"]
    await page.click("text=看看是哪些段落")
    assert await page.get_attribute("#prompt-retrieval-tab", "aria-selected") == "true"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_layout_of_the_parts_is_named_in_words(page: Page, server_url: str) -> None:
    """Discriminates: the server's name of a layout although the page has words; an unknown one left out."""
    await opened(page, server_url, prompt(layout="many_system"))
    assert await page.inner_text(".layout") == "多条系统消息"
    await page.evaluate("document.querySelector('#language').click()")
    assert await page.inner_text(".layout") == "several system messages"
    await opened(page, server_url, prompt(layout="of_tomorrow"))
    assert await page.inner_text(".layout") == "of_tomorrow"


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_layout_of_the_server_has_words(language: str) -> None:
    """Discriminates: a layout added later without words."""
    known = {key for file in WORDS for key in words_of(file, language)}
    assert [layout.value for layout in Layout if f"layout_{layout.value}" not in known] == []
