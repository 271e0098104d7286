"""A source in its context: the chunks around it, read from its document when the reader asks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.safety.payloads import HOSTILE
from tests.browser.sources.test_sources import shown
from tests.browser.support.driving import answered, ask, citation

SHOW = ".source-actions button >> nth=0"
IN_ORDER = "[...document.querySelectorAll('.context-chunk')].map((chunk) => chunk.textContent)"


def chunk(position: int, **changes: Any) -> dict[str, Any]:
    text = "前文。关键的一句。后文。" if position == 20 else f"第 {position} 段。" * 12
    whole = {
        "chunk_id": f"c{position}", "document_id": "d", "file_name": "指南.md", "text": text,
        "position": position, "heading": "概念" if position < 22 else "别的",
    }  # fmt: skip
    return {**whole, **changes}


async def answer_chunks(page: Page, **changes: Any) -> list[str]:
    """A document of 24 chunks, the twentieth being cited; the list receives the queries."""
    asked: list[str] = []

    async def fulfil(route: Route) -> None:
        query = route.request.url.split("?")[1]
        asked.append(query)
        before, after = (int(each.split("=")[1]) for each in query.split("&")[:2])
        body = chunk(20, **changes)
        body["neighbours"] = {
            "before": [chunk(at, **changes) for at in range(20 - before, 20)],
            "after": [chunk(at, **changes) for at in range(21, min(24, 20 + after) + 1)],
        }
        body["section"] = [chunk(at, **changes) for at in (19, 20, 21)]
        await route.fulfill(body=json.dumps(body), content_type="application/json")

    await page.route("**/chunks/*", fulfil)
    return asked


async def test_a_real_passage_is_shown_between_its_neighbours(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await ask(page, "父子链是什么？")
    await answered(page)
    await page.click(".cite >> nth=0")
    passage = await page.inner_text(".source[open] mark")
    await page.click(SHOW)
    await page.wait_for_selector(".context-chunk.here")
    assert await page.inner_text(".context-chunk.here mark") == passage
    assert await page.locator(".context-chunk").count() >= 3
    assert await page.is_visible(".source-text >> nth=0") is False
    assert await page.locator(".context").evaluate("(box) => box.clientHeight <= 400 && box.tabIndex === 0")
    await page.click(SHOW)
    assert await page.is_visible(".source-text >> nth=0")
    assert await page.inner_text(SHOW) == "查看上下文"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_more_can_be_read_on_either_side_and_the_passage_stays_in_view(
    page: Page, server_url: str
) -> None:
    """Discriminates: a chunk shown twice where neighbours and section overlap; text that jumps."""
    asked = await answer_chunks(page)
    await shown(page, server_url, "见 [1]", citation(chunk_id="c20"))
    await page.click(".cite")
    await page.click(SHOW)
    await page.wait_for_selector(".context-chunk.here")
    assert (await page.evaluate(IN_ORDER))[2] == "前文。关键的一句。后文。"
    assert await page.locator(".context-chunk").count() == 5
    assert await page.locator(".context-heading").all_inner_texts() == ["概念", "别的"]
    top = "document.querySelector('.here').getBoundingClientRect().top"
    before = await page.evaluate(top)
    await page.locator(".context button", has_text="往前再看").evaluate("(button) => button.click()")
    await expect(page.locator(".context-chunk")).to_have_count(9)
    assert abs(await page.evaluate(top) - before) < 2
    await page.locator(".context button", has_text="往后再看").click()
    await expect(page.locator(".context-chunk")).to_have_count(11)
    assert await page.locator(".context button").all_inner_texts() == ["往前再看"]
    assert asked == [f"before={b}&after={a}&section=true" for b, a in ((2, 2), (6, 2), (6, 6))]


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize(
    ("chunk_status", "document_status", "text"),
    [
        (404, 404, "这份文档已被删除，看不到上下文了。"),
        (404, 200, "文档里已没有这一段，它可能更新过，看不到上下文了。"),
        (503, 200, "存储暂时不可用。"),
        (0, 200, "上下文暂时读不到。"),
    ],
)
async def test_a_context_that_cannot_be_read_says_why(
    page: Page, server_url: str, chunk_status: int, document_status: int, text: str
) -> None:
    """Discriminates: the server's own sentence, in English on a Chinese page."""
    error = json.dumps(
        {"error": {"code": "store_unavailable", "message": "The store is away.", "retryable": True}}
    )

    async def refuse(route: Route) -> None:
        if chunk_status == 0:
            await route.abort()
            return
        is_chunk = "/chunks/" in route.request.url
        status = chunk_status if is_chunk else document_status
        await route.fulfill(status=status, body=error, content_type="application/json")

    await shown(page, server_url, "见 [1]", citation())
    await page.route("**/documents/d**", refuse)
    await page.click(".cite")
    await page.click(SHOW)
    await page.locator(".source-context p", has_text=text).wait_for()
    assert await page.is_visible(".context") is False


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_neighbours_stay_text(page: Page, server_url: str) -> None:
    hostile = "\n".join(HOSTILE)
    await answer_chunks(page, text=hostile, heading=HOSTILE[1])
    await shown(page, server_url, "见 [1]", citation(chunk_id="c20"))
    await page.click(".cite")
    await page.click(SHOW)
    await page.wait_for_selector(".context-chunk.here")
    assert (await page.evaluate(IN_ORDER))[0] == hostile
    assert await page.inner_text(".context-heading") == HOSTILE[1]
    assert await page.evaluate("typeof window.__ran") == "undefined"
    assert await page.locator(".source :is(script, img, iframe, svg, form, style)").count() == 0
