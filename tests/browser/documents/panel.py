"""What a reader does in the documents panel, and made-up documents for it to show."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any

from playwright.async_api import FilePayload, Page, Route

INPUT = "#documents input[type=file]"
# Drags files over the page and drops them, as the system's file manager would.
DROP = """(files) => {
  const carried = new DataTransfer();
  for (const { name, mimeType, base64 } of files) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    carried.items.add(new File([bytes], name, { type: mimeType }));
  }
  const fire = (type) => document.body.dispatchEvent(
    new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true }));
  fire("dragenter");
  window.__wasOver = document.querySelector("#documents.dropping") !== null;
  fire("drop");
}"""
# Drags a file over the page and out of the window; WebKit names no element that the drag enters next.
DRAG_OUT = """() => {
  const carried = new DataTransfer();
  carried.items.add(new File(["x"], "a.md", { type: "text/markdown" }));
  const of = { dataTransfer: carried, bubbles: true, cancelable: true };
  const types = ["dragenter", "dragleave", "dragover", "dragleave"];
  for (const type of types) document.body.dispatchEvent(new DragEvent(type, of));
}"""
# Records what one part of the page publishes for the others.
LISTEN = """async () => {
  const { subscribe } = await part("base/bus.js");
  window.__published = [];
  const keep = (name) => subscribe(name, (detail) => window.__published.push([name, detail]));
  ["quote", "persona", "filter"].forEach(keep);
}"""


def a_file(name: str, text: str | bytes) -> FilePayload:
    return {
        "name": name,
        "mimeType": "text/plain",
        "buffer": text.encode() if isinstance(text, str) else text,
    }


async def open_panel(page: Page, url: str) -> None:
    await page.goto(url)
    await page.click(".open-documents")
    await page.wait_for_selector("#documents[open]")


async def choose(page: Page, *files: FilePayload) -> None:
    await page.set_input_files(INPUT, files)


async def drop(page: Page, *files: FilePayload) -> None:
    carried = [
        {"name": f["name"], "mimeType": f["mimeType"], "base64": base64.b64encode(f["buffer"]).decode()}
        for f in files
    ]
    await page.evaluate(DROP, carried)


def row(name: str) -> str:
    return f".document:has(.document-name:text-is('{name}'))"


def upload_row(name: str) -> str:
    return f".upload:has(.document-name:text-is('{name}'))"


async def words(page: Page, selector: str) -> str:
    """The text of the element: `inner_text` of a row not laid out yet is empty (content-visibility)."""
    return await page.locator(selector).first.text_content() or ""


async def read_in(page: Page, name: str) -> None:
    await page.wait_for_selector(f"{row(name)}[data-status=ready]")


def document(name: str = "指南.md", **changes: Any) -> dict[str, Any]:
    whole = {
        "document_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)), "file_name": name, "content_hash": "a" * 64,
        "size_bytes": 1_234, "status": "ready", "chunk_count": 3, "external_id": None, "tags": [],
        "date": None, "error": None, "source": "", "created_at": "2026-01-31T08:00:00Z",
        "modified_at": None, "shared": False, "sample": False,
    }  # fmt: skip
    return {**whole, **changes}


def job(stage: str, **changes: Any) -> dict[str, Any]:
    whole = {
        "job_id": "6f1c4d1e-0b0e-4e52-9a43-5a1c6d1f7e21", "document_id": document()["document_id"],
        "file_name": "指南.md", "stage": stage, "done": 0, "total": 3, "error": None, "error_code": None,
        "retryable": False, "attempt": 1, "reused": 0, "started_at": None, "next_try_at": None,
        "ended_at": None,
    }  # fmt: skip
    return {**whole, **changes}


async def answer(page: Page, address: str, body: object, status: int = 200) -> None:
    """From now on requests to this address (a glob) get this reply."""

    async def fulfil(route: Route) -> None:
        await route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    await page.route(address, fulfil)


async def replying(page: Page, method: str, address: str, *replies: tuple[int, object]) -> None:
    """Requests with this method get these replies one after the other, the last one repeatedly."""
    left = list(replies)

    async def fulfil(route: Route) -> None:
        if route.request.method != method:
            await route.fallback()
            return
        status, body = left.pop(0) if len(left) > 1 else left[0]
        await route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    await page.route(address, fulfil)


async def lists(page: Page, documents: Sequence[dict[str, Any]]) -> None:
    """The complete list of documents, in pages of a hundred like the server's."""

    async def fulfil(route: Route) -> None:
        begin = int(route.request.url.partition("cursor=")[2] or 0)
        end = begin + 100
        more = str(end) if end < len(documents) else None
        body = {"documents": documents[begin:end], "next": more}
        await route.fulfill(body=json.dumps(body), content_type="application/json")

    await page.route("**/documents?*", fulfil)
