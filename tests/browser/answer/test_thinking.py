"""Thinking is folded unless the reader opened it, shows its duration, and is the same after a reload."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.support.driving import TURN_ID, answer_with, answered, ask, sse_body
from tests.browser.support.frame_costs import frame_costs
from tests.browser.support.live import QUESTION, Live

PANEL = "document.querySelector('.thinking').outerHTML.replace(' open=\"\"', '')"
HUGE = 1_000_000


@pytest.mark.full("a journey of seconds in a real browser")
async def test_thinking_is_folded_with_its_duration_and_the_same_after_a_reload(
    page: Page, live: Live
) -> None:
    """Discriminates: splitting the pieces by how they arrived; a duration that only the live page knows."""
    live.says("<think>", *["先看第一步。\n"] * 400, "</think>", "答。", pause_s=0.003)
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page)
    assert not await page.is_visible(".thinking-text")
    assert "思考了" in await page.inner_text(".thinking summary")
    live_panel = await page.evaluate(PANEL)
    assert live_panel.count("thinking-piece") > 1
    await page.reload()
    await answered(page)
    await page.locator(".thinking-piece").last.wait_for(state="attached")
    assert await page.evaluate(PANEL) == live_panel
    assert not await page.is_visible(".thinking-text")


async def test_a_reader_who_opens_running_thinking_finds_it_open_the_next_time(
    page: Page, live: Live
) -> None:
    """Discriminates: opening it for everyone; forgetting the choice."""
    live.says("<think>", *["想。"] * 30, "</think>", "答。", halts=(10,))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await page.wait_for_selector(".thinking.running")
    assert not await page.is_visible(".thinking-text")
    await page.click(".thinking summary")
    assert await page.is_visible(".thinking-text")
    live.resume()
    await answered(page)
    live.says("<think>", *["想。"] * 30, "</think>", "答。", halts=(10,))
    await ask(page, "港口什么时候结冰\uff1f")
    await page.wait_for_selector(".turn:nth-child(2) .thinking.running[open]")
    live.resume()
    await answered(page, turns=2)


async def test_thinking_never_reads_longer_than_its_answer(page: Page, live: Live) -> None:
    """Discriminates: thinking rounded to whole seconds, at least one, beside a total with tenths."""
    timings = {"thinking": 660.0, "first_token": 20.0, "generate": 810.0, "total": 815.0}
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "completed", "timings_ms": timings}
    events = [("SESSION", "x"), ("THINK", "想。"), ("CONTENT", "答"), ("SOURCE", [])]
    await answer_with(page, sse_body([*events, ("STATUS", finished), ("DONE", "")]))
    await page.goto(live.url)
    await ask(page, "?")
    await answered(page)
    assert await page.inner_text(".thinking summary") == "思考了 0.7 秒"
    assert await page.inner_text(".took-time") == "用时 0.8 秒"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_huge_thinking_does_not_slow_the_page(page: Page, live: Live) -> None:
    """Discriminates: a single text node for all of it, laid out again with every frame."""
    line = "这一行在想下一步怎么走，then it goes on in English for a while.\n"
    pieces = [("THINK", line * 100)] * (HUGE // (100 * len(line)))
    finished = {
        "stage": "finished",
        "turn_id": TURN_ID,
        "status": "completed",
        "timings_ms": {"thinking": 4200.0},
    }
    # split as by the server: an event's text ends with its line
    events = [("THINK", each) for _, text in pieces for each in text.splitlines(keepends=True)]
    await answer_with(
        page,
        sse_body(
            [("SESSION", "x"), *events, ("CONTENT", "答"), ("SOURCE", []), ("STATUS", finished), ("DONE", "")]
        ),
    )
    await page.goto(live.url)
    await page.evaluate("localStorage.setItem('wenmai.thinkingOpen', 'true')")
    async with frame_costs(page) as costs:
        await ask(page, "?")
        await answered(page)
        await page.evaluate("document.querySelector('.thinking-text').scrollTop = 1e9")
    text = await page.evaluate("document.querySelector('.thinking-text').textContent")
    assert text == "".join(text for _, text in events)
    assert "思考了 4.2 秒" in await page.inner_text(".thinking summary")
    print(f"1 MB of thinking: {costs.longest_ms:.0f} ms of {costs.total_ms:.0f}")
    assert 0 < costs.longest_ms < 200
