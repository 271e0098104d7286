"""The sources of an answer: their cards, the way from a mark to its card and back, and a preview beside
it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.support.driving import (
    SESSION_ID,
    TURN_ID,
    answer_with,
    answered,
    ask,
    citation,
    sse_body,
    to_top,
    whole_turn,
)

HEAR = """async () => {
  const { subscribe } = await part("base/bus.js");
  window.__published = [];
  for (const name of ["quote", "persona", "filter"]) {
    subscribe(name, (detail) => window.__published.push([name, detail]));
  }
}"""
PARTS = [".prose", ".source-box"]
DRAWN = f"{PARTS}.map((part) => document.querySelector(part).outerHTML)"
FOCUSED = "document.activeElement.outerHTML"
# Where the way back ends, and where the button to the page's end begins when it is shown.
BACK_AND_TO_END = """() => {
  const [back, toEnd] = [".source[open] .back", "#to-end"].map((name) => document.querySelector(name));
  toEnd.hidden = false;
  return [back.getBoundingClientRect().bottom, toEnd.getBoundingClientRect().top];
}"""
PREVIEW = ".cite-preview"
# The server has sent what it offers: nothing changes the question box any more.
READY = "body:has(#model option):has(#documents input[type=file][accept*='.docx'])"


async def shown(page: Page, server_url: str, answer: str, *sources: dict[str, object]) -> None:
    """An answer with these sources."""
    await page.goto(server_url)
    await answer_with(page, whole_turn(answer, sources=sources))
    await ask(page, "问？")
    await answered(page)
    await page.wait_for_selector(".prose .part *")


async def test_a_card_shows_what_is_known_of_its_source(page: Page, server_url: str) -> None:
    known = citation(page=3, date="2026-01", version="0123456789abcdef", reason="直接回答了问题")
    await shown(page, server_url, "见 [1]", known, citation(2), citation(3, document_id="e", cited=False))
    await expect(page.locator("#announcer")).to_have_text("回答完成，2 条来源")  # the number that is shown
    assert await page.inner_text(".sources h3") == "来源 2"
    first = page.locator(".source >> nth=0")
    assert await first.locator(".place > *").all_inner_texts() == ["概念", "第 3 页", "2026-01"]
    assert await first.locator(".score").get_attribute("aria-label") == "相关度 90%"
    assert await first.locator(".score-fill").evaluate("(bar) => bar.style.width") == "90%"
    await first.click()
    assert await first.locator("mark").inner_text() == "关键的一句。"
    assert await first.locator(".reason").inner_text() == "判断：直接回答了问题"
    assert await first.locator(".source-facts").inner_text() == "内容版本 01234567"
    assert await first.locator(".same-document").inner_text() == "同一文档\n2"
    await first.locator(".same-document button").click()
    await expect(page.locator(".source[data-index='2']")).to_have_attribute("open", "")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_keyboard_goes_from_a_mark_to_its_card_and_back_to_that_mark(
    page: Page, server_url: str
) -> None:
    """Discriminates: a way back to the first mark of that number; no way back without a mouse."""
    await shown(page, server_url, "先见 [1]\u3002\n\n再见 [1]\u3002", citation())
    for way_back in ("Escape", ".source .back"):
        await page.focus(".cite >> nth=1")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.matches('.source[open] > summary')")
        await (page.keyboard.press("Escape") if way_back == "Escape" else page.click(way_back))
        assert (
            await page.evaluate("[...document.querySelectorAll('.cite')].indexOf(document.activeElement)")
            == 1
        )


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_back_button_of_a_card_is_not_below_another_button(page: Page, server_url: str) -> None:
    """Discriminates: an opened card that ends under the button that leads to the page's end."""
    long = "\n\n".join(f"第 {n} 段。" for n in range(30))
    marks = "".join(f"[{n}]" for n in range(1, 21))
    await shown(page, server_url, f"见 {marks}。\n\n{long}", *[citation(n) for n in range(1, 21)])
    await to_top(page)
    await page.click(".cite >> nth=0")
    bottom, top = await page.evaluate(BACK_AND_TO_END)
    assert bottom <= top


async def test_escape_keeps_its_meaning_in_a_card_that_was_not_opened_from_a_mark(
    page: Page, server_url: str
) -> None:
    """Discriminates: Esc swallowed by every card: it would not stop a running answer."""
    await shown(page, server_url, "见 [1]", citation())
    await page.evaluate("addEventListener('keydown', ({ key }) => (window.__key = key))")
    await page.focus(".source > summary")
    await page.keyboard.press("Escape")
    assert await page.evaluate("window.__key") == "Escape"


