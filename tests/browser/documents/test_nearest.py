"""An answer without hits names the nearest headings: a click opens the passage in its document."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from tests.browser.documents.panel import a_file, choose, open_panel, read_in
from tests.browser.support.driving import answered, ask
from tests.support.servers.server import running_server

LEAVE = "# 年假\n\n员工每年有 17 天带薪年假。\n\n# 病假\n\n病假凭医院证明，每年不超过 30 天。\n"


@pytest.fixture(scope="module")
def strict_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nearest")
    with running_server(folder, LOAD_SAMPLE="false", RERANK_SCORE_THRESHOLD="1") as server:
        yield server.url


async def test_a_heading_in_an_answer_opens_its_passage(page: Page, strict_url: str) -> None:
    """Discriminates: a sanitiser that removes the link; a link that leaves the conversation."""
    await open_panel(page, strict_url)
    await choose(page, a_file("休假.md", LEAVE))
    await read_in(page, "休假.md")
    await page.keyboard.press("Escape")
    await ask(page, "病假要什么证明？")
    await answered(page)
    link = page.locator(".prose a", has_text="病假 · 休假.md")
    assert await link.get_attribute("target") is None
    address = page.url
    await link.click()
    await expect(page.locator(".document-view .chunk.called .chunk-text")).to_contain_text("医院证明")
    assert page.url == address


async def test_a_deleted_passage_says_so(page: Page, strict_url: str) -> None:
    await page.goto(
        f"{strict_url}/#/d/5b1f6a9e-9c7d-4a0e-b2a4-2f3e1d0c9b88/e2b6f1d4-1f5c-5c0a-8f3b-6a7d8e9f0a12"
    )
    await expect(page.locator(".document-notice.failed")).to_contain_text("可能已被删除")
