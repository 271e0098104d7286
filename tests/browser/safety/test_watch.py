"""The detector itself: it detects what it is meant to, so that its silence means something."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page

from tests.browser.safety.payloads import LEAKS, SHAPES, XSS
from tests.browser.support.canary import Canary
from tests.browser.support.watching import watch

# Each shape as the body of its own frame, some frames at a time; returns the names of those that ran.
UNGUARDED = """async (shapes) => {
  const open = async ([name, text]) => {
    const frame = document.createElement("iframe");
    frame.srcdoc = "<body></body>";
    document.body.append(frame);
    await new Promise((resolve) => (frame.onload = resolve));
    frame.contentDocument.body.innerHTML = text.replaceAll("parent.__ran=top.__ran=1", "parent.__ran=1");
    return { name, frame };
  };
  const ranIn = ({ frame }) => {
    try {
      return frame.contentWindow.__ran;
    } catch {
      return true; // it went to another origin
    }
  };
  const loads = ({ frame }) => [...(frame.contentDocument?.images ?? [])].some(({ complete }) => !complete);
  const ran = [];
  for (let at = 0; at < shapes.length; at += 20) {
    const frames = await Promise.all(shapes.slice(at, at + 20).map(open));
    for (let looks = 0; looks < 1 || (looks < 50 && frames.some(loads)); looks++) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    ran.push(...frames.filter(ranIn).map(({ name }) => name));
    for (const { frame } of frames) frame.remove();
  }
  return ran;
}"""

# Resolves when the policy has blocked it.
ADD_IMAGE = """() => new Promise((resolve) => {
  addEventListener("securitypolicyviolation", () => resolve(), { once: true });
  document.body.append(Object.assign(new Image(), { src: "http://evil.test/x" }));
})"""


def test_the_shapes_are_as_many_as_promised_and_all_different() -> None:
    def normal(text: str) -> str:
        return re.sub(r"/leak(\?\w\b)?", "/leak", re.sub(r"[ \n]+", " ", text)).strip()

    assert len({normal(shape.text).lower() for shape in XSS}) >= 300
    assert len({normal(shape.text).lower() for shape in LEAKS}) >= 110
    assert len({normal(shape.text) for shape in SHAPES}) == len(SHAPES)
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_without_any_guard_the_shapes_do_run_and_call_home(browser: Browser, canary: Canary) -> None:
    """Shapes that are raw HTML, in a document without policy or sanitiser: the corpus really attacks."""
    before = len(canary.requests)
    page = await browser.new_page()
    ran = await page.evaluate(UNGUARDED, [[shape.name, shape.text] for shape in SHAPES if "<" in shape.text])
    for _ in range(100):
        if len(canary.requests) - before >= 30:
            break
        await page.wait_for_timeout(100)  # between two polls
    await page.close()
    assert len(ran) >= 80
    assert len(canary.requests) - before >= 30


async def test_the_detector_sees_a_request_and_the_policy_that_blocks_it(
    page: Page, bare_url: str, canary: Canary
) -> None:
    watched = await watch(page, bare_url, canary)
    await page.goto(bare_url)
    async with page.context.expect_event("request", lambda request: "evil.test" in request.url):
        await page.evaluate(ADD_IMAGE)
    assert (await page.evaluate("window.__violations"))[0].startswith("img-src http://evil.test")
    assert watched.strays == ["http://evil.test/x"]
    assert await watched.odd_markup("html") == ["<img>"]


async def test_the_browser_itself_rejects_unsanitised_markup(page: Page, bare_url: str) -> None:
    """Discriminates: `require-trusted-types-for` left out of the policy."""
    await page.goto(bare_url)
    await page.evaluate("part('answer/markdown.js').then((module) => module.engineReady)")
    refused = "(make) => { try { make(); return 'taken' } catch (error) { return error.name } }"
    for sink in (
        "() => (document.createElement('p').innerHTML = '<b>x</b>')",
        "() => document.body.insertAdjacentHTML('beforeend', 'x')",
        "() => new DOMParser().parseFromString('x', 'text/html')",
        "() => (document.createElement('iframe').srcdoc = 'x')",
        "() => (document.createElement('script').text = '1')",
        "() => trustedTypes.createPolicy('mine', {})",
        "() => trustedTypes.createPolicy('dompurify', {})",
    ):
        assert await page.evaluate(f"({refused})({sink})") == "TypeError", sink
