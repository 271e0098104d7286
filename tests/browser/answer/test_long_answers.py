"""An answer of 5 MB, of whatever shape, and a fast one: no frame is long, the page stays small.

The measure is the CPU time of the page's own thread in one task (scripts, style and layout of a frame); gaps
between frames would include the other processes of the machine.
"""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.support.driving import answer_with, answered, ask, citation, whole_turn
from tests.browser.support.frame_costs import frame_costs

SIZE = 5_000_000
LONGEST_MS = 200
SCROLL = """async () => {
  const page = document.scrollingElement;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  for (let step = 0; step <= 60; step++) {
    page.scrollTop = (page.scrollHeight * step) / 60;
    await frame();
    await frame();
  }
}"""
# Feeds an answer to the page at `rate` tokens a second for `seconds`; returns its length.
STREAM = """async ([tokens, rate, seconds]) => {
  const { AnswerView } = await part("answer/view.js");
  const view = new AnswerView();
  document.body.classList.remove("empty");
  document.querySelector("#thread").append(view.element);
  const begun = performance.now();
  for (let at = 0; performance.now() - begun < seconds * 1000; ) {
    const due = ((performance.now() - begun) / 1000) * rate;
    for (; at < due; at++) view.append(tokens[at % tokens.length]);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  view.end();
  await view.drained;
  return view.text.length;
}"""

PARAGRAPH = "这一段没有换行，写着**重点**、`代码`和来源 [1]。Then some English words follow. "
SHAPES = {
    "paragraph": lambda: PARAGRAPH * (SIZE // len(PARAGRAPH)),
    "paragraphs": lambda: (PARAGRAPH + "\n\n") * (SIZE // len(PARAGRAPH)),
    "table": lambda: "| 名 | 值 |\n| --- | ---: |\n" + "| 一项 **粗** | 12345 [1] |\n" * (SIZE // 26),
    "code": lambda: "```python\n" + "value = compute(one, two)  # 一行\n" * (SIZE // 34) + "```",
    "list": lambda: "".join(
        f"{'  ' * (number % 6)}- 第 {number} 项，**重点** [1]\n" for number in range(SIZE // 26)
    ),
}
MARKDOWN = (
    "## 小节\n\n一段 **文字** 和来源 [1]。\n\n- 一项\n- 二项\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
    "```js\nconst x = 1;\n```\n\n> 引用一句\n\n"
)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("shape", SHAPES)
async def test_five_megabytes_are_rendered_and_scrolled_without_a_long_frame(
    page: Page, server_url: str, shape: str
) -> None:
    """Discriminates: no budget for a frame; every part kept as elements; the growing block never cut."""
    await page.goto(server_url)
    body = whole_turn(SHAPES[shape]() + "\n\n终点", sources=[citation()])
    await answer_with(page, body)
    async with frame_costs(page) as rendering:
        await ask(page, "?")
        await answered(page)
        await page.locator(".prose", has_text="终点").wait_for()
    async with frame_costs(page) as scrolling:
        await page.evaluate(SCROLL)
    heap = await heap_mb(page)
    print(f"{shape}: {rendering.longest_ms:.0f} ms of {rendering.total_ms:.0f}, {heap:.0f} MB")
    print(f"{shape} scrolled: {scrolling.longest_ms:.0f} ms of {scrolling.total_ms:.0f}")
    assert 0 < rendering.longest_ms < LONGEST_MS
    assert 0 < scrolling.longest_ms < LONGEST_MS
    assert heap < 120
    assert await page.evaluate("document.querySelectorAll('*').length") < 20_000


@pytest.mark.full("judges how smooth it is, for seconds")
async def test_two_hundred_tokens_a_second_stay_smooth(page: Page, server_url: str) -> None:
    """Discriminates: the growing block rendered for every token."""
    await page.goto(server_url)
    tokens = split(MARKDOWN, 3)
    async with frame_costs(page) as costs:
        length = await page.evaluate(STREAM, [tokens, 200, 20])
    print(f"{length} characters at 200 tokens/s: {costs.longest_ms:.0f} ms of {costs.total_ms:.0f}")
    assert length > 3000
    assert 0 < costs.longest_ms < LONGEST_MS


def split(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


async def heap_mb(page: Page) -> float:
    """The memory that the page's scripts hold after a full garbage collection."""
    client = await page.context.new_cdp_session(page)
    await client.send("HeapProfiler.collectGarbage")
    return float((await client.send("Runtime.getHeapUsage"))["usedSize"]) / 1e6
