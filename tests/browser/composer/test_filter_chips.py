"""A limit that nothing meets any more leaves the question box, and the reader is told."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.composer.composing import Served, opened, sent_by, served, tell
from tests.browser.documents.panel import row

CHIPS = ".filters .chip"
NOTE = ".composer-note"
TEXT = "# 退款\n\n退款需要五天。"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("chips")) as running:
        running.add("留着.md", TEXT, "常")
        yield running


async def limit_to(page: Page, *documents: tuple[str, str]) -> None:
    ids, names = zip(*documents, strict=True)
    await tell(page, "filter", {"document_ids": ids, "names": names})
    await expect(page.locator(CHIPS)).to_have_count(len(documents))


def erase(desk: Served, document_id: str) -> None:
    httpx.delete(f"{desk.url}/documents/{document_id}").raise_for_status()


def stored_filters(desk: Served) -> str:
    listed = httpx.get(f"{desk.url}/documents").json()["documents"]
    return next(str(one["document_id"]) for one in listed if one["file_name"] == "留着.md")


async def open_panel(page: Page) -> None:
    await page.click(".foot-button.open-documents")
    await page.wait_for_selector("#documents[open] .document")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_document_that_the_reader_deletes_is_no_limit_any_more(page: Page, desk: Served) -> None:
    """Discriminates: the chip left, and every answer without sources."""
    deleted = desk.add("一.md", TEXT + "一")
    await opened(page, desk.url)
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
async def test_what_was_deleted_elsewhere_goes_when_the_list_is_read_again(page: Page, desk: Served) -> None:
    """Of two limits one stays. Discriminates: all chips taken, or none; a chip back after a reload."""
    remaining = stored_filters(desk)
    deleted = desk.add("二.md", TEXT + "二")
    await opened(page, desk.url)
    await limit_to(page, (deleted, "二.md"), (remaining, "留着.md"))
    erase(desk, deleted)
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
async def test_another_conversations_limit_is_looked_at_when_it_is_opened(page: Page, desk: Served) -> None:
    """Also after a reload. Discriminates: only the conversation that is open at the deletion."""
    deleted = desk.add("三.md", TEXT + "三")
    await opened(page, desk.url)
    await limit_to(page, (deleted, "三.md"))
    await sent_by(page, "退款\uff1f")
    await page.click("#sidebar .new-chat")
    await expect(page.locator(CHIPS)).to_have_count(0)
    erase(desk, deleted)
    async with page.expect_response("**/documents?*"):
        await page.reload()
    await page.go_back()
    await expect(page.locator(NOTE)).to_contain_text("三.md")
    await expect(page.locator(CHIPS)).to_have_count(0)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_document_that_the_list_does_not_show_keeps_its_chip(page: Page, desk: Served) -> None:
    """The first page is not all there is. Discriminates: what is not in the page read taken for deleted."""
    remaining = stored_filters(desk)
    await opened(page, desk.url)
    await limit_to(page, (remaining, "留着.md"))
    async with page.expect_response(f"**/documents/{remaining}"):
        await tell(page, "documents-read", {"document_ids": []})
    await tell(page, "documents-read", {"document_ids": [remaining]})
    await expect(page.locator(CHIPS)).to_have_count(1)
    await page.context.set_offline(True)
    await tell(page, "documents-read", {"document_ids": []})
    await expect(page.locator(CHIPS)).to_have_count(1)
    await page.context.set_offline(False)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_tag_that_no_document_has_any_more_goes(page: Page, desk: Served) -> None:
    """Discriminates: a chip of a tag that can no longer be unticked."""
    deleted = desk.add("四.md", TEXT + "四", "临时")
    await opened(page, desk.url)
    await tell(page, "filter", {"tags": ["临时", "常"]})
    await expect(page.locator(CHIPS)).to_have_text(["#临时", "#常"])
    erase(desk, deleted)
    await page.click("#search-settings-button")
    await expect(page.locator(CHIPS)).to_have_text(["#常"])
    await expect(page.locator(NOTE)).to_have_text("已没有文档带标签“临时”，提问不再限于它。")
