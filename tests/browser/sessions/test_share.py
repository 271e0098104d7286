"""A link to the displayed branch: created and revoked on the page, and opened by somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import time_machine
from playwright.async_api import Page, expect

from tests.browser.support.conversations import choose
from tests.browser.support.profiles import profile
from tests.support.servers.app import make_settings, serving

ROOT, LEFT, RIGHT = (f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2, 3))
TURNS = [
    {"turn_id": ROOT, "question": "灯塔是什么？", "answer": "一座塔。"},
    {"turn_id": LEFT, "parent_turn_id": ROOT, "question": "左边的问题", "answer": "左边的回答"},
    {"turn_id": RIGHT, "parent_turn_id": ROOT, "question": "右边的问题", "answer": "右边的回答"},
]
ADDRESS = ".share-link input"


@asynccontextmanager
async def shared(page: Page, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A link to the left branch, although the right one is the newest; the page shows it in its dialog."""
    async with serving(make_settings(folder)) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        body = {"title": "灯塔", "turns": TURNS}
        session = (await http.post("/sessions/import", json=body)).raise_for_status().json()["session_id"]
        await page.goto(f"{url}/#/s/{session}/{LEFT}")
        await expect(page.locator(".turn").last).to_contain_text("左边的回答")
        await page.click(".head-menu")
        await choose(page, "分享链接")
        await page.click("text=生成链接")
        await expect(page.locator(".share-list li")).to_have_count(1)
        yield {"url": url, "address": await page.input_value(ADDRESS), "session": session}


@asynccontextmanager
async def stranger(page: Page) -> AsyncIterator[Page]:
    """Another browser, without any data of the first one."""
    assert page.context.browser
    context = await profile(page.context.browser)
    yield await context.new_page()
    await context.close()


async def status(page: Page, address: str) -> int:
    response = await page.goto(address)
    assert response
    return response.status


async def test_whoever_has_the_link_reads_the_branch_and_reaches_nothing_else(
    page: Page, tmp_path: Path
) -> None:
    """Discriminates: the newest branch, although another one is displayed; a link in the page that leads
    further."""
    async with shared(page, tmp_path) as link, stranger(page) as reader:
        asked: list[str] = []
        reader.on("request", lambda request: asked.append(request.url))
        assert await status(reader, link["address"]) == 200
        await expect(reader.locator("section")).to_have_count(2)
        await expect(reader.locator("body")).to_contain_text("左边的回答")
        await expect(reader.locator("body")).not_to_contain_text("右边的回答")
        assert await reader.locator("a, script, form, iframe, img").count() == 0
        assert [url for url in asked if url != link["address"] and "favicon" not in url] == []
        assert link["session"] not in await reader.content()


async def test_a_revoked_link_opens_nothing(page: Page, tmp_path: Path) -> None:
    """Discriminates: a focus that is lost with the button, so that Tab begins anywhere."""
    async with shared(page, tmp_path) as link, stranger(page) as reader:
        await page.click("text=撤销")
        await expect(page.locator(".share-list li")).to_have_count(0)
        await expect(page.locator(ADDRESS)).to_be_hidden()
        await expect(page.locator(".share-row select")).to_be_focused()
        assert await status(reader, link["address"]) == 404


@pytest.mark.full("a second server")
async def test_an_expired_link_opens_nothing_and_is_no_longer_listed(page: Page, tmp_path: Path) -> None:
    async with shared(page, tmp_path) as link, stranger(page) as reader:
        await page.reload()
        with time_machine.travel(timedelta(days=7, minutes=1)):
            assert await status(reader, link["address"]) == 404
            await page.click(".head-menu")
            async with page.expect_response("**/shares") as listed:
                await choose(page, "分享链接")
            assert (await (await listed.value).json())["shares"] == []
