"""Memory on the page: below the answer that used it, and in its panel."""

from __future__ import annotations

import httpx
from playwright.async_api import Page, expect

from tests.browser.branches.branching import Stubbed


async def test_an_answer_shows_the_memories_it_received_and_each_can_be_corrected(
    page: Page, stubbed: Stubbed
) -> None:
    """Discriminates: a line that exists only while the answer streams; a correction that is not stored."""
    async with httpx.AsyncClient(base_url=stubbed.url, timeout=60) as client:
        await client.delete("/memories", params={"confirm": "all"})
        await client.post("/memories", json={"content": "用户的名字是张三<b>"})
    await page.goto(stubbed.url)
    await page.fill("#question", "我叫什么？")
    await page.press("#question", "Enter")
    await expect(page.locator(".turn")).to_have_attribute("data-status", "completed")
    await expect(page.locator(".used-memories summary")).to_have_text("用到了 1 条记忆")
    await page.reload()
    await page.click(".used-memories summary")
    await expect(page.locator(".used-memories li > span >> nth=0")).to_have_text("用户的名字是张三<b>")
    await expect(page.locator(".used-memories summary .icon")).to_be_visible()
    await page.click("text=这条不对")
    await page.fill(".memory-list input", "用户的名字是李四")
    await page.click(".memory-list .button.primary")
    await expect(page.locator(".memory-list li > p >> nth=0")).to_have_text("用户的名字是李四")


async def test_a_memory_that_no_longer_holds_shows_its_end_date(page: Page, stubbed: Stubbed) -> None:
    """Discriminates: a full stop behind its buttons, as behind the words for the end of a turn."""
    async with httpx.AsyncClient(base_url=stubbed.url, timeout=60) as client:
        await client.delete("/memories", params={"confirm": "all"})
        for name in ("张三", "李四"):
            await client.post("/memories", json={"content": f"用户的名字是{name}"})
    await page.goto(stubbed.url)
    await page.click("#open-memory")
    ended = page.locator(".memory-list li.ended")
    await expect(ended).to_contain_text("为止")
    assert await ended.evaluate("item => getComputedStyle(item, '::after').content") == "none"


async def test_the_panel_adds_searches_forgets_and_switches_off(page: Page, stubbed: Stubbed) -> None:
    async with httpx.AsyncClient(base_url=stubbed.url, timeout=60) as client:
        await client.delete("/memories", params={"confirm": "all"})
        await page.goto(stubbed.url)
        await page.click("#open-memory")
        await expect(page.locator("#memories .faint >> text=没有记住的事")).to_be_visible()
        for content in (
            "我养蜜蜂",
            "我喜欢红茶",
            "我的密码是hunter2",
        ):  # each typed while the last one is added
            await page.fill(".memory-add input", content)
            await page.click(".memory-add .button")
        await expect(page.locator(".memory-notice")).to_have_text("这件事不能记住。")
        await expect(page.locator(".memory-list li")).to_have_count(2)
        await page.fill("#memories input[type=search]", "蜜蜂")
        await expect(page.locator(".memory-list li")).to_have_count(1)
        await page.click(".memory-list li >> text=忘掉")
        await page.click("dialog.small-dialog .danger")
        await expect(page.locator(".memory-list li")).to_have_count(0)
        async with page.expect_response("**/memories/switch"):
            await page.uncheck(".memory-switch input")
        body = (await client.get("/memories")).json()
        assert ([memory["content"] for memory in body["memories"]], body["on"]) == (["我喜欢红茶"], False)
        await client.put("/memories/switch", json={"on": True})
