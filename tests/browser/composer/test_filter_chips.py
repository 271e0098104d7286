"""A filter that no longer matches anything leaves the question box, and the reader is notified."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.composer.composing import Served, opened, publish, sent_by, served
from tests.browser.documents.panel import row

CHIPS = ".filters .chip"
NOTE = ".composer-note"
TEXT = "# 退款\n\n退款需要五天。"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("chips")) as running:
        running.add("留着.md", TEXT, "常")
        yield running


async def limit_to(page: Page, *documents: tuple[str, str]) -> None:
    ids, names = zip(*documents, strict=True)
    await publish(page, "filter", {"document_ids": ids, "names": names})
    await expect(page.locator(CHIPS)).to_have_count(len(documents))


def erase(server: Served, document_id: str) -> None:
    httpx.delete(f"{server.url}/documents/{document_id}").raise_for_status()


def stored_filters(server: Served) -> str:
    listed = httpx.get(f"{server.url}/documents").json()["documents"]
    return next(str(one["document_id"]) for one in listed if one["file_name"] == "留着.md")


async def open_panel(page: Page) -> None:
    await page.click(".foot-button.open-documents")
    await page.wait_for_selector("#documents[open] .document")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_document_that_the_reader_deletes_is_no_longer_a_filter(page: Page, server: Served) -> None:
    """Discriminates: the chip left, and every answer without sources."""
    deleted = server.add("一.md", TEXT + "一")
    await opened(page, server.url)
    await limit_to(page, (deleted, "一.md"))
    await open_panel(page)
    await page.click(f"{row('一.md')} .document-remove")
    await page.click("dialog[open] .danger")
    await expect(page.locator(CHIPS)).to_have_count(0)
    await page.click("#documents .panel-head button")
    await expect(page.locator(NOTE)).to_have_text("“一.md”已被删除，提问不再限于它，现在查全部文档。")
    assert "filters" not in await sent_by(page, "退款需要几天\uff1f")
    await expect(page.locator(NOTE)).to_have_text("")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_filters_on_deleted_documents_go_when_the_list_is_reread(page: Page, server: Served) -> None:
    """Of two filters one stays. Discriminates: all chips removed, or none; a chip back after a reload."""
    remaining = stored_filters(server)
    deleted = server.add("二.md", TEXT + "二")
    await opened(page, server.url)
    await limit_to(page, (deleted, "二.md"), (remaining, "留着.md"))
    erase(server, deleted)
    await open_panel(page)
    await expect(page.locator(CHIPS)).to_have_text(["留着.md"])
    await page.click("#documents .panel-head button")
    await expect(page.locator(NOTE)).to_have_text("“二.md”已被删除，提问不再限于它。")
    await page.click("#language")
    await expect(page.locator(NOTE)).to_have_text(
        "“二.md” was deleted; questions are no longer limited to it."
    )
    assert (await sent_by(page, "退款\uff1f"))["filters"] == {"document_ids": [remaining]}
    await page.reload()
    await expect(page.locator(CHIPS)).to_have_text(["留着.md"])


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_document_deleted_in_another_tab_is_no_longer_a_filter(page: Page, server: Served) -> None:
    """Discriminates: only ids that were never listed are looked up, so that nothing is found any more."""
    deleted = server.add("四.md", TEXT + "四")
    remaining = stored_filters(server)
    await opened(page, server.url)
    await limit_to(page, (deleted, "四.md"), (remaining, "留着.md"))
    await publish(page, "documents-read", {"document_ids": [deleted, remaining]})
    erase(server, deleted)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator(CHIPS)).to_have_text(["留着.md"])
    await expect(page.locator(NOTE)).to_contain_text("四.md")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_another_conversations_filter_is_checked_when_it_is_opened(page: Page, server: Served) -> None:
    """Also after a reload. Discriminates: only the conversation that is open at the deletion."""
    deleted = server.add("三.md", TEXT + "三")
    await opened(page, server.url)
    await limit_to(page, (deleted, "三.md"))
    await sent_by(page, "退款\uff1f")
    await page.click("#sidebar .new-chat")
    await expect(page.locator(CHIPS)).to_have_count(0)
    erase(server, deleted)
    async with page.expect_response("**/documents?*"):
        await page.reload()
    await page.go_back()
    await expect(page.locator(NOTE)).to_contain_text("三.md")
    await expect(page.locator(CHIPS)).to_have_count(0)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_document_that_the_list_does_not_show_keeps_its_chip(page: Page, server: Served) -> None:
    """The first page is not the whole list. Discriminates: what is missing on the page that was read taken
    for deleted."""
    remaining = stored_filters(server)
    await opened(page, server.url)
    await limit_to(page, (remaining, "留着.md"))
    async with page.expect_response(f"**/documents/{remaining}"):
        await publish(page, "documents-read", {"document_ids": []})
    await publish(page, "documents-read", {"document_ids": [remaining]})
    await expect(page.locator(CHIPS)).to_have_count(1)
    await page.context.set_offline(True)
    await publish(page, "documents-read", {"document_ids": []})
    await expect(page.locator(CHIPS)).to_have_count(1)
    await page.context.set_offline(False)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_tag_that_no_document_has_any_more_is_removed(page: Page, server: Served) -> None:
    """Discriminates: a chip of a tag that can no longer be unticked."""
    deleted = server.add("四.md", TEXT + "四", "临时")
    await opened(page, server.url)
    await publish(page, "filter", {"tags": ["临时", "常"]})
    await expect(page.locator(CHIPS)).to_have_text(["#临时", "#常"])
    erase(server, deleted)
    await page.click("#search-settings-button")
    await expect(page.locator(CHIPS)).to_have_text(["#常"])
    await expect(page.locator(NOTE)).to_have_text("已没有文档带标签“临时”，提问不再限于它。")