async def test_a_mark_shows_a_preview_of_its_source_and_nothing_moves(page: Page, server_url: str) -> None:
    """Discriminates: a preview in the text's flow; the browser's own tooltip over it, or lost afterwards."""
    await shown(page, server_url, "见 [1]\u3002后面还有字\u3002", citation(page=3))
    await page.wait_for_selector(READY, state="attached")
    boxes = "(name) => document.querySelector(name).getBoundingClientRect().toJSON()"
    places = f"['.prose', '.cite', '.sources', '#dock'].map({boxes})"
    await page.locator(".cite").scroll_into_view_if_needed()  # hovering scrolls there first
    before = await page.evaluate(f"[{places}, {DRAWN}]")
    await page.hover(".cite")
    await page.wait_for_selector(PREVIEW)
    assert await page.inner_text(PREVIEW) == "指南.md概念第 3 页\n\n关键的一句。"
    assert await page.get_attribute(".cite", "title") is None
    assert await page.evaluate(places) == before[0]
    await page.hover(PREVIEW)
    await page.wait_for_timeout(250)  # longer than the delay after which a preview disappears
    assert await page.is_visible(PREVIEW)
    await page.hover(".asked")
    await page.wait_for_selector(PREVIEW, state="hidden")
    assert await page.evaluate(f"[{places}, {DRAWN}]") == before


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_keyboard_gets_the_preview_too_and_a_finger_does_not(page: Page, server_url: str) -> None:
    await shown(page, server_url, "见 [1]", citation())
    over = "new PointerEvent('pointerover', { pointerType: 'touch', bubbles: true })"
    await page.locator(".cite").evaluate(f"(mark) => mark.dispatchEvent({over})")
    await page.wait_for_timeout(250)  # longer than the delay after which a mouse would get its preview
    assert await page.is_visible(PREVIEW) is False
    await page.focus(".show-prompt")
    await page.keyboard.press("Tab")
    await page.wait_for_selector(PREVIEW)
    described = await page.get_attribute(".cite", "aria-describedby")
    assert await page.get_attribute(PREVIEW, "id") == described
    assert await page.get_attribute(PREVIEW, "role") == "tooltip"
    await page.keyboard.press("Escape")
    await page.wait_for_selector(PREVIEW, state="hidden")
    assert await page.get_attribute(".cite", "aria-describedby") is None


@pytest.mark.full("a journey of seconds in a real browser")
async def test_the_keyboards_preview_moves_along_when_the_page_scrolls(page: Page, server_url: str) -> None:
    """Discriminates: any scrolling closes a preview, even that by which the focus came into view."""
    await shown(page, server_url, "见 [1]\n\n" + "后面还有很多字。\n\n" * 80, citation())
    await page.focus(".show-prompt")
    await page.keyboard.press("Tab")
    await page.wait_for_selector(PREVIEW)
    offset = """() => {
      const top = (name) => document.querySelector(name).getBoundingClientRect().top;
      return Math.round(top(".cite-preview") - top(".cite"));
    }"""
    before = await page.evaluate(offset)
    scroll = """(by) => new Promise((done) => {
      addEventListener("scroll", () => requestAnimationFrame(() => done(true)), { once: true });
      scrollBy({ top: by, behavior: "instant" });
      setTimeout(() => done(false), 5000);
    })"""
    at_top = await page.evaluate("scrollY === 0")
    assert await page.evaluate(scroll, 20 if at_top else -20)
    assert await page.is_visible(PREVIEW)
    assert await page.evaluate(offset) == before


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_reload_shows_the_same_answer_and_sources(page: Page, server_url: str) -> None:
    """Discriminates: anything of a card taken only from the stream; ids that are counted up."""
    await page.goto(server_url)
    await ask(page, "父子链是什么？")
    await answered(page)
    await page.wait_for_selector(".cite")
    before = await page.evaluate(DRAWN)
    await page.reload()
    await answered(page)
    for part, html in zip(PARTS, before, strict=True):  # drawn some frames after the turn
        await expect(page.locator(part)).to_have_js_property("outerHTML", html)
    opened = "document.querySelector('.source-box').innerText"
    await page.click(".cite >> nth=0")
    first = await page.evaluate(opened)
    await page.reload()
    await answered(page)
    await page.click(".cite >> nth=0")
    assert await page.evaluate(opened) == first


