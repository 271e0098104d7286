"""Sources whose documents were deleted or changed, passages that are hard to locate, and hostile ones."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.composer.composing import Served
from tests.browser.safety.payloads import HOSTILE
from tests.browser.sources.test_sources import PREVIEW, shown
from tests.browser.support.driving import answered, ask, citation
from tests.browser.support.live import Live

DELETED = "这份文档后来被删除了，引用的文字也一并删除，只留下编号。"


def erased(index: int = 1) -> dict[str, object]:
    texts = dict.fromkeys(("file_name", "heading", "key_passage", "text", "reason", "version", "date"), "")
    return citation(index, **texts, removed=True)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_erased_source_says_so_instead_of_being_empty(page: Page, server_url: str) -> None:
    """Discriminates: an empty card with a bar; actions on a deleted document."""
    await shown(page, server_url, "见 [1]", erased())
    card = page.locator(".source")
    assert await card.locator("summary").inner_text() == f"1\n文档已删除\n{DELETED}"
    assert await card.locator(".score-track").count() == 0
    await page.focus(".cite")
    assert DELETED in await page.inner_text(PREVIEW)
    await page.click(".cite")
    assert await card.locator(".source-text").inner_text() == DELETED
    assert await card.locator(".source-actions").inner_text() == "回到回答"
    await page.click("#language")
    assert "Only the number is left" in await card.inner_text()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_source_of_a_changed_or_removed_document_still_shows_its_passage(
    page: Page, server_url: str
) -> None:
    removed = citation(2, removed=True)
    await shown(page, server_url, "见 [1] [2]", citation(outdated=True), removed)
    for number, text in enumerate(("后来更新过", "后来被删除了")):
        await page.click(f".source >> nth={number}")
        assert text in await page.inner_text(f".source-facts >> nth={number}")
        assert await page.inner_text(f".source-text >> nth={number}") == "前文。关键的一句。后文。"
    assert await page.locator(".source-actions >> nth=0").locator("button").count() == 5
    assert await page.locator(".source-actions >> nth=1").inner_text() == "引用到提问\n回到回答"


async def test_documents_of_one_name_can_be_distinguished(page: Page, server: Served) -> None:
    """Discriminates: two cards that look the same; a folder shown where the name alone is enough."""
    paths = ("团队/2025/规划.md", "团队/2026/规划.md", "")
    ids = [server.add("规划.md", f"规划：{path}", path=path) for path in paths]
    same = [citation(at, document_id=each, file_name="规划.md") for at, each in enumerate(ids, 1)]
    again = citation(4, document_id=ids[0], file_name="规划.md")
    gone = citation(5, document_id="deleted", file_name="规划.md")
    await shown(page, server.url, "见 [1] [2] [3] [4] [5] [6]", *same, again, gone, citation(6))
    added = re.compile(r"^添加于 .*, 9 B概念$")
    places: list[str | re.Pattern[str]] = [
        "团队/2025概念",
        "团队/2026概念",
        added,
        "团队/2025概念",
        "概念",
        "概念",
    ]
    await expect(page.locator(".source .place")).to_have_text(places)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_passage_is_marked_where_it_can_be_found(page: Page, server_url: str) -> None:
    """Discriminates: offsets trusted although they do not match; a passage that is lost if it is not at its
    offset."""
    wrong = citation(passage_start=7, passage_end=13)
    apart = citation(2, key_passage="改写过的一句。")
    none = citation(3, key_passage="")
    await shown(page, server_url, "见 [1] [2] [3]", wrong, apart, none)
    for number in range(3):
        await page.click(f".source >> nth={number}")
    drawn = "(card) => [...card.querySelector('.source-text').childNodes].map((node) => node.textContent)"
    texts = [await card.evaluate(drawn) for card in await page.locator(".source").element_handles()]
    assert texts[0] == ["前文。", "关键的一句。", "后文。"]
    assert texts[1] == ["改写过的一句。", "前文。关键的一句。后文。"]
    assert texts[2] == ["前文。关键的一句。后文。"]
    assert await page.locator(".source mark").count() == 2


async def test_a_table_in_a_passage_reads_as_a_table(page: Page, server_url: str) -> None:
    """Discriminates: rows of bars; a mark lost if it spans two cells; a row without its table's header taken
    for text."""
    await page.set_viewport_size({"width": 390, "height": 740})
    table = "| 班次 | 时间 |\n|---|---|\n| A | 9:00~18:00 |\n| B \\| C |  |\n| - | - |"
    passage = "A | 9:00~18:00"
    text = f"班次如下：\n\n{table}\n\n以上。\n| 只有 | 一行 |"
    at = text.index(passage)
    source = citation(text=text, key_passage=passage, passage_start=at, passage_end=at + len(passage))
    await shown(page, server_url, "见 [1]", source)
    await page.click(".cite")
    box = page.locator(".source-text")
    rows = "rows => rows.map((row) => [...row.cells].map((cell) => `${cell.localName} ${cell.textContent}`))"
    assert await box.locator("tr").evaluate_all(rows) == [
        ["th 班次", "th 时间"],
        ["td A", "td 9:00~18:00"],
        ["td B | C", "td "],
        ["td -", "td -"],
        ["td 只有", "td 一行"],
    ]
    assert await box.locator("mark").all_inner_texts() == ["A", "9:00~18:00"]
    outside = (
        "(box) => [...box.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim())"
    )
    assert await box.evaluate(outside) == ["班次如下：", "以上。"]
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_code_in_a_passage_reads_as_code(page: Page, server_url: str) -> None:
    """Discriminates: its fence shown as words, in the card or the preview; a row in it taken for a table; a
    mark lost; code that its chunk does not close."""
    code = 'def head():\n    return """\n| a | b |\n"""'
    text = f"```python lines 8-10\n{code}\n```\n\nThen:\n```\nmake"
    passage = f"```python lines 8-10\n{code}"
    await shown(page, server_url, "见 [1]", citation(text=text, key_passage=passage, passage_start=0))
    assert await page.locator(".source .passage").inner_text() == 'def head(): return """ a · b; """'
    await page.click(".cite")
    box = page.locator(".source-text")
    assert await box.locator(".code-bar").all_inner_texts() == ["python lines 8-10", ""]
    assert await box.locator("pre").all_inner_texts() == [code, "make"]
    assert await box.locator("mark").all_inner_texts() == [code]
    assert await box.locator("table").count() == 0


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_long_text_opens_at_its_passage_and_scrolls_with_the_keyboard(
    page: Page, server_url: str
) -> None:
    long = "很长的一段。\n" * 80
    text = f"{long}关键的一句。{long}"
    at = len(long)
    await shown(page, server_url, "见 [1]", citation(text=text, passage_start=at, passage_end=at + 6))
    await page.click(".cite")
    box = page.locator(".source-text")
    assert await box.evaluate("(box) => box.scrollTop > 0 && box.clientHeight < 500")
    offset = "(mark) => mark.getBoundingClientRect().top - mark.parentElement.getBoundingClientRect().top"
    assert 0 < await page.locator(".source mark").evaluate(offset) < 80
    assert await box.get_attribute("tabindex") == "0"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_hostile_words_of_a_source_stay_words_everywhere(page: Page, server_url: str) -> None:
    """Discriminates: a preview, a reason or a date set as markup."""
    hostile = "\n".join(HOSTILE)
    texts = dict.fromkeys(("file_name", "heading", "reason", "date", "key_passage"), HOSTILE[1])
    source = citation(1, **texts, version=HOSTILE[2], text=f"{hostile}\n{HOSTILE[1]}", chunk_id=HOSTILE[3])
    await shown(page, server_url, "见 [1]", source, citation(2, document_id=HOSTILE[4], text=hostile))
    await page.focus(".cite")
    await page.hover(".cite")
    await page.wait_for_selector(PREVIEW)
    assert HOSTILE[1] in await page.inner_text(PREVIEW)
    await page.keyboard.press("Escape")
    for number in range(2):
        await page.click(f".source >> nth={number}")
    assert HOSTILE[0] in await page.inner_text(".source-text >> nth=0")
    await page.click(".source-actions button:has-text('查看上下文') >> nth=0")
    await page.wait_for_selector(".source-context p span")
    assert await page.evaluate("typeof window.__ran") == "undefined"
    dangerous = ":is(script, img, iframe, object, embed, form, link, meta, style, [onerror])"
    assert await page.locator(f":is(#thread, {PREVIEW}) {dangerous}").count() == 0


async def test_a_phone_shows_cards_and_preview_without_horizontal_scrolling(
    page: Page, server_url: str
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    wide = citation(
        file_name="很长的文件名" * 9 + ".md", heading="标题" * 40, text="x" * 600, date="2026-01-31"
    )
    await shown(page, server_url, "一行字" * 5 + " [1]", wide)
    await page.focus(".cite")
    await page.hover(".cite")
    await page.wait_for_selector(PREVIEW)
    box = await page.locator(PREVIEW).bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    await page.click(".cite")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await page.is_visible(".source .score-track")


async def test_an_answer_without_a_passage_says_so_and_small_talk_does_not(page: Page, live: Live) -> None:
    """Discriminates: nothing in place of the sources; the line under a greeting or a command, for which
    nothing was searched; a line that a reload loses."""
    live.says("资料里没有写 [1]。")
    await page.goto(live.url)
    for turns, question in enumerate(("火星上有几座火山？", "你好", "/help"), 1):
        await ask(page, question)
        await answered(page, turns)
    for _ in range(2):
        assert await page.locator(".turn .no-sources").all_inner_texts() == ["这个回答没有用到文档里的段落。"]
        assert await page.locator(".turn:nth-child(1) .unsourced").inner_text() == "[1]"
        await page.reload()
        await answered(page, 3)
    await page.click("#language")
    assert "does not use any passages" in await page.inner_text(".turn:nth-child(1) .no-sources")
    assert "There is no source" in str(await page.get_attribute(".unsourced", "title"))
