"""Make docs/images/*.png, the page's main states: the real server, the sample, a stub model, a real browser.

Run by `make screenshot` after a change to the page. `make screenshot ONLY="page branches"` takes only some.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.support.scenes import SCENES, Scene
from tests.support.environment import ROOT
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.sample import wait_for_sample
from tests.support.servers.server import running_server

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    chosen = [scene for scene in SCENES if scene.name in sys.argv[1:] or not sys.argv[1:]]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_stub(StubLLM()) as stub,
        running_server(Path(folder), OPENAI_BASE_URL=stub.url) as server,
        sync_playwright() as playwright,
    ):
        wait_for_sample(server.url)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        IMAGES.mkdir(exist_ok=True)
        for scene in chosen:
            take(browser, scene, server.url, stub)
        browser.close()


def take(browser: Browser, scene: Scene, url: str, stub: StubLLM) -> None:
    page = opened(browser, scene, url)
    stub.words, stub.pause_s, stub.status = scene.words, scene.pause_s, scene.status
    scene.play(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)  # transitions have ended
    page.screenshot(path=IMAGES / f"{scene.name}.png")
    page.context.close()


def opened(browser: Browser, scene: Scene, url: str) -> Page:
    width, height = scene.size
    page = browser.new_page(
        viewport={"width": width, "height": height}, locale=scene.locale, color_scheme=scene.colours
    )
    page.set_default_timeout(20_000)
    page.goto(url)
    return page


if __name__ == "__main__":
    main()
