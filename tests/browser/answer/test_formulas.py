"""Formulas are rendered; text that only looks like one, or cannot be parsed, keeps its characters."""

from __future__ import annotations

import re
import time
from itertools import pairwise

from playwright.async_api import Page, expect

from tests.browser.support.driving import GROWING, answer_with, answered, ask, citation, whole_turn

MATHS = "其中 $a_b*c$ 和 \\(x*y_z*w\\)，$5 and $6，还有\n\n$$\nE*m*c\n- 1\n= 2\n$$\n\n*真的* 完"
# Elements of the growing text other than paragraphs, line breaks and formulas.
STRAY_ELEMENTS = (
    GROWING
    % """
    return [...box.querySelectorAll(":not(p, br, .language-math)")].map((node) => node.outerHTML);"""
)
# What is rendered of a text whose formula is still open.
DRAWN_TOO_SOON = """async (text) => {
  const { previewOf } = await part("answer/preview.js");
  const { engineReady, toFragment } = await part("answer/markdown.js");
  const { decorate } = await part("answer/decorate.js");
  await engineReady;
  const shown = decorate(toFragment([previewOf(text, false)]), null);
  return [shown.querySelectorAll("math").length, shown.textContent.trim()];
}"""
COPIED = """async () => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector(".prose"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  const data = new DataTransfer();
  const options = { clipboardData: data, bubbles: true, cancelable: true };
  document.dispatchEvent(new ClipboardEvent("copy", options));
  return data.getData("text/plain");
}"""


async def shown(page: Page, server_url: str, answer: str) -> None:
    await page.goto(server_url)
    await answer_with(page, whole_turn(answer, sources=[citation(1)]))
    await ask(page, "?")
    await answered(page)


async def drawn(page: Page, count: int) -> list[str]:
    """Return the formulas as they were written, once that many are rendered."""
    formulas = page.locator(".prose .formula:has(math)")
    await expect(formulas).to_have_count(count)
    return [str(each) for each in await formulas.evaluate_all("all => all.map((one) => one.dataset.written)")]


async def test_all_four_forms_are_rendered_and_copied_as_written(page: Page, server_url: str) -> None:
    r"""Discriminates: the extension left out, so that a_b*c becomes emphasis and \( loses its backslash; the
    glyphs of MathML in a row on the clipboard; a price taken for the end of a formula."""
    await shown(page, server_url, MATHS)
    forms = ["$a_b*c$", "\\(x*y_z*w\\)", "$$\nE*m*c\n- 1\n= 2\n$$"]
    assert await drawn(page, 3) == forms
    copied = await page.evaluate(COPIED)
    assert all(form in copied for form in forms)
    assert "，$5 and $6，还有" in copied
    assert await page.locator(".prose em").all_inner_texts() == ["真的"]
    assert await page.locator(".prose :is(li, h3, h4)").count() == 0
    assert await page.locator(".prose math[display=block]").count() == 1


KEPT = (
    "$5 and $6", "$HOME/bin:$PATH", "价格为$100，折后$80", "原价 $甲 到乙$ 都行", "US$5–US$6",
    "\\(\\nocommand{x}\\)", "\\(\\frac{a}\\)", "$\\href{javascript:alert(1)}{x}$", "\\(\\url{https://a.test}\\)",
    "$\\includegraphics{https://a.test/a.png}$", "\\(\\def\\a{\\a\\a}\\a\\)", "$\\class{cite}{x}$",
)  # fmt: skip


async def test_text_that_is_not_a_formula_or_cannot_be_parsed_keeps_its_characters(
    page: Page, server_url: str
) -> None:
    """Discriminates: text between two prices in italics; a TeX error in red; a link or an image."""
    await shown(page, server_url, "\n\n".join(f"甲 {kept} 乙 $x$ 丙" for kept in KEPT))
    assert await drawn(page, len(KEPT)) == ["$x$"] * len(KEPT)
    read = await page.inner_text(".prose")
    assert [kept for kept in KEPT if f"甲 {kept} 乙" not in read] == []
    assert await page.locator(".prose :is(a, img, .cite)").count() == 0


