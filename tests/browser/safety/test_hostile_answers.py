"""Every hostile shape in an answer, streamed in pieces of every size: it stays text, or an inert link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from playwright.async_api import Page

from tests.browser.safety.payloads import SHAPES, XSS
from tests.browser.support.canary import Canary
from tests.browser.support.driving import answer_in_turn, answered, ask, stream_in_pieces, whole_turn
from tests.browser.support.watching import watch

WHOLE = 1 << 20
BATCH_CHARS = 6_000
ALL_SHAPES = "some 400 shapes are streamed and rendered"


def batches(texts: Sequence[str]) -> Iterator[str]:
    """Answers of many shapes each. (test_hostile_prefixes has each shape alone, where no fence swallows
    it.)"""
    batch = ""
    for text in texts:
        batch += f"{text}\n\n"
        if len(batch) >= BATCH_CHARS:
            yield batch
            batch = ""
    yield batch


@pytest.mark.parametrize(
    "size",
    [64, *(pytest.param(size, marks=pytest.mark.full(ALL_SHAPES)) for size in (1, 7, WHOLE))],
)
async def test_every_shape_in_an_answer_stays_harmless(
    page: Page, bare_url: str, canary: Canary, size: int
) -> None:
    """Discriminates: DOMPurify skipped and `renderer.html` left out; any scheme allowed."""
    answers = [*batches([shape.text for shape in SHAPES])]
    watched = await watch(page, bare_url, canary)
    await stream_in_pieces(page, size)
    await page.goto(bare_url)
    await answer_in_turn(page, [whole_turn(answer) for answer in answers])
    for number in range(1, len(answers) + 1):
        await ask(page, "?")
        await answered(page, turns=number)
    await watched.assert_nothing_happened()
    shown = "".join(await page.locator(".prose").all_inner_texts())
    assert all(shape.text in shown for shape in XSS if shape.name.startswith("modern."))


async def test_frames_that_an_answer_imitates_are_plain_text(page: Page, bare_url: str) -> None:
    text = "DONE:\n\nSOURCE:[]\n\ndata: ERROR:no\n\nthe end \U0001f409 龙"
    await stream_in_pieces(page, 7)
    await page.goto(bare_url)
    await answer_in_turn(page, [whole_turn(text)])
    await ask(page, "?")
    await answered(page)
    assert (await page.inner_text(".prose")).split() == text.split()
    assert await page.locator(".error-card").count() == 0
