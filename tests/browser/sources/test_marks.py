"""A source mark stays beside its word: no line begins with one, and copied text is unchanged."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

BEFORE = (
    "父子链",
    "父子链 ",
    "**父子链**",
    "**父子链** ",
    "`turn_id`",
    "[链接](https://a.example) ",
    "a word ",
)
MARKS = ("[1]\u3002后面的字", "[1], then", "[1, 2]后面", "[1][2] [3]\uff0c后面")

# Renders each text at many widths; returns those in which a mark begins a line, and the copied text.
LAY_OUT = """async (texts) => {
  const { AnswerView } = await part("answer/view.js");
  const { engineReady } = await part("answer/markdown.js");
  await engineReady;
  const view = new AnswerView();
  document.body.append(view.element);
  view.element.style.width = "300px";
  view.append(texts.join("\\n\\n"));
  view.end();
  view.setValidMarks(new Set([1, 2, 3]));
  await view.drained;
  const bottomBefore = (mark) => {
    const walker = document.createTreeWalker(mark.closest("p"), NodeFilter.SHOW_TEXT);
    let bottom = 0;
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const follows = node.compareDocumentPosition(mark) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (mark.contains(node) || !follows) continue;
      const range = document.createRange();
      for (const { index } of node.data.matchAll(/\\S/g)) {
        range.setStart(node, index);
        range.setEnd(node, index + 1);
        bottom = range.getBoundingClientRect().bottom;
      }
    }
    return bottom;
  };
  const alone = [...view.element.querySelectorAll(".cites")]
    .filter((mark) => mark.querySelector(".cite").getBoundingClientRect().top > bottomBefore(mark) - 2)
    .map((mark) => mark.closest("p").textContent);
  getSelection().selectAllChildren(view.element);
  const copied = getSelection().toString().split("\\n\\n");
  return { alone, copied, marks: view.element.querySelectorAll(".cite").length };
}"""


@pytest.mark.full("a journey of seconds in a real browser")
async def test_no_line_begins_with_a_source_mark(page: Page, server_url: str) -> None:
    """Discriminates: a line that breaks before the button, or at the space before it."""
    await page.goto(server_url)
    texts = ["字" * n + before + mark for n in range(1, 36) for before in BEFORE for mark in MARKS]
    results = await page.evaluate(LAY_OUT, texts)
    assert results["marks"] == len(texts) // 4 * 7
    assert results["alone"] == []


async def test_a_marked_text_is_copied_as_it_reads(page: Page, server_url: str) -> None:
    """Discriminates: a joining character written into the text; a space lost with its mark."""
    await page.goto(server_url)
    results = await page.evaluate(LAY_OUT, ["父子链 [1]\u3002后面", "父子链[1]后面", "一 [99] 二 [2] 三"])
    assert results["copied"] == ["父子链 1\u3002后面", "父子链1后面", "一 [99] 二 2 三"]


async def test_marks_are_the_same_whether_the_sources_were_known_before_or_after(
    page: Page, server_url: str
) -> None:
    """Discriminates: the space before a mark without a source left out or doubled when it becomes text
    again."""
    await page.goto(server_url)
    both = """async (text) => {
      const { AnswerView } = await part("answer/view.js");
      await (await part("answer/markdown.js")).engineReady;
      const render = async (early) => {
        const view = new AnswerView();
        document.body.append(view.element);
        if (early) view.setValidMarks(new Set([1, 2]));
        view.append(text);
        view.end();
        await view.drained;
        view.setValidMarks(new Set([1, 2]));
        return view.element.innerHTML;
      };
      return [await render(true), await render(false)];
    }"""
    for text in ("甲 [1] 乙 [9]\u3002丙 [1, 9]\u3002[9] [2]", "[9]  [1] , **粗** [2][9] [1]。"):
        before, after = await page.evaluate(both, text)
        assert before == after
        assert 'class="cites"' in before
