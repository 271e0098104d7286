"""What a reader does on the page, and hand-made streams for it to read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from playwright.async_api import Page, Route

ASK = "**/knowledge_chat_conversation"
TURN_ID = "0b0e8a52-6f1c-4d1e-9a43-5a1c6d1f7e21"
SESSION_ID = "5f2c1b7e-3d4a-4f6b-8c9d-0e1f2a3b4c5d"
Event = tuple[str, object]

# Hands the body of the question's response to the page in pieces of `size` bytes, cut inside characters too.
STREAM_IN_PIECES = """(size) => {
  const whole = window.fetch;
  window.fetch = async (path, options) => {
    const response = await whole(path, options);
    if (path !== "/knowledge_chat_conversation") return response;
    const bytes = new Uint8Array(await response.arrayBuffer());
    let at = 0;
    return new Response(new ReadableStream({
      async pull(controller) {
        if (at % (size * 64) === 0) await new Promise((resolve) => setTimeout(resolve));
        if (at >= bytes.length) return controller.close();
        controller.enqueue(bytes.slice(at, (at += size)));
      },
    }), response);
  };
}"""
AT_TOP = """() => new Promise((resolve) => {
  const look = () => (scrollY ? requestAnimationFrame(look) : resolve());
  look();
})"""
# A stored turn has its status at once; its texts wait for the libraries, and are drawn some per frame: all of
# them are drawn when two frames, in which everything pending had its turn, have added nothing.
DRAWN = """async () => {
  await (await part("answer/markdown.js")).engineReady;
  const { nextFrame } = await part("base/frames.js");
  const thread = document.querySelector("#thread");
  const grows = () => thread.querySelector(".turn[data-status=running]") !== null;
  let before;
  do {
    before = thread.textContent.length;
    await nextFrame();
    await nextFrame();
  } while (!grows() && thread.textContent.length !== before);
}"""
# What `found(box)` returns for the text as it stands after each character, without duplicates.
GROWING = """async (text) => {
  const { previewOf } = await part("answer/preview.js");
  const { BlockSplitter } = await part("answer/blocks.js");
  const { engineReady, toFragment } = await part("answer/markdown.js");
  await engineReady;
  const splitter = new BlockSplitter();
  const seen = new Set();
  for (const char of text) {
    splitter.feed(char);
    const box = document.createElement("div");
    box.append(toFragment(splitter.open.map((block) => previewOf(block, splitter.inCode))));
    for (const each of found(box)) seen.add(each);
  }
  return [...seen];
  function found(box) { %s }
}"""


async def ask(page: Page, question: str) -> None:
    await page.fill("#question", question)
    if await page.evaluate("matchMedia('(pointer: coarse)').matches"):  # on a phone Enter breaks the line
        await page.tap("#composer .send")
    else:
        await page.press("#question", "Enter")


async def answered(page: Page, turns: int = 1, status: str = "completed") -> None:
    """Wait until the page shows that many turns, the last one has that status, and their texts are drawn."""
    await page.wait_for_selector(f".turn:nth-child({turns})[data-status={status}]")
    await page.evaluate(DRAWN)


async def to_top(page: Page) -> None:
    """By mouse wheel, which a page that follows its end obeys."""
    await page.mouse.move(600, 200)
    await page.mouse.wheel(0, -9999)
    await page.evaluate(AT_TOP)


def sse_body(events: Sequence[Event]) -> bytes:
    """The prefix format's bytes for (type, text or JSON value), as docs/guide/en/api.md shows them."""
    frames = []
    for number, (kind, value) in enumerate(events, 1):
        payload = value if isinstance(value, str) else json.dumps(value)
        lines = "".join(f"data: {line}\n" for line in f"{kind}:{payload}".split("\n"))
        frames.append(f"id: {TURN_ID}:{number}\n{lines}\n")
    return "".join(frames).encode()


def whole_turn(answer: str, *, sources: Sequence[object] = (), before: Sequence[Event] = ()) -> bytes:
    finished = {"stage": "finished", "message": "", "turn_id": TURN_ID, "status": "completed"}
    events = [("SESSION", SESSION_ID), *before, ("CONTENT", answer)]
    return sse_body([*events, ("SOURCE", list(sources)), ("STATUS", finished), ("DONE", "")])


async def answer_with(page: Page, body: bytes) -> None:
    """From now on every question gets this stream."""

    async def fulfil(route: Route) -> None:
        await route.fulfill(body=body, content_type="text/event-stream; charset=utf-8")

    await page.route(ASK, fulfil)


async def answer_in_turn(page: Page, bodies: Sequence[bytes]) -> None:
    """The first question gets the first stream, and so on."""
    left = iter(bodies)

    async def fulfil(route: Route) -> None:
        await route.fulfill(body=next(left), content_type="text/event-stream; charset=utf-8")

    await page.route(ASK, fulfil)


async def add_style(page: Page, css: str) -> None:
    """From the next load on, as if the browser's own style sheet contained it."""
    await page.add_init_script(
        f"""addEventListener("DOMContentLoaded", () => {{
          const sheet = new CSSStyleSheet();
          sheet.replaceSync({json.dumps(css)});
          document.adoptedStyleSheets.push(sheet);
        }})"""
    )


async def stream_in_pieces(page: Page, size: int) -> None:
    await page.add_init_script(f"({STREAM_IN_PIECES})({size})")


def citation(index: int = 1, **changes: object) -> dict[str, object]:
    whole = {
        "index": index, "document_id": "d", "file_name": "指南.md", "chunk_id": f"c{index}", "score": 0.9,
        "page": None, "heading": "概念", "char_start": 0, "char_end": 9, "key_passage": "关键的一句。",
        "text": "前文。关键的一句。后文。", "reason": None, "cited": True,
    }  # fmt: skip
    return {**whole, **changes}
