"""Markdown as it grows: marks become buttons, half a mark never shows."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.support.driving import GROWING, answer_with, answered, ask, citation, whole_turn

TEXT = """段落 **粗体：** 和 *斜体*、`a*b`，[链接](https://example.com/a) 和 ~~删去~~ [1]
其中**“引文”**和**注意：**后
- 一项 **重点**
  - 二项 [12]

| 名 | 值 |
| --- | ---: |
| 一 | 2 |

```js
const x = [1];
```
"""
# The text of the answer if it contains raw markup outside code.
RAW_MARKUP = (
    GROWING
    % r"""
    for (const code of box.querySelectorAll("code")) code.remove();
    return /\*|~|`|\||\]\(|\[链|\[\d*$/.test(box.textContent) ? [box.textContent] : [];"""
)
# The numbers that a reader sees at each rendering of the growing text, those of all lists in a row.
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


# For each text: what is bold, what is struck out, and how the whole reads.
EMPHASIS = """async (texts) => {
  const { engineReady, toFragment } = await part("answer/markdown.js");
  await engineReady;
  return texts.map((text) => {
    const shown = toFragment([text]);
    const words = (tag) => [...shown.querySelectorAll(tag)].map((node) => node.textContent);
    return [words("strong"), words("del"), shown.textContent.trim()];
  });
}"""


async def test_half_a_mark_is_never_shown_while_it_arrives(page: Page, server_url: str) -> None:
    """Discriminates: the growing block rendered unchanged."""
    await page.goto(server_url)
    assert await page.evaluate(RAW_MARKUP, TEXT) == []


# A text, its bold part, and how the whole reads.
BOLD: tuple[tuple[str, list[str], str], ...] = (
    ("**注意：**请提前", ["注意："], "注意：请提前"),
    (
        "**年假（带薪）**按工龄，其中**“累计工龄”**是指**《办法》**中的",
        ["年假（带薪）", "“累计工龄”", "《办法》"],
        "年假（带薪）按工龄，其中“累计工龄”是指《办法》中的",
    ),
    ("**甲：**乙**丙：**丁，**戊**。**己**", ["甲：", "丙：", "戊", "己"], "甲：乙丙：丁，戊。己"),
    ("先**[链接](https://a.test)**后**`码`**等", ["链接", "码"], "先链接后码等"),
    ("**(예)**는 **カ。**と", ["(예)", "カ。"], "(예)는 カ。と"),
    ("**前 **后：** 完", ["后："], "**前 后： 完"),
    ("`甲**` **未完：后", [], "甲** **未完：后"),
    ("**foo:**bar a **b** c", ["b"], "**foo:**bar a b c"),  # as in CommonMark
    ("基数*（1+比例）*月数", [], "基数*（1+比例）*月数"),
)


async def test_bold_begins_and_ends_beside_chinese_punctuation(page: Page, server_url: str) -> None:
    """Discriminates: marked's own rule, which shows the asterisks or inverts what is bold."""
    await page.goto(server_url)
    expected = [[strong, [], read] for _, strong, read in BOLD]
    assert await page.evaluate(EMPHASIS, [text for text, _, _ in BOLD]) == expected


async def test_one_tilde_is_a_range_and_two_strike_out(page: Page, server_url: str) -> None:
    """Discriminates: marked's own rule, by which 3~5 and 5~7 in one line strike each other out."""
    await page.goto(server_url)
    for kept in ("满3~5年的休5~7天，满10~20年的休10~15天", "9:00~12:00、13:00~18:00", "H~2~O", "~/a ~/b"):
        assert await page.evaluate(EMPHASIS, [kept]) == [[[], [], kept]]
    struck = await page.evaluate(EMPHASIS, ["~~原价：~~现价~~（3~5 元）~~元", "a ~~b~~ c"])
    assert struck == [[[], ["原价：", "（3~5 元）"], "原价：现价（3~5 元）元"], [[], ["b"], "a b c"]]


async def test_headings_of_an_answer_are_ranked_below_its_question(page: Page, server_url: str) -> None:
    """Discriminates: headings with the model's own levels, the first of which ranks above the question."""
    await page.goto(server_url)
    await answer_with(page, whole_turn("# 总览 `a`\n\n## 一\n\n###### 六\n\n下划\n==="))
    await ask(page, "?")
    await answered(page)
    assert await page.evaluate("document.querySelector('.asked').closest('h2') !== null")
    heads = "heads => heads.map((head) => [head.localName, head.textContent])"
    shown = await page.locator(".prose :is(h1, h2, h3, h4, h5, h6)").evaluate_all(heads)
    assert shown == [["h3", "总览 a"], ["h4", "一"], ["h6", "六"], ["h3", "下划"]]


async def test_every_mark_that_the_server_counts_is_a_button(page: Page, server_url: str) -> None:
    """Discriminates: marks of one shape only; a range beyond the sources taken for a mark; a mark after
    inline code taken for a definition."""
    await page.goto(server_url)
    marks = "一 [1-3]，二【2】，三 [^3]，四 (来源 1)，五 [2, 9]，不算 a[1] 和 [3-7] 和 [0, 1]。`[1]` [3]: 完"
    await answer_with(page, whole_turn(marks, sources=[citation(n) for n in (1, 2, 3)]))
    await ask(page, "?")
    await answered(page)
    numbers = await page.locator(".prose .cite").all_inner_texts()
    assert numbers == ["1", "2", "3", "2", "3", "1", "2", "3"]
    text = await page.inner_text(".prose")
    assert all(mark in text for mark in ("[9]", "a[1]", "[3-7]", "[0, 1]", "[1]"))


async def test_a_footnote_is_text_and_a_number_without_a_source_is_marked(
    page: Page, server_url: str
) -> None:
    """Discriminates: a model's own footnote underlined as a missing source."""
    await page.goto(server_url)
    text = "甲[^4]，乙[^a]，丙[9]，丁[^2]。\n\n[^4]: 脚注。"
    await answer_with(page, whole_turn(text, sources=[citation(2)]))
    await ask(page, "?")
    await answered(page)
    await expect(page.locator(".prose .cite")).to_have_text(["2"])
    assert await page.locator(".prose .unsourced").all_inner_texts() == ["[9]"]
    assert await page.inner_text(".prose") == "甲[^4]，乙[^a]，丙[9]，丁2。\n\n[^4]: 脚注。"


async def test_a_long_nested_list_continues_as_a_list_after_a_cut(page: Page, server_url: str) -> None:
    """Discriminates: a cut before a deep item, which then becomes an indented code block."""
    await page.goto(server_url)
    lines = ["- 顶层", *[f"{'  ' * (2 + number % 4)}- 第 {number} 项" for number in range(1200)]]
    await answer_with(page, whole_turn("\n".join(lines)))
    await ask(page, "?")
    await answered(page)
    assert await page.locator(".prose pre").count() == 0
    assert await page.locator(".prose li").count() > 100


async def test_steps_keep_their_numbers_during_and_after_streaming(page: Page, server_url: str) -> None:
    """Discriminates: `start` removed, so that each list that is interrupted by code, or that was cut, begins
    at 1."""
    await page.goto(server_url)
    code = "```sh\nwenmai serve\n```\n"
    steps = "".join(f"{number}. 第 {number} 步\n{code}" for number in (1, 2, 3))
    indented = "".join(
        f"{number}. 第 {number} 步\n\n   ```sh\n   wenmai serve\n   ```\n\n" for number in (1, 2, 3)
    )
    long = "".join(f"{number}. 一步，说得长一些，说到这里为止\n" for number in range(1, 161))
    ones = re.sub(r"^\d+", "1", long, flags=re.M)  # a list numbers its items itself
    for text, size, last in ((steps, 11, 3), (indented, 11, 3), (long, 300, 160), (ones, 300, 160)):
        seen = await page.evaluate(NUMBERS, [text, size])
        assert seen[-1] == list(range(1, last + 1))
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen)


async def test_a_table_keeps_its_columns_alignment_and_words_whole(page: Page, server_url: str) -> None:
    """Discriminates: `align` removed; cells that break a word or a number instead of scrolling."""
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
    await page.focus(".prose table")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".prose table")).not_to_have_js_property("scrollLeft", 0)


async def test_on_a_phone_a_sentence_in_a_table_cell_is_not_a_narrow_column_and_a_code_stays_on_its_line(
    page: Page, server_url: str
) -> None:
    """In a passage, too. Discriminates: cells of four characters a line; WM-100 and days broken."""
    await page.set_viewport_size({"width": 390, "height": 700})
    await page.goto(server_url)
    head = "| 型号 | 日期 | 单价 | 质保 | 说明 | 备注 |\n|" + " --- |" * 6
    row = "| WM-100 | 2026-11-29 | 399 | 12 个月 | 这是一段比较长的说明文字\uff0c看它在窄屏上怎么显示 | 无 |"
    table = f"{head}\n{row}"
    await answer_with(page, whole_turn(f"{table}\n\n[1]", sources=[citation(text=table, key_passage="12")]))
    await ask(page, "?")
    await answered(page)
    await page.click(".cite")
    sizes = "cells => cells.map((cell) => { const range = document.createRange(); "
    sizes += "range.selectNodeContents(cell); return range.getClientRects().length; })"
    for box in (".prose", ".rows"):
        lines = await page.locator(f"{box} td").evaluate_all(sizes)
        assert lines[:2] == [1, 1]
        assert lines[4] <= 3
