"""Markdown as it grows: maths keeps its characters, marks become buttons, half a mark never shows."""

from __future__ import annotations

from playwright.async_api import Page

from tests.browser.support.driving import answer_with, answered, ask, citation, whole_turn

TEXT = """段落 **粗体：** 和 *斜体*、`a*b`，[链接](https://example.com/a) 和 ~~删去~~ [1]
- 一项 **重点**
  - 二项 [12]

| 名 | 值 |
| --- | ---: |
| 一 | 2 |

```js
const x = [1];
```
"""
# What the growing text shows after each character, as plain text: those with raw markup in them.
RAW_MARKUP = """async (text) => {
  const { previewOf } = await import("/web/js/answer/preview.js");
  const { BlockSplitter } = await import("/web/js/answer/blocks.js");
  const { engineReady, toFragment } = await import("/web/js/answer/markdown.js");
  await engineReady;
  const splitter = new BlockSplitter();
  const seen = new Set();
  for (const char of text) {
    splitter.feed(char);
    const box = document.createElement("div");
    box.append(toFragment(splitter.open.map((block) => previewOf(block, splitter.inCode))));
    for (const code of box.querySelectorAll("code")) code.remove();
    if (/\\*|~|`|\\||\\]\\(|\\[链|\\[\\d*$/.test(box.textContent)) seen.add(box.textContent);
  }
  return [...seen];
}"""
MATHS = "其中 $a_b*c$ 和 \\(x*y_z*w\\)，$5 and $6，还有\n\n$$\nE*m*c\n- 1\n= 2\n$$\n\n*真的* 完"


async def test_half_a_mark_is_never_shown_while_it_arrives(page: Page, server_url: str) -> None:
    """Discriminates: the growing block rendered as it is."""
    await page.goto(server_url)
    assert await page.evaluate(RAW_MARKUP, TEXT) == []


async def test_maths_keeps_every_character_it_was_written_with(page: Page, server_url: str) -> None:
    """Discriminates: the extension left out, so that a_b*c becomes emphasis and \\( loses its backslash."""
    await page.goto(server_url)
    await answer_with(page, whole_turn(MATHS))
    await ask(page, "?")
    await answered(page)
    text = await page.inner_text(".prose")
    assert "$a_b*c$ 和 \\(x*y_z*w\\)，$5 and $6" in text
    assert "$$\nE*m*c\n- 1\n= 2\n$$" in text
    assert await page.locator(".prose em").all_inner_texts() == ["真的"]
    assert await page.locator(".prose :is(li, h1, h2)").count() == 0


async def test_every_mark_that_the_server_counts_is_a_button(page: Page, server_url: str) -> None:
    """Discriminates: marks of one shape only; a range that leaves the sources taken for a mark; one after$
    code taken for a definition."""
    await page.goto(server_url)
    marks = "一 [1-3]，二【2】，三 [^3]，四 (来源 1)，五 [2, 9]，不算 a[1] 和 [3-7] 和 [0, 1]。`[1]` [3]: 完"
    await answer_with(page, whole_turn(marks, sources=[citation(n) for n in (1, 2, 3)]))
    await ask(page, "?")
    await answered(page)
    numbers = await page.locator(".prose .cite").all_inner_texts()
    assert numbers == ["1", "2", "3", "2", "3", "1", "2", "3"]
    text = await page.inner_text(".prose")
    assert all(mark in text for mark in ("[9]", "a[1]", "[3-7]", "[0, 1]", "[1]"))


async def test_a_long_nested_list_goes_on_as_a_list_after_it_was_cut(page: Page, server_url: str) -> None:
    """Discriminates: a cut before a deep item, which then is an indented code block."""
    await page.goto(server_url)
    lines = ["- 顶层", *[f"{'  ' * (2 + number % 4)}- 第 {number} 项" for number in range(1200)]]
    await answer_with(page, whole_turn("\n".join(lines)))
    await ask(page, "?")
    await answered(page)
    assert await page.locator(".prose pre").count() == 0
    assert await page.locator(".prose li").count() > 100
