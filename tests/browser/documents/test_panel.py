"""The list of documents: failures in words, filtered, long, shared, with hostile names, on a phone."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, Request, expect

from tests.browser.documents.panel import (
    a_file,
    answer,
    choose,
    document,
    lists,
    open_panel,
    replying,
    row,
    words,
)
from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.frame_costs import frame_costs

NAME = "指南.md"

KEEP_PLACE = """() => {
  const keep = () => (window.__top = document.querySelector("#documents").scrollTop);
  addEventListener("click", keep, { capture: true, once: true });
}"""


async def test_failed_documents_say_why_in_the_readers_language(page: Page, server_url: str) -> None:
    locked = "The PDF is protected by a password: save it without one and add that."
    shown = [
        document("锁.pdf", status="failed", error=locked, chunk_count=0, source="docs"),
        document("新.md", error="The file is empty."),
    ]
    await lists(page, shown)
    await open_panel(page, server_url)
    assert "有密码" in await words(page, f"{row('锁.pdf')} .document-state")
    assert "旧版本" in await words(page, f"{row('新.md')} .document-state")
    assert "来自文件夹 docs" in await words(page, row("锁.pdf"))
    await page.click(f"{row('锁.pdf')} .document-open")
    assert locked in (await page.text_content(".document-about .original") or "")
    assert await page.locator("[data-action=ask]").count() == 0


async def test_a_document_says_how_many_of_its_pages_were_not_read(page: Page, server_url: str) -> None:
    """Discriminates: a note about none, and one without what to do."""
    await lists(page, [document("扫描.pdf", unread_pages=2), document("合同.pdf", unread_pages=0)])
    await open_panel(page, server_url)
    note = "2 页没有可读的文字，没有读入：装好文字识别（OCR）后，删除再添加"
    assert note in await words(page, f"{row('扫描.pdf')} .document-facts")
    assert "没有可读的文字" not in await words(page, f"{row('合同.pdf')} .document-facts")
    await page.keyboard.press("Escape")
    await page.click("#language")
    facts = page.locator(f"{row('扫描.pdf')} .document-facts")
    await expect(facts).to_contain_text(
        "2 pages without readable text were left out: install text recognition"
    )


@pytest.mark.parametrize(("sample", "shown"), [(True, True), (False, False)])
async def test_questions_about_the_guide_are_suggested_only_if_it_is_loaded(
    page: Page, server_url: str, sample: bool, shown: bool
) -> None:
    """Discriminates: questions that are refused; questions suggested to readers who only have documents of
    their own."""
    await lists(page, [document(), document("其他.md", sample=sample)])
    await page.goto(server_url)
    await expect(page.locator(".document-count").first).to_have_text("2")
    assert await page.locator(".examples").is_visible() is shown


@pytest.mark.full("waits as long as the page does for the sample of a first start")
async def test_an_empty_list_says_so_and_suggests_no_question(page: Page, server_url: str) -> None:
    """Discriminates: questions about the guide, which a server without it refuses."""
    await lists(page, [])
    await page.goto(server_url)
    assert await page.locator(".examples").is_visible()  # a first start would load it now
    note = page.locator("#sample-progress")
    await expect(note).to_have_text("还没有文档。上传一份，就可以提问了。")
    assert not await page.locator(".examples").is_visible()
    await page.click("#language")
    await expect(note).to_have_text("No documents yet. Upload one to start asking questions.")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_of_a_synced_document_only_the_date_can_be_changed(page: Page, server_url: str) -> None:
    """Discriminates: tags sent for a synced document, which the server refuses."""
    changes: list[Any] = []
    page.on("request", lambda one: changes.append(one.post_data_json) if one.method == "PATCH" else None)
    conflict = {"error": {"code": "conflict", "message": "The tags are set elsewhere.", "retryable": False}}
    await lists(page, [document(source="docs", tags=["a"])])
    await answer(page, "**/chunks?*", {"chunks": [], "next": None})
    await replying(page, "PATCH", f"{server_url}/documents/*", (409, conflict))
    await open_panel(page, server_url)
    await page.click(f"{row(NAME)} .document-open")
    await page.click("[data-action=edit]")
    assert await page.locator(".document-form input >> nth=0").is_disabled()
    await page.fill(".document-form input >> nth=1", "2026")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".form-problem:has-text('配置')")
    assert changes == [{"date": "2026"}]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_list_is_filtered_by_the_server(page: Page, server_url: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: note(request, asked))
    await lists(page, [document(), document("二.md", tags=["人事"])])
    await answer(page, "**/sources", {"sources": [{"source": "docs", "documents": 1, "synced_at": None}]})
    await answer(page, "**/tags", {"tags": [{"tag": "人事", "documents": 1}]})
    await open_panel(page, server_url)
    for label, value in (("任何状态", "ready"), ("任何来源", "docs"), ("任何标签", "人事")):
        async with page.expect_request(f"**/documents?*={quote(value)}"):  # beside other requests
            await page.select_option(f"select[aria-label={label}]", value)
    assert asked[-1] == "limit=100&status=ready&source=docs&tag=%E4%BA%BA%E4%BA%8B"
    await page.evaluate("part('base/i18n.js').then((words) => words.toggleLanguage())")
    assert await page.evaluate(CUT_OFF) == []


# The row widths at which the placeholder of the empty field is wider than the field.
CUT_OFF = """() => {
  const row = document.querySelector(".document-filter");
  const field = row.querySelector(".document-search");
  const { font, paddingLeft, paddingRight } = getComputedStyle(field);
  const pen = Object.assign(document.createElement("canvas").getContext("2d"), { font });
  const needs = pen.measureText(field.placeholder).width + parseFloat(paddingLeft) + parseFloat(paddingRight);
  const isCut = (width) => (row.style.width = `${width}px`) && field.clientWidth < needs;
  return Array.from({ length: 400 }, (_, at) => 260 + at).filter(isCut);
}"""


def note(request: Request, asked: list[str]) -> None:
    if "/documents?" in request.url:
        asked.append(request.url.partition("?")[2])


@pytest.mark.full("a journey of seconds in a real browser")
async def test_three_hundred_documents_are_drawn_without_a_long_pause_and_the_scroll_position_stays(
    page: Page, server_url: str
) -> None:
    """Discriminates: redrawing everything for each page; jumping back to the top."""
    await lists(page, [document(f"文档 {n}.md") for n in range(300)])
    await answer(page, "**/chunks?*", {"chunks": [], "next": None})
    async with frame_costs(page) as costs:
        await open_panel(page, server_url)
        for n in (100, 200, 300):
            await page.wait_for_selector(f".document:nth-child({n})", state="attached")
            await page.locator("#documents").evaluate("(panel) => panel.scrollTo(0, panel.scrollHeight)")
        await page.fill(".document-search", "文档 299")
        assert await page.locator(".document:visible").count() == 1
        await page.fill(".document-search", "")
    target = page.locator(row("文档 250.md"))
    await page.evaluate(KEEP_PLACE)
    await target.locator(".document-open").click()
    await page.click(".document-back")
    moved = await page.evaluate("document.querySelector('#documents').scrollTop - window.__top")
    assert abs(moved) < 60
    focused = await page.evaluate("document.activeElement.querySelector('.document-name').textContent")
    assert focused == "文档 250.md"
    assert 0 < costs.longest_ms < 1_000  # of CPU on a loaded machine; unloaded it is a tenth of that


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_name_far_down_the_list_is_found_without_a_click(page: Page, server_url: str) -> None:
    """Discriminates: a search of what happens to be loaded, which says that no document matches."""
    await lists(page, [document(f"文档 {n}.md", chunk_count=0) for n in range(300)])
    await replying(page, "DELETE", "**/documents/*", (200, {}))
    await open_panel(page, server_url)
    await page.click(f"{row('文档 5.md')} .document-remove")
    await expect(page.locator(".small-dialog p")).to_have_text("删除“文档 5.md”？")  # it has no passage
    await page.click(".small-dialog .danger")
    await page.wait_for_selector(".document:nth-child(150)", state="attached")  # only loaded ones count
    await expect(page.locator(".document-count").first).to_have_text("100+")
    await page.fill(".document-search", "文档 299")
    await expect(page.locator(".document:visible")).to_have_count(1)
    await page.fill(".document-search", "无此文档")
    await expect(page.locator(".list-note")).to_be_visible()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_shared_documents_of_the_operator_are_read_only(page: Page, server_url: str) -> None:
    """With a key the reader is that key's owner; without one it is whoever sits at the server."""
    await lists(page, [document(shared=True), document("自己的.md")])
    await page.add_init_script("sessionStorage.setItem('wenmai.key', 'k')")
    await open_panel(page, server_url)
    assert "公用" in await words(page, row(NAME))
    assert await page.locator(f"{row(NAME)} .document-remove").count() == 0
    assert await page.locator(f"{row('自己的.md')} .document-remove").count() == 1
    await page.click(f"{row(NAME)} .document-open")
    assert await page.locator("[data-action=edit], [data-action=remove]").count() == 0


