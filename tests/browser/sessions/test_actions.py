"""What a reader does with a conversation: rename, keep, export, delete; and each action's message when it
fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.support.conversations import (
    answered_with,
    choose,
    erase,
    import_session,
    open_menu,
    row,
    stored,
)

# Once the server has sent its limits: days, sizes, and the file extensions that the chooser accepts.
WITH_LIMITS = "#documents input[type=file][accept*='.docx']"


async def refuse(route: Route) -> None:
    if route.request.method == "GET" and "/export" not in route.request.url:
        await route.fallback()
        return
    error = {"code": "unavailable", "message": "not now", "retryable": True, "request_id": "r"}
    await route.fulfill(status=503, json={"error": error})


async def test_a_conversation_is_renamed_in_place(page: Page, server_url: str) -> None:
    chat = import_session(server_url, "旧名")
    await page.goto(server_url)
    await open_menu(page, chat)
    await choose(page, "重命名")
    await page.keyboard.type("新名")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(f"{row(chat)}:has-text('新名')")
    assert stored(server_url, chat).json()["title"] == "新名"
    assert await page.evaluate("document.activeElement.className") == "session-link"


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("way", ["dblclick", "F2", "menu"])
async def test_the_open_conversation_is_renamed_at_its_title(page: Page, server_url: str, way: str) -> None:
    chat = import_session(server_url, "旧名")
    await page.goto(f"{server_url}/#/s/{chat}")
    await page.wait_for_selector("h1:has-text('旧名')")
    if way == "dblclick":
        await page.dblclick("h1")
    elif way == "F2":
        await page.press(".head-menu", "F2")
    else:
        await page.click(".head-menu")
        await choose(page, "重命名")
    await page.keyboard.type("新的标题")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("h1:has-text('新的标题')")
    await page.wait_for_selector(f"{row(chat)}:has-text('新的标题')")
    assert await page.title() == "新的标题 · Wenmai"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_name_that_is_not_saved_stays_in_its_field(page: Page, server_url: str) -> None:
    """Discriminates: a swallowed failure; a field that closes before the server has confirmed."""
    chat = import_session(server_url, "旧名")
    await page.goto(server_url)
    await page.route(f"**/sessions/{chat}", refuse)
    await page.press(f"{row(chat)} .session-link", "F2")
    await page.keyboard.type("新名")
    await page.keyboard.press("Enter")
    await answered_with(page, "没能改名。服务器正忙")
    assert await page.input_value(".rename") == "新名"
    await page.keyboard.press("Escape")
    assert await page.inner_text(f"{row(chat)} .session-title") == "旧名"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_kept_conversation_has_a_pin_and_others_show_their_expiry(
    page: Page, server_url: str
) -> None:
    chat = import_session(server_url, "要留着的", days_ago=3)
    await page.goto(server_url)
    await page.wait_for_selector(WITH_LIMITS, state="attached")
    await open_menu(page, chat)
    assert "满 30 天后清理" in await page.inner_text(".menu-note")
    await choose(page, "保留")
    await answered_with(page, "已保留")
    assert await page.get_attribute(f"{row(chat)} .pin", "title") == "已保留，清理时不会删除。"
    assert stored(server_url, chat).json()["hold"] is True
    await open_menu(page, chat)
    assert await page.inner_text(".menu-note") == "已保留，清理时不会删除。"
    await choose(page, "不再保留")
    await page.wait_for_selector(f"{row(chat)} .pin", state="hidden")
    assert stored(server_url, chat).json()["hold"] is False


def read(file: Path) -> str:
    return file.read_text("utf-8")


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("words", ["Markdown", "JSON"])
async def test_a_conversation_is_exported_as_a_file_with_its_title(
    page: Page, server_url: str, words: str
) -> None:
    chat = import_session(server_url, "带走/的\u202e对话", turns=2)
    await page.goto(server_url)
    await open_menu(page, chat)
    async with page.expect_download() as downloading:
        await choose(page, words)
    download = await downloading.value
    text = read(await download.path())
    assert "第 2 个问题" in text
    assert "回答 2" in text
    if words == "JSON":
        assert [turn["question"] for turn in json.loads(text)["turns"]] == ["第 1 个问题", "第 2 个问题"]
    assert download.suggested_filename == f"带走 的 对话.{'md' if words == 'Markdown' else 'json'}"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_failed_export_says_why(page: Page, server_url: str) -> None:
    chat = import_session(server_url, "带不走的")
    await page.goto(server_url)
    await page.route("**/export?*", refuse)
    await open_menu(page, chat)
    await choose(page, "JSON")
    await answered_with(page, "没能导出。服务器正忙")


async def test_a_deleted_conversation_disappears_with_its_turns_and_says_how_many(
    page: Page, server_url: str
) -> None:
    chat = import_session(server_url, "不要的", turns=3)
    await page.goto(f"{server_url}/#/s/{chat}")
    await page.wait_for_selector(".turn:nth-child(3)")
    await open_menu(page, chat)
    await choose(page, "删除")
    assert "3 轮问答" in await page.inner_text(".small-dialog")
    await page.click(".small-dialog .danger")
    await answered_with(page, "已抹去 3 轮问答")
    await page.wait_for_selector("body.empty")
    await expect(page.locator(row(chat))).to_have_count(0)
    assert stored(server_url, chat).status_code == 404


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_conversation_that_could_not_be_deleted_stays_and_says_why(
    page: Page, server_url: str
) -> None:
    """Discriminates: a swallowed failure; a row removed before the server's answer."""
    chat = import_session(server_url, "留下的")
    await page.goto(f"{server_url}/#/s/{chat}")
    await page.wait_for_selector(".turn")
    await page.route(f"**/sessions/{chat}", refuse)
    await open_menu(page, chat)
    await choose(page, "删除")
    await page.click(".small-dialog .danger")
    await answered_with(page, "没能删除，什么也没有抹去。服务器正忙")
    assert await page.is_visible(row(chat))
    assert await page.is_visible(".turn")


async def test_a_conversation_that_another_tab_deleted_leaves_the_list(page: Page, server_url: str) -> None:
    chat = import_session(server_url, "别处删了的")
    await page.goto(server_url)
    await open_menu(page, chat)
    erase(server_url, chat)
    await choose(page, "删除")
    await answered_with(page, "找不到这段对话")
    await page.wait_for_selector(row(chat), state="detached")
