"""Markdown as it grows: maths keeps its characters, marks become buttons, half a mark never shows."""

from __future__ import annotations

import re

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
  const { previewOf } = await part("answer/preview.js");
  const { BlockSplitter } = await part("answer/blocks.js");
  const { engineReady, toFragment } = await part("answer/markdown.js");
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
# The numbers that a reader sees, each time the growing text was drawn: those of all lists in a row.
NUMBERS = """async ([text, size]) => {
  const { AnswerView } = await part("answer/view.js");
  await (await part("answer/markdown.js")).engineReady;
  const view = new AnswerView();
  document.body.append(view.element);
  const numbers = () => [...view.element.querySelectorAll("ol")].flatMap((list) =>
    [...list.children].map((_, at) => list.start + at));
  const seen = [];
  for (let at = 0; at < text.length; at += size) {
    view.append(text.slice(at, at + size));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    seen.push(numbers());
  }
  view.end();
  await view.drained;
  return [...seen, numbers()];
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


async def test_steps_keep_their_numbers_while_they_arrive_and_after(page: Page, server_url: str) -> None:
    """Discriminates: `start` taken off, so that each list that code parts, or that was cut, begins at 1."""
    await page.goto(server_url)
    code = "```sh\nwenmai serve\n```\n"
    steps = "".join(f"{number}. 第 {number} 步\n{code}" for number in (1, 2, 3))
    indented = "".join(
        f"{number}. 第 {number} 步\n\n   ```sh\n   wenmai serve\n   ```\n\n" for number in (1, 2, 3)
    )
    long = "".join(f"{number}. 一步，说得长一些，说到这里为止\n" for number in range(1, 161))
    ones = re.sub(r"^\d+", "1", long, flags=re.M)  # a list counts by itself
    for text, size, last in ((steps, 11, 3), (indented, 11, 3), (long, 300, 160), (ones, 300, 160)):
        seen = await page.evaluate(NUMBERS, [text, size])
        assert seen[-1] == list(range(1, last + 1))
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen)


async def test_a_table_keeps_its_columns_alignment_and_its_words_whole(page: Page, server_url: str) -> None:
    """Discriminates: `align` taken off; cells that break a word or a number instead of scrolling."""
    await page.set_viewport_size({"width": 390, "height": 700})
    await page.goto(server_url)
    head = "| configuration | 名 | " + " | ".join(f"column{n}" for n in range(8)) + " |\n"
    row = "| parent_turn_id | 名 | " + " | ".join(["1234567.89"] * 8) + " |\n"
    await answer_with(page, whole_turn(head + "| :-- | :-: |" + " --: |" * 8 + f"\n{row}"))
    await ask(page, "?")
    await answered(page)
    cells = page.locator(".prose td")
    aligned = await cells.evaluate_all("cells => cells.map((cell) => getComputedStyle(cell).textAlign)")
    assert aligned == ["left", "center", *["right"] * 8]
    lines = "cells => cells.map((cell) => { const range = document.createRange(); "
    lines += "range.selectNodeContents(cell.firstChild); return range.getClientRects().length; })"
    assert await cells.evaluate_all(lines) == [1] * 10
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
