"""The conversation on paper: everything of it, nothing of the page around it, dark on white."""

from __future__ import annotations

import io
from unicodedata import normalize

import numpy as np
import pypdfium2
import pytest
from PIL import Image
from playwright.async_api import Page

from tests.browser.support.driving import answer_with, answered, ask, citation, whole_turn

LONG = "\n".join(f"第 {n} 行" for n in range(60))
ANSWER = f"""据 [1]，答案在此。见[手册](https://example.org/handbook)和 <https://example.org/auto>。

```python
{"x = 1; " * 40}end_of_code
```

| {" | ".join(f"列{n}" for n in range(9))} |
|{"---|" * 9}
| {" | ".join(f"单元格的内容{n}" for n in range(9))} |
"""
PASSAGE = "这一句很长。" * 60 + "到此为止。"


def text_of(printed: bytes) -> str:
    """Without spaces; fonts name some characters by their radicals."""
    with pypdfium2.PdfDocument(printed) as document:
        text = "".join(page.get_textpage().get_text_bounded() for page in document)
    return normalize("NFKC", "".join(text.split()))


async def test_a_very_long_answer_is_printed_whole_and_then_shown_in_part_again(
    page: Page, bare_url: str
) -> None:
    """Discriminates: blank parts far from the viewport; every part kept as elements after printing."""
    await page.goto(bare_url)
    await answer_with(page, whole_turn("".join(f"第{n}段：{'文字' * 100}。\n\n" for n in range(800))))
    await ask(page, "写长一点")
    await answered(page)
    before = await page.locator(".prose p").count()
    text = text_of(await page.pdf())
    assert [n for n in range(800) if f"第{n}段" not in text] == []
    assert await page.locator(".prose p").count() <= before < 800


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_printed_conversation_is_whole_and_dark_on_white(
    page: Page, bare_url: str, theme: str
) -> None:
    """Discriminates: the panel and the question box on every page; a question, a passage, code or a table cut
    off where it scrolls on the screen; a dark theme's light ink on white paper."""
    await page.add_init_script(f"localStorage.setItem('wenmai.theme', '{theme}')")
    await page.goto(bare_url)
    await answer_with(page, whole_turn(ANSWER, sources=[citation(key_passage=PASSAGE, text=PASSAGE)]))
    await ask(page, f"{LONG}\n问到这里")
    await answered(page)
    await page.wait_for_selector(".prose table")
    text = text_of(await page.pdf(format="A4"))
    for whole in ("第0行", "问到这里", "end_of_code", "单元格的内容8", "到此为止。", "指南.md", "概念"):
        assert whole in text, whole
    assert text.count("https://example.org/handbook") == text.count("https://example.org/auto") == 1
    for around in ("搜索对话", "Enter发送", "检索设置"):
        assert around not in text, around
    await page.emulate_media(media="print")
    await page.set_viewport_size({"width": 720, "height": 1000})
    screenshot = Image.open(io.BytesIO(await page.screenshot(full_page=True)))
    picture = np.asarray(screenshot.convert("L"))
    assert picture[0, 0] == np.median(picture) == 255
    assert np.percentile(picture, 1) < 120  # the ink
    assert await page.evaluate("document.documentElement.scrollWidth") == 720
