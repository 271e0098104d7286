"""A link in an answer does nothing until it is clicked, leaks nothing when it is, and shows its target."""

from __future__ import annotations

from playwright.async_api import Page

from tests.browser.support.canary import Canary
from tests.browser.support.driving import answer_with, answered, ask, whole_turn
from tests.browser.support.watching import watch

LINK = "[guide](http://evil.test/guide?a=1)"


async def answer_in(page: Page, url: str, text: str) -> None:
    await page.goto(url)
    await answer_with(page, whole_turn(text))
    await ask(page, "?")
    await answered(page)
    await page.wait_for_selector(".prose .part > *")


async def test_a_link_is_inert_until_clicked_and_then_leaks_nothing(
    page: Page, bare_url: str, canary: Canary
) -> None:
    """Discriminates: `rel` left out by `restrictAttributes`; a Referrer-Policy other than no-referrer."""
    watched = await watch(page, bare_url, canary)
    await answer_in(page, bare_url, LINK)
    await page.hover(".prose a")
    await page.focus(".prose a")
    await page.dispatch_event(".prose a", "pointerdown")
    await watched.assert_nothing_happened()
    async with page.context.expect_page() as opened:
        await page.click(".prose a")
    window = await opened.value
    await window.wait_for_url("http://evil.test/guide?a=1")
    [request] = [
        words for words in canary.requests[watched.requests_before :] if words.startswith("GET /guide")
    ]
    assert "referer" not in request.lower()
    assert bare_url not in request
    assert await window.evaluate("[window.opener, document.referrer]") == [None, ""]
    assert page.url.startswith(bare_url)


SHOWN = {
    "[https://bank.example/login](http://evil.test/x)": "https://bank.example/login (evil.test)",
    "[www.bank.example](http://evil.test/x)": "www.bank.example (evil.test)",
    "[bank.example](http://evil.test/x)": "bank.example (evil.test)",
    "[bank](http://bank.example@evil.test/x)": "bank (evil.test)",
    "[the guide](http://evil.test/x)": "the guide",
    "[evil.test](http://evil.test/x)": "evil.test",
    "http://evil.test/x": "http://evil.test/x",
    "<http://evil.test/x>": "http://evil.test/x",
    "[half an address](http://user@)": "half an address",
}


async def test_a_link_whose_text_names_another_host_shows_its_target(page: Page, bare_url: str) -> None:
    """Discriminates: `showHosts` left out of `decorate`."""
    await answer_in(page, bare_url, "\n\n".join(SHOWN))
    assert await page.locator(".prose p").all_inner_texts() == list(SHOWN.values())
    assert await page.locator(".prose a").count() == len(SHOWN) - 1
