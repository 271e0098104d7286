"""Every error has words in the reader's language; the server's own sentence is folded away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from routes.web.page import WEB
from tests.browser.composer.composing import BOX, opened
from tests.browser.safety.test_page_sources import WORDS, words_of
from tests.browser.support.driving import ASK, answered, ask
from tests.browser.support.live import QUESTION, Live
from tests.house.reference import statuses, unreadable_codes
from tests.support.models.stub_llm import Refusal

# Codes of what only an operator requests, at the API or with a command: the page never receives them.
OPERATORS = {
    "backup_running", "bad_archive", "copy_incomplete", "import_incomplete", "move_incomplete",
    "restore_incomplete", "store_not_empty", "unknown_source",
}  # fmt: skip
STATUSES = {f"http_{status}" for status in (400, 401, 403, 404, 413, 418, 429, 500, 502, 503, 504, 507)}
PAGES_OWN = {"network", "connection_lost"}
SENTENCE = "question: the server says this."
# What a card shows for each code, as {code: {cause, hint, closed, open}}.
CARDS = """async ([codes, message]) => {
  const { errorCard } = await part("turn/error-card.js");
  const cards = {};
  for (const code of codes) {
    const card = errorCard({ message, code, requestId: "r-1", onRetry: () => {} });
    document.body.append(card);
    const text = (part) => card.querySelector(part)?.innerText ?? "";
    const [cause, hint, closed] = [text(".cause"), text(".hint-line"), card.innerText];
    if (card.querySelector("details")) card.querySelector("details").open = true;
    cards[code] = { cause, hint, closed, open: card.innerText };
    card.remove();
  }
  return cards;
}"""


def codes() -> set[str]:
    return set(statuses()) - unreadable_codes() - OPERATORS


def has_chinese(text: str) -> bool:
    return any("\u4e00" <= char <= "\u9fff" for char in text)


@pytest.mark.full("a journey of seconds in a real browser")
@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_code_of_the_server_has_a_cause_and_a_hint(language: str) -> None:
    """Discriminates: a class of errors added with a code that has no words."""
    known = {key for file in WORDS for key in words_of(file, language)}
    assert len(codes()) > 40
    missing = [f"{part}_{code}" for code in sorted(codes()) for part in ("cause", "try")]
    assert [key for key in missing if key not in known] == []


def test_every_reason_why_a_file_is_refused_has_words_in_the_documents_panel() -> None:
    """Discriminates: a reader that refuses with its own code, which the panel does not know."""
    words = (WEB / "js/uploads/reasons.js").read_text("utf-8")
    assert len(unreadable_codes()) > 5
    assert [code for code in sorted(unreadable_codes()) if f"{code}: " not in words] == []


async def shown_words(page: Page, codes: set[str]) -> dict[str, dict[str, str]]:
    cards: dict[str, dict[str, str]] = await page.evaluate(CARDS, [sorted(codes), SENTENCE])
    return cards


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_card_is_in_the_readers_language_and_folds_the_servers_sentence(
    page: Page, bare_url: str
) -> None:
    """Discriminates: the server's sentence as a line of the card; a status without its own words."""
    await opened(page, bare_url)
    shown = codes() | STATUSES | PAGES_OWN
    for chinese in (True, False):
        for code, card in (await shown_words(page, shown)).items():
            assert has_chinese(card["cause"]) is chinese, code
            assert card["hint"], code
            assert has_chinese(card["closed"]) is chinese, code
            assert SENTENCE not in card["closed"], code
            assert "r-1" not in card["closed"], code
            assert all(part in card["open"] for part in (SENTENCE, code, "r-1")), code
        await page.click("#language")


async def test_for_an_error_unknown_to_the_page_the_servers_sentence_is_shown(
    page: Page, bare_url: str
) -> None:
    await opened(page, bare_url)
    card = (await shown_words(page, {"of_tomorrow"}))["of_tomorrow"]
    assert card["cause"] == SENTENCE
    assert "of_tomorrow" in card["open"]
    assert "r-1" in card["open"]


