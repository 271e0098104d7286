"""At every moment of its arrival an answer is safe, and it ends like the answer rendered at once."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.answer.test_rendering import MARKDOWN
from tests.browser.safety.payloads import SHAPES
from tests.browser.support.canary import Canary
from tests.browser.support.watching import ODD_MARKUP, watch

MAX_CHARS = 240

# For each text: what was wrong in any prefix, and whether the end differs from the text rendered at once.
# Frames are immediate here: each piece is rendered before the next one arrives.
GROW = """async (texts) => {
  const odd = ODD_MARKUP;
  const { AnswerView } = await part("answer/view.js");
  await (await part("answer/markdown.js")).engineReady;
  window.requestAnimationFrame = (task) => queueMicrotask(() => task(performance.now()));
  const channel = new MessageChannel();
  const settled = () =>
    new Promise((done) => { channel.port1.onmessage = done; channel.port2.postMessage(0); });
  const render = async (pieces, look) => {
    const view = new AnswerView();
    document.body.append(view.element);
    for (const piece of pieces) { view.append(piece); await settled(); look(view.element); }
    view.end();
    for (let i = 0; i < 5; i++) await settled();
    view.element.remove();
    return view.element.innerHTML;
  };
  const bad = [];
  let looks = 0;
  for (const [name, text, size] of texts) {
    const pieces = []; // by UTF-16 unit: halves of characters too
    for (let at = 0; at < text.length; at += size) pieces.push(text.slice(at, at + size));
    const look = (root) => {
      if (root.textContent) looks += 1;
      for (const found of odd(root, true)) bad.push(`${name}: ${found}`);
    };
    const grown = await render(pieces, look);
    if (grown !== (await render([text], look))) bad.push(`${name}: ends otherwise`);
  }
  return [bad, looks];
}""".replace("ODD_MARKUP", ODD_MARKUP)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_every_prefix_of_every_shape_is_safe_and_ends_as_the_whole(
    page: Page, bare_url: str, canary: Canary
) -> None:
    """Discriminates: a growing block shown past DOMPurify; a cut that depends on the pieces."""
    watched = await watch(page, bare_url, canary)
    await page.goto(bare_url)
    texts = [
        (shape.name, shape.text[:MAX_CHARS], 1 if at % 6 == 0 else 40) for at, shape in enumerate(SHAPES)
    ]
    bad, looks = await page.evaluate(GROW, [*texts, ("markdown", MARKDOWN, 1)])
    assert bad == []
    assert looks > sum(len(text) for _, text, size in texts if size == 1)  # what arrived is visible at once
    await watched.assert_nothing_happened()
