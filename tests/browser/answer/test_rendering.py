"""The page's rendering: independent of how the text arrives, plain without its libraries, responsive when it
is huge."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.safety.payloads import HOSTILE
from tests.browser.support.driving import answer_with, answered, ask, citation, whole_turn

MARKDOWN = """# 标题

一段 **粗体** 和 `代码` [1]\u3002第二行
接着写 [2, 3].

- 一项

  ```python
  def f():

      return 1
  ```

- 二项

1. 甲
2. 乙

| a | b |
| --- | ---: |
| 1 | 2 [1] |

```js
const x = 1;

// 空行之后
```
> 引用

[ref]: http://example.com
结尾 [ref]"""

# Renders `text` in pieces, one per frame, and again in one piece; returns both results.
RENDER_TWICE = """async ([text, size]) => {
  const { AnswerView } = await part("answer/view.js");
  await (await part("answer/markdown.js")).engineReady;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const render = async (pieces) => {
    const view = new AnswerView();
    document.body.append(view.element);
    for (const piece of pieces) { view.append(piece); await frame(); }
    view.end();
    await view.drained;
    view.element.remove();
    return view.element.innerHTML;
  };
  const pieces = [];
  for (let at = 0; at < text.length; at += size) pieces.push(text.slice(at, at + size));
  return [await render(pieces), await render([text])];
}"""

# The same on a machine so slow that each frame's time is over before its work begins.
RENDER_LATE = """async (text) => {
  const { AnswerView } = await part("answer/view.js");
  let now = performance.now();
  performance.now = () => (now += 50);
  const view = new AnswerView();
  view.append(text);
  view.end();
  document.body.append(view.element);
  await view.drained;
  return view.element.innerHTML;
}"""

# Every way to split `text` in two; returns how many gave other events than the whole.
CUT_EVERYWHERE = """async (text) => {
  const { SseParser } = await part("stream/sse.js");
  const parse = (pieces) => {
    const parser = new SseParser();
    return JSON.stringify(pieces.flatMap((piece) => parser.feed(piece)));
  };
  const whole = parse([text]);
  const cuts = Array.from({ length: text.length }, (_, at) => parse([text.slice(0, at), text.slice(at)]));
  return [cuts.filter((events) => events !== whole).length, JSON.parse(whole)];
}"""


# How far the first character of the Arabic text is to the right of its last one.
FROM_THE_RIGHT = """async (text) => {
  const { AnswerView } = await part("answer/view.js");
  await (await part("answer/markdown.js")).engineReady;
  const view = new AnswerView();
  document.body.append(view.element);
  view.append(text);
  view.end();
  await view.drained;
  return [...view.element.querySelectorAll("p, li, th")].map(({ firstChild }) => {
    const at = (n) => {
      const range = document.createRange();
      range.setStart(firstChild, n);
      range.setEnd(firstChild, n + 1);
      return range.getBoundingClientRect().left;
    };
    return at(0) > at(firstChild.length - 1);
  });
}"""


async def test_right_to_left_text_is_laid_out_right_to_left(page: Page, server_url: str) -> None:
    """Discriminates: an Arabic sentence whose English word and full stop are at the wrong ends."""
    await page.goto(server_url)
    text = "مرحبا English.\n\nEnglish مرحبا.\n\n1. مرحبا English.\n\n| مرحبا a. |\n| --- |\n"
    assert await page.evaluate(FROM_THE_RIGHT, text) == [True, False, True, True]


async def test_a_frame_that_comes_too_late_loses_nothing(page: Page, server_url: str) -> None:
    """Discriminates: a one-line answer that appeared and vanished, although its turn completed."""
    await page.goto(server_url)
    for text in ("见 [1]", MARKDOWN, "一段。\n\n" * 900):
        late = await page.evaluate(RENDER_LATE, text)
        _, at_once = await page.evaluate(RENDER_TWICE, [text, len(text)])
        assert late == at_once != ""


@pytest.mark.parametrize(
    "size",
    [60, *(pytest.param(size, marks=pytest.mark.full("few signs at a time take long")) for size in (1, 7))],
)
async def test_a_streamed_answer_ends_like_the_answer_rendered_at_once(
    page: Page, server_url: str, size: int
) -> None:
    await page.goto(server_url)
    for text in (MARKDOWN, "\n\n".join(HOSTILE)[: 300 * min(size, 7)]):
        streamed, at_once = await page.evaluate(RENDER_TWICE, [text, size])
        assert streamed == at_once
        assert at_once


async def test_the_event_reader_does_not_depend_on_where_the_stream_is_split(
    page: Page, server_url: str
) -> None:
    await page.goto(server_url)
    text = "\ufeffid: t:1\r\ndata: CONTENT:a\r\ndata:\r\n\r\n: ping\n\nid: t:2\rdata:x\r\revent: e\ndata\n\n"
    text += "data: cut off"
    differing, events = await page.evaluate(CUT_EVERYWHERE, text)
    assert differing == 0
    assert events == [
        {"id": "t:1", "data": "CONTENT:a\n"},
        {"id": "t:2", "data": "x"},
        {"id": "t:2", "data": ""},
    ]


async def test_without_its_libraries_the_page_shows_plain_text(page: Page, server_url: str) -> None:
    await page.route("**/web/*/vendor/*", lambda route: route.abort())
    await page.goto(server_url)
    await answer_with(page, whole_turn("**一**\n二 [1]\n\n<b>三</b>", sources=[citation()]))
    await ask(page, "?")
    await answered(page)
    await page.wait_for_selector(".cite")
    assert await page.inner_text(".prose") == "**一**\n二 1\n\n<b>三</b>"


async def test_sources_show_the_cited_first_and_turn_an_unknown_mark_back_into_text(
    page: Page, server_url: str
) -> None:
    """Discriminates: marks copied as bare numbers; one without a source shown like any other text."""
    await page.goto(server_url)
    sources = [
        citation(1, cited=False),
        citation(2, page=3),
        *[citation(i, cited=False) for i in range(3, 61)],
    ]
    await answer_with(page, whole_turn("见 [2]\uff0c还有 [99]\u3002\n\n又见 [1, 3]", sources=sources))
    await ask(page, "?")
    await answered(page)
    assert await page.inner_text(".prose") == "见 2\uff0c还有 [99]\u3002\n\n又见 13"
    assert await page.get_attribute(".prose .unsourced", "title") == "没有这个编号的来源"
    assert await page.locator(".no-sources").count() == 0
    await page.focus(".prose .cite")
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('.prose'))")
    await page.keyboard.press("Control+c")
    await page.focus("#question")
    await page.keyboard.press("Control+v")
    assert await page.input_value("#question") == "见 [2]\uff0c还有 [99]\u3002\n\n又见 [1, 3]"
    assert await page.get_attribute(".source >> nth=0", "data-index") == "2"
    assert "第 3 页" in await page.inner_text(".source >> nth=0")
    assert await page.locator(".source").count() == 21


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_source_shows_the_state_of_its_document_and_marks_its_passage_in_place(
    page: Page, server_url: str
) -> None:
    """Discriminates: marking the first equal text; counting offsets in UTF-16."""
    await page.goto(server_url)
    text = "\U0001f600。同一句。\U00020000。同一句。"
    twice = citation(text=text, key_passage="同一句。", passage_start=8, passage_end=12, removed=True)
    await answer_with(page, whole_turn("见 [1]", sources=[twice, citation(2, outdated=True)]))
    await ask(page, "?")
    await answered(page)
    assert "文档已删除" in await page.inner_text(".source >> nth=0")
    assert "文档已更新" in await page.inner_text(".source >> nth=1")
    await page.click(".source >> nth=0")
    await page.wait_for_selector(".source mark")
    before = await page.evaluate("document.querySelector('.source mark').previousSibling.data")
    assert before == text[:8]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_nesting_too_deep_for_the_library_is_shown_as_plain_text(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    await answer_with(page, whole_turn(">" * 5500 + "深\n\n之后"))
    await ask(page, "?")
    await answered(page)
    await page.locator(".prose", has_text="深").wait_for()
    assert (await page.inner_text(".prose")).endswith("之后")


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_huge_answer_keeps_the_page_small_and_ends_correctly(page: Page, server_url: str) -> None:
    await page.goto(server_url)
    paragraph = "一段 **文字** 和来源 [1]\u3002" * 8 + "\n\n"
    await answer_with(
        page, whole_turn(paragraph * (5_000_000 // len(paragraph)) + "终点", sources=[citation()])
    )
    await ask(page, "?")
    await answered(page)
    await page.locator(".prose", has_text="终点").wait_for()
    assert await page.evaluate("document.querySelectorAll('*').length") < 20_000
