"""Counts read naturally, and a language switch leaves nothing of the other language behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.composer.composing import opened
from tests.browser.safety.test_page_sources import WORDS
from tests.browser.support.driving import answer_with, answered, ask, citation, whole_turn

PHRASES = """async (counts) => {
  const { t } = await part("base/i18n.js");
  return counts.map((n) => t("sourcesCount", { n }));
}"""
COUNTABLE = "sources documents passages tokens turns conversations characters candidates days parts"
COUNTED = re.compile(rf"\{{\w+\}} (?:more |earlier )?({COUNTABLE.replace(' ', '|')})\b")


def english_of(file: Path) -> list[str]:
    return file.read_text("utf-8").partition("export const en")[2].splitlines()


async def english(page: Page, url: str) -> None:
    await opened(page, url)
    await page.click("#language")


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize(("n", "words"), [(1, "1 source"), (2, "2 sources")])
async def test_english_counts_one_and_many(page: Page, bare_url: str, n: int, words: str) -> None:
    """Discriminates: the plural for one; a form that does not follow the language."""
    await answer_with(page, whole_turn("答 [1]。", sources=[citation(at) for at in range(1, n + 1)]))
    await english(page, bare_url)
    await ask(page, "?")
    await answered(page)
    assert await page.inner_text(".sources h3") == words
    await page.click("#language")
    assert await page.inner_text(".sources h3") == f"来源 {n}"


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_inexact_count_is_plural(page: Page, bare_url: str) -> None:
    await english(page, bare_url)
    assert await page.evaluate(PHRASES, [0, "1", "50+"]) == ["0 sources", "1 source", "50+ sources"]


def test_no_english_text_counts_in_a_single_form() -> None:
    """Discriminates: "{n} passages" without a form for one."""
    lines = [line for file in WORDS for line in english_of(file)]
    hits = [line for line in lines if COUNTED.search(line) and "other: " not in line]
    assert hits == []


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_language_switch_clears_what_was_announced_to_a_screen_reader(
    page: Page, bare_url: str
) -> None:
    """Discriminates: the announcer's words left in the other language."""
    await opened(page, bare_url)
    await page.evaluate("document.querySelector('#announcer').textContent = '回答完成'")
    await page.click("#language")
    await expect(page.locator("#announcer")).to_have_text("")