async def refuse(page: Page, status: int, body: Any) -> None:
    async def fulfil(route: Route) -> None:
        text = body if isinstance(body, str) else json.dumps({"error": body})
        await route.fulfill(status=status, body=text, content_type="application/json")

    await page.route(ASK, fulfil)


async def test_the_details_open_at_a_click_and_a_retry_is_beside_the_words(page: Page, bare_url: str) -> None:
    await opened(page, bare_url)
    error = {"code": "store_unavailable", "message": SENTENCE, "retryable": True, "request_id": "r-7"}
    await refuse(page, 503, error)
    await ask(page, "?")
    await answered(page, status="failed")
    assert not await page.is_visible(".error-card .more")
    await page.click(".error-card summary")
    assert await page.inner_text(".error-card .more") == SENTENCE
    assert "store_unavailable" in await page.inner_text(".error-facts")
    assert "编号 r-7" in await page.inner_text(".error-facts")
    assert await page.locator(".error-card .retry").count() == 1


MIDWAY = (
    'data: {"choices": [{"delta": {"content": "半句"}}]}\n\n'
    'data: {"error": {"message": "busy", "code": 503}}\n\n'
)


async def test_a_quota_has_its_own_words_and_the_wait_that_the_models_server_names(
    page: Page, live: Live
) -> None:
    """Discriminates: "gave no answer" for every failure; a retry that cannot succeed yet."""
    words = "Rate limit reached. Please try again in 40s."
    live.says(refuse=lambda body: Refusal(words, 429))
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page, status="failed")
    assert "请求太多" in await page.inner_text(".error-card .cause")
    await expect(page.locator(".error-card .retry")).to_be_disabled()
    assert "秒后" in await page.inner_text(".error-card .retry")
    live.says(refuse=lambda body: Refusal(words.replace("40s", "2h"), 429))
    await ask(page, QUESTION)
    await answered(page, 2, "failed")
    assert "约 120 分钟" in await page.inner_text(".turn:nth-child(2) .error-card")
    assert await page.is_enabled(".turn:nth-child(2) .error-card .retry")
    live.says()
    await ask(page, QUESTION)
    await answered(page, 3, "failed")
    assert "什么都没有写" in await page.inner_text(".turn:nth-child(3) .error-card .cause")


async def test_a_card_below_a_partial_answer_does_not_say_that_there_is_none(page: Page, live: Live) -> None:
    live.says(raw=MIDWAY)
    await page.goto(live.url)
    await ask(page, QUESTION)
    await answered(page, status="failed")
    assert await page.inner_text(".prose") == "半句"
    card = await page.inner_text(".error-card")
    assert "模型的回答中途断了" in card
    assert "已收到的文字保留在上面" in card


async def test_a_proxys_error_page_is_explained_in_words_too(page: Page, bare_url: str) -> None:
    """Discriminates: a status without a body of ours, shown as "HTTP 500"."""
    await opened(page, bare_url)
    await refuse(page, 500, "<html>Bad")
    await ask(page, "?")
    await answered(page, status="failed")
    assert "HTTP" not in await page.inner_text(".error-card")
    assert "暂时不可用" in await page.inner_text(".error-card .cause")


async def test_a_question_too_long_for_a_small_model_is_explained_and_kept(page: Page, bare_url: str) -> None:
    """The box accepts it, the window of 8,192 tokens does not. Discriminates: the text lost."""
    question = "字" * 7_900
    await opened(page, bare_url)
    await ask(page, question)
    await answered(page, status="failed")
    card = await page.inner_text(".error-card")
    assert "问题太长" in card
    assert "缩短问题" in card
    assert "窗口更大的模型" in card
    assert "tokens" not in card
    assert await page.locator(".error-card .retry").count() == 0
    await expect(page.locator(BOX)).to_have_value(question)
    # nothing lies over the card: the box, which holds the question again, may be very high
    await page.locator(".error-card .cause").last.click(trial=True)