async def test_a_passage_is_quoted_made_a_persona_and_its_document_asked_alone(
    page: Page, server_url: str
) -> None:
    await shown(page, server_url, "见 [1]", citation())
    await page.evaluate(HEAR)
    for name in ("引用到提问", "用作人设", "只问这份文档"):
        await page.evaluate("for (const box of document.querySelectorAll('dialog[open]')) box.close()")
        await page.evaluate(
            "document.querySelector('.source').open || document.querySelector('.source summary').click()"
        )
        await page.locator(".source-actions button", has_text=name).click()
    calls: list[list[Any]] = await page.evaluate("window.__published")
    text = {"file_name": "指南.md", "text": "前文。关键的一句。后文。"}
    assert calls == [
        ["quote", text],
        ["persona", {**text, "document_id": "d", "chunk_id": "c1"}],
        ["filter", {"document_ids": ["d"], "names": ["指南.md"]}],
    ]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_thousand_sources_are_paged_and_the_last_mark_finds_its_card(
    page: Page, server_url: str
) -> None:
    """Discriminates: all cards created at once."""
    sources = [citation(n, cited=n in (1, 99), document_id=f"d{n}") for n in range(1, 1001)]
    await shown(page, server_url, "见 [1] [99]", *sources)
    assert await page.locator(".source").count() == 22
    await page.click(".uncited > summary")
    await page.focus(".uncited .text-button")
    await page.keyboard.press("Enter")
    assert await page.locator(".uncited .source").count() == 40
    assert await page.evaluate("document.activeElement.closest('.source').dataset.index") == "22"
    await page.click(".cite >> nth=1")
    assert await page.evaluate("document.activeElement.closest('.source').dataset.index") == "99"
    deck = """async (sources) => {
      const { SourcesView } = await part("sources/cards.js");
      const view = new SourcesView(sources.map((source) => ({ ...source, cited: false })));
      const before = view.element.querySelectorAll("*").length;
      view.open(1000);
      return [before < 500, view.element.querySelectorAll(".source").length];
    }"""
    assert await page.evaluate(deck, sources) == [True, 1000]


async def test_of_sources_without_marks_the_best_are_shown(page: Page, server_url: str) -> None:
    """Discriminates: all of them open below it, more than a screen of cards down to the least relevant."""
    await shown(page, server_url, "没有标注。", *[citation(n, cited=False) for n in range(1, 10)])
    await expect(page.locator(".uncited > summary")).to_have_text("查到 9 条，回答中没有逐条标注")
    await expect(page.locator(".source:visible")).to_have_count(3)
    await page.click("text=再显示 6 条")
    await expect(page.locator(".source:visible")).to_have_count(9)


async def test_an_empty_answer_shows_no_sources(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    finished = {"stage": "finished", "turn_id": TURN_ID, "status": "cancelled"}
    events = [("SESSION", SESSION_ID), ("SOURCE", [citation(cited=False)])]
    await answer_with(page, sse_body([*events, ("STATUS", finished), ("DONE", "")]))
    await ask(page, "问？")
    await answered(page, status="cancelled")
    assert await page.locator(".source").count() == 0


async def test_markdown_markup_is_not_in_the_preview(page: Page, server_url: str) -> None:
    """Discriminates: backticks, asterisks or link targets on the card; text that looks like markup lost."""
    key = "## 校准\n看[这一页](page.md#怎么做)，用 `--undo` 和 ``a`b``，**必须** 2 * 3 ** 4，[1] a_b `"
    await shown(page, server_url, "见 [1]", citation(key_passage=key, text=key))
    glance = await page.locator(".source >> nth=0").locator("summary .passage").text_content()
    assert glance == "校准\n看这一页，用 --undo 和 ``a`b``，必须 2 * 3 ** 4，[1] a_b `"
    await page.click(".source >> nth=0")
    assert await page.inner_text("mark") == key


async def test_a_table_is_previewed_as_words(page: Page, server_url: str) -> None:
    """Discriminates: bars and a ruler of dashes on the card, closed or opened; a bar of the text lost."""
    table = "| 型号 | 重量 |\n| --- | ---: |\n| X3 | 9.2 kg |"
    await shown(page, server_url, "见 [1]", citation(key_passage=table, text=f"规格 a | b\n\n{table}"))
    card = page.locator(".source >> nth=0")
    assert await card.locator("summary .passage").text_content() == "型号 · 重量;\nX3 · 9.2 kg;"
    await card.click()
    assert await card.locator("mark").all_inner_texts() == ["型号", "重量", "X3", "9.2 kg"]
    assert (await card.locator(".source-text").inner_text()).startswith("规格 a | b\n")