async def test_the_sample_is_removed_by_one_click_and_a_confirmation(page: Page, server_url: str) -> None:
    """Discriminates: removing without asking; a button that stays, or that a reader without permission gets;
    both languages of the guide under one name."""
    paths = [f"{language}/guide.md" for language in ("zh", "en", "fr")]
    sample = [
        document("guide.md", document_id=path, external_id=path, shared=True, sample=True) for path in paths
    ]
    await lists(page, [document("自己的.md"), *sample])
    await replying(page, "DELETE", "**/documents/sample", (200, {"documents": 3, "chunks": 9, "left": 0}))
    await open_panel(page, server_url)
    await page.click("[data-action=remove-sample]")
    await page.click(".small-dialog button[type=button]")  # changed their mind
    await expect(page.locator(row("en/guide.md"))).to_be_visible()
    await lists(page, [document("自己的.md")])
    await page.click("[data-action=remove-sample]")
    async with page.expect_request(lambda one: one.method == "DELETE"):
        await page.click(".small-dialog button.danger")
    await page.wait_for_selector(".document-notice:has-text('3 份文档，9 个片段')")
    await expect(page.locator(".document")).to_have_count(1)
    await expect(page.locator("[data-action=remove-sample]")).to_be_hidden()
    await page.add_init_script("sessionStorage.setItem('wenmai.key', 'k')")
    await lists(page, [document("自己的.md"), *sample])
    await open_panel(page, server_url)
    await expect(page.locator(row("en/guide.md"))).to_be_visible()
    await expect(page.locator("[data-action=remove-sample]")).to_be_hidden()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_names_and_passages_stay_text_on_a_phone(page: Page, server_url: str) -> None:
    """Discriminates: any name, tag, reason or passage set as markup; a row wider than the page."""
    hostile = "".join(HOSTILE[:6])
    shown = document(hostile, tags=[HOSTILE[1]], source=HOSTILE[2], date=HOSTILE[1], error=hostile)
    chunk = {"chunk_id": "c", "document_id": "d", "file_name": hostile, "text": hostile * 9, "position": 0,
             "heading": hostile, "page": 3}  # fmt: skip
    await page.set_viewport_size({"width": 320, "height": 640})
    await lists(page, [shown])
    await answer(page, "**/chunks?*", {"chunks": [chunk], "next": None})
    refusal = {"error": {"code": "odd", "message": hostile, "retryable": False}}
    await replying(page, "POST", "**/documents", (422, refusal))
    await page.goto(server_url)
    await page.click("#open-sidebar")
    await page.click(".open-documents")
    await choose(page, a_file(f"{hostile.replace('/', '')[:120]}.md", "x"))
    await page.wait_for_selector(".upload[data-state=failed]")
    wide = "document.querySelector('#documents').scrollWidth - innerWidth"
    assert await page.evaluate(wide) <= 0
    await page.click(".document-open")
    await page.wait_for_selector(".chunk")
    assert await page.text_content(".chunk-text") == hostile * 9
    assert await page.evaluate(wide) <= 0
    assert await page.evaluate("typeof window.__ran") == "undefined"
    dangerous = ":is(script, img, iframe, object, embed, form[action], link, meta, style, [onerror])"
    assert await page.locator(f"#documents {dangerous}").count() == 0


async def test_a_document_is_shown_completely_with_tables_as_tables(page: Page, server_url: str) -> None:
    """Discriminates: the height that a passage has in the prompt's panel, which cuts one without a sign; rows
    of bars."""
    row = "| 晚班 | 15:30~23:30 |\n"
    text = "| 班次 | 时间 |\n|---|---|\n" + row * 40 + "\n完"
    chunk = {"chunk_id": "c", "document_id": "d", "file_name": "班次.md", "text": text, "position": 0}
    await page.set_viewport_size({"width": 390, "height": 740})
    await lists(page, [document("班次.md")])
    await answer(page, "**/chunks?*", {"chunks": [chunk], "next": None})
    await page.goto(server_url)
    await page.click("#open-sidebar")
    await page.click(".open-documents")
    await page.click(".document-open")
    await page.wait_for_selector(".chunk-text td")
    assert await page.locator(".chunk-text tr").count() == 41
    assert await page.locator(".chunk-text").evaluate("(box) => box.scrollHeight - box.clientHeight") == 0
    assert await page.locator(".chunk-text th").all_inner_texts() == ["班次", "时间"]
    assert "|" not in await page.inner_text(".chunk-text")
