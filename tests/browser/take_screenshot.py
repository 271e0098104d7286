"""Make docs/images/page.png: the real server, the sample knowledge base, a real browser.

Run by `make screenshot` after a change to the page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.support.sample import wait_for_sample
from tests.support.server import ROOT, running_server

IMAGE = ROOT / "docs" / "images" / "page.png"
SIZE: ViewportSize = {"width": 1200, "height": 820}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder)) as server,
        sync_playwright() as p,
    ):
        wait_for_sample(server.url)
        browser = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport=SIZE, locale="zh-CN")
        page.goto(server.url)
        for question in ("父子链是什么?", "它有什么用?"):
            ask(page, question)
        IMAGE.parent.mkdir(exist_ok=True)
        page.screenshot(path=IMAGE)
        browser.close()


def ask(page: Page, question: str) -> None:
    page.fill("textarea", question)
    page.keyboard.press("Enter")
    page.wait_for_timeout(3_000)


if __name__ == "__main__":
    main()
