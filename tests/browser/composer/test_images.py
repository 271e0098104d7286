"""An image is pasted, dropped or picked, appears above the box, is sent, and is shown in the thread until it
is erased."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, expect

from tests.browser.composer.composing import Served, opened
from tests.browser.support.driving import answered
from tests.e2e.images.pictures import picture
from tests.support.models.tool_stub import Step, ToolStub, calling_tools
from tests.support.servers.app import HASHING
from tests.support.servers.server import running_server

WORDS = "这是什么颜色\uff1f"
# Gives the page files as a paste or a drop does; the clipboard of a headless browser takes no file.
GIVE = """([how, data, type, name]) => {
  const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type }));
  const of = { bubbles: true, cancelable: true };
  const box = document.querySelector("#question");
  if (how === "paste") box.dispatchEvent(new ClipboardEvent("paste", { ...of, clipboardData: given }));
  else box.dispatchEvent(new DragEvent("drop", { ...of, dataTransfer: given }));
}"""


@dataclass(frozen=True)
class Seeing:
    url: str
    stub: ToolStub
    data_dir: Path


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeing]:
    folder = tmp_path_factory.mktemp("seeing")
    with calling_tools(Step("红色。")) as stub:
        config = folder / "wenmai.toml"
        table = f'provider = "openai"\nmodel = "m"\nbase_url = "{stub.url}"\napi_key = "k"\n'
        config.write_text(
            f"[llms.default]\n{table}context_window = 32000\nvision = true\n"
            f"[llms.blind]\n{table}context_window = 32000\n"
        )
        environment = {"WENMAI_CONFIG": str(config), "EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
        with running_server(folder / "data", **environment) as server:
            yield Seeing(server.url, stub, folder / "data")


async def give(
    page: Page, how: str, content: bytes = b"", kind: str = "image/png", name: str = "a.png"
) -> None:
    data = base64.b64encode(content or picture()).decode()
    await page.evaluate(GIVE, [how, data, kind, name])


async def drag(page: Page, *files: Path) -> None:
    """Drag them from outside over the page and drop them, with all the events of the browser."""
    session = await page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        await session.send("Input.dispatchDragEvent", {"type": kind, "x": 500, "y": 400, "data": data})


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_image_is_pasted_sent_shown_and_erased(page: Page, seeing: Seeing) -> None:
    """Discriminates: an image that is lost on the way or on reload, or kept when its turn is erased."""
    await opened(page, seeing.url)
    thumbnails = page.locator(".image-tray li")
    await give(page, "paste")
    await give(page, "drop")
    chosen = FilePayload(name="b.png", mimeType="image/png", buffer=picture(size=(300, 200)))
    await page.set_input_files("#composer input[type=file]", chosen)
    await expect(thumbnails).to_have_count(3)
    await thumbnails.nth(0).locator(".image-remove").click()
    await expect(thumbnails).to_have_count(2)
    await page.fill("#question", WORDS)
    await page.press("#question", "Enter")
    await answered(page)
    await expect(thumbnails).to_have_count(0)
    asked = page.locator(".asked-image img")
    await expect(asked).to_have_count(2)
    sent = seeing.stub.bodies[-1]["messages"][-1]["content"]
    assert [each["type"] for each in sent] == ["image_url", "image_url", "text"]
    await page.reload()
    await answered(page)
    await expect(asked.nth(1)).to_have_js_property("naturalWidth", 300)
    turn_id = await page.get_attribute(".turn", "data-turn")
    assert (seeing.data_dir / "images" / str(turn_id)).is_dir()
    await page.request.delete(f"{seeing.url}/turns/{turn_id}")
    await page.reload()
    await expect(page.locator(".turn")).to_have_count(0)
    assert not (seeing.data_dir / "images" / str(turn_id)).exists()


@pytest.mark.full("a journey of seconds in a real browser")
async def test_an_image_alone_is_a_question_and_is_asked_again_with_its_image(
    page: Page, seeing: Seeing
) -> None:
    await opened(page, seeing.url)
    await expect(page.locator(".send")).to_be_disabled()
    await give(page, "paste")
    await page.click(".send")
    await answered(page)
    await page.press("#question", "ArrowUp")
    await expect(page.locator(".question-editor")).to_be_visible()
    await expect(page.locator(".asked-image img")).to_be_visible()  # the image is sent again, too
    await page.keyboard.press("Escape")
    await page.click(".regenerate")
    await answered(page)
    await expect(page.locator(".asked-image img")).to_have_count(1)
    kinds = [each["type"] for each in seeing.stub.bodies[-1]["messages"][-1]["content"]]
    assert kinds == ["image_url", "text"]


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_refused_image_comes_back_and_a_model_without_vision_is_announced(
    page: Page, seeing: Seeing
) -> None:
    """Discriminates: a refused image that is lost, one that is sent to a model without vision."""
    await opened(page, seeing.url)
    await give(page, "paste", picture()[:-20])
    await page.fill("#question", WORDS)
    await page.press("#question", "Enter")
    card = page.locator(".error-card[data-code=image_refused]")
    await expect(card).to_be_visible()
    await expect(page.locator("#question")).to_have_value(WORDS)
    await expect(page.locator(".image-tray li")).to_have_count(1)
    note = page.locator(".composer-note", has_text="不支持图片")
    await page.select_option("#model", "blind")
    await expect(note).to_be_visible()  # before it is sent in vain
    await page.select_option("#model", "default")
    await expect(note).to_be_hidden()
    await page.locator(".image-remove").click()
    await page.select_option("#model", "blind")
    await expect(page.locator("#attach")).to_be_hidden()
    await expect(note).to_be_hidden()
    await give(page, "paste")
    await expect(note).to_be_visible()
    await expect(page.locator(".image-tray li")).to_have_count(0)


@pytest.mark.full("a journey of seconds in a real browser")
async def test_images_dragged_over_the_page_are_attached_and_other_files_uploaded(
    page: Page, seeing: Seeing, tmp_path: Path
) -> None:
    """Discriminates: an image that goes to the documents, which refuse it, because dragging opens them; one
    that is attached although it was dropped on the open documents."""
    image, note = tmp_path / "a.png", tmp_path / "note.md"
    image.write_bytes(picture())
    note.write_text("潮汐表")
    await opened(page, seeing.url)
    thumbnails, uploads = page.locator(".image-tray li"), page.locator(".uploads")
    await drag(page, image)
    await expect(thumbnails).to_have_count(1)
    await expect(page.locator("#documents")).to_be_hidden()
    await drag(page, image, note)
    await expect(thumbnails).to_have_count(2)
    await expect(page.locator("#documents .document", has_text="note.md")).to_be_visible()
    await expect(uploads).to_be_hidden()  # nothing was refused
    await drag(page, image)
    await expect(uploads).to_contain_text(".png")
    await expect(thumbnails).to_have_count(2)
    await page.keyboard.press("Escape")
    await page.select_option("#model", "blind")
    await drag(page, image)
    await expect(uploads).to_be_visible()  # where its refusal says what to do


@pytest.mark.full("a journey of seconds in a real browser")
async def test_a_file_pasted_into_the_box_that_is_no_image_is_uploaded(page: Page, seeing: Seeing) -> None:
    """Discriminates: a pasted file that vanishes without a word."""
    await opened(page, seeing.url)
    await give(page, "paste", "涨潮".encode(), "text/markdown", "tide.md")
    await expect(page.locator("#documents .document", has_text="tide.md")).to_be_visible()


async def test_without_any_model_that_takes_images_no_other_model_is_recommended(
    page: Page, server: Served
) -> None:
    await opened(page, server.url)
    await give(page, "paste")
    await expect(page.locator(".composer-note")).to_contain_text("没有配置支持图片的模型")