async def test_no_part_of_a_formula_leaves_its_box(page: Page, server_url: str) -> None:
    """Discriminates: glyphs moved over the question, or as large as the window."""
    await shown(page, server_url, "前\n\n\\(\\kern-100em X \\rule{900em}{900em}\\raisebox{90em}{Y}\\) 后")
    await drawn(page, 1)
    box = await page.locator(".prose").bounding_box()
    math = await page.locator(".prose math").bounding_box()
    assert box is not None
    assert math is not None
    assert math["x"] >= box["x"]
    assert math["x"] + math["width"] <= box["x"] + box["width"] + 1
    contained = await page.locator(".prose math").evaluate("(math) => getComputedStyle(math).contain")
    assert contained == "paint"


async def test_a_source_mark_after_a_formula_is_a_button_and_one_inside_is_not(
    page: Page, server_url: str
) -> None:
    """Discriminates: an index in a formula taken for a source."""
    await shown(page, server_url, "见 \\(x [1]\\) 和 $y$[1]。")
    await drawn(page, 2)
    assert await page.locator(".prose .cite").all_inner_texts() == ["1"]


async def test_a_full_stop_stays_with_the_formula_before_it(page: Page, server_url: str) -> None:
    """At every width. Discriminates: a line that begins with the full stop."""
    await shown(page, server_url, "其中的每一个都是这样的：" + "$x+y$，" * 12 + "$z$。完")
    await drawn(page, 13)
    stray = await page.evaluate("""() => {
      const prose = document.querySelector(".prose");
      const alone = new Set();
      for (let width = 120; width < 300; width += 7) {
        prose.style.width = `${width}px`;
        for (const held of prose.querySelectorAll(".held")) {
          const stop = document.createRange();
          stop.selectNode(held.lastChild);
          const { right } = held.querySelector("math").getBoundingClientRect();
          if (Math.abs(stop.getBoundingClientRect().left - right) > 2) alone.add(width);
        }
      }
      return [...alone];
    }""")
    assert stray == []
    assert await page.locator(".prose .held").count() == 13


async def test_a_formula_is_not_markup_while_it_arrives(page: Page, server_url: str) -> None:
    """Discriminates: an open formula taken for emphasis, a list or a heading; or rendered half."""
    await page.goto(server_url)
    display = "\\[\n(x)*y*\n- b &= 2\n= c\n\\]\n完"
    for text in ("式 \\((x)*y_z*w\\) 完", "$$\nE*m*c\n- 1\n= 2\n$$\n\n完", display, "$$\n(x)**2**\n$$"):
        assert await page.evaluate(STRAY_ELEMENTS, text) == []
    elements = await page.evaluate(STRAY_ELEMENTS, "echo $$ 和 `f\\(x`，**粗**")
    assert elements[-2:] == ["<code>f\\(x</code>", "<strong>粗</strong>"]
    assert len(elements) == 5
    for text in ("式 \\(x^2 + y", "\\[\nx^2\n", "$$\nx^2"):
        count, read = await page.evaluate(DRAWN_TOO_SOON, text)
        assert count == 0
        assert read.startswith(text.strip())


async def test_the_cost_of_long_and_deep_formulas_is_linear_in_their_length(
    page: Page, server_url: str
) -> None:
    """Discriminates: macros that double themselves, or nested groups, without a bound."""
    deep = "\\[" + "{\\frac{1}" * 180 + "x" + "}" * 180 + "\\]"
    names = "abcdefghijklmnopqrstuvwxyz"
    doubled = "".join(f"\\def\\z{n}{{\\z{m}\\z{m}}}" for m, n in pairwise(names))
    macros = f"\\[\\def\\za{{xx}}{doubled}\\zz\\]"
    began = time.monotonic()
    await shown(page, server_url, f"{deep}\n\n{macros}\n\n" + "\\(x^{2}\\) " * 500)
    await expect(page.locator(".prose .formula")).to_have_count(502)
    await expect(page.locator(".prose .formula", has_text="\\def").locator("math")).to_have_count(0)
    assert time.monotonic() - began < 20


async def test_without_the_library_formulas_are_shown_as_written(page: Page, server_url: str) -> None:
    await page.route(re.compile("vendor/temml"), lambda route: route.abort())
    await shown(page, server_url, MATHS)
    text = await page.inner_text(".prose")
    assert "$a_b*c$ 和 \\(x*y_z*w\\)，$5 and $6" in text
    assert "$$\nE*m*c\n- 1\n= 2\n$$" in text
