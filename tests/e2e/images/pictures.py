"""Images created for the tests, good and bad, and an app with one model that sees and one that does not."""

from __future__ import annotations

import base64
import io
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from config.settings import Settings
from tests.support.models.tool_stub import Step, ToolStub, calling_tools
from tests.support.servers.app import App, make_settings, open_app

CHAT = "/knowledge_chat_conversation"
FORMS = ("openai", "anthropic")
WHAT = "这张图里有什么？"


def picture(form: str = "PNG", size: tuple[int, int] = (64, 48), **how: Any) -> bytes:
    mode = "RGB" if form == "JPEG" else "RGBA"
    out = io.BytesIO()
    Image.new(mode, size, (200, 40, 40) if mode == "RGB" else (200, 40, 40, 128)).save(out, form, **how)
    return out.getvalue()


def with_place() -> bytes:
    """A photograph that contains its location, and lies on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "secret-place"
    return picture("JPEG", exif=exif, comment=b"secret-comment")


def animated(form: str = "GIF") -> bytes:
    frames = [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in (0, 90, 180)]
    out = io.BytesIO()
    frames[0].save(out, form, save_all=True, append_images=frames[1:], duration=50)
    return out.getvalue()


def bomb(side: int = 30_000) -> bytes:
    """A PNG of some hundred kilobytes that declares, and has, side × side pixels of one bit."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    row = bytes(1 + (side + 7) // 8)
    body = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def also_a_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("run.js", "alert(1)")
    return picture() + out.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def url_of(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def part(content: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(content, media_type)}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image_settings(data_dir: Path, stub: ToolStub, **sections: Any) -> Settings:
    model = {"model": "m", "api_key": "k", "context_window": 100_000, "vision": True}
    llms = {
        "openai": {**model, "provider": "openai", "base_url": stub.url},
        "anthropic": {**model, "provider": "anthropic", "base_url": stub.claude_url},
        "blind": {**model, "provider": "openai", "base_url": stub.url, "vision": False},
        "small": {**model, "provider": "openai", "base_url": stub.url, "context_window": 4_096},
    }
    return make_settings(data_dir, models={"llms": llms}, **sections)


@dataclass(frozen=True, slots=True)
class Looking:
    """The app, its model, and its data folder."""

    app: App
    stub: ToolStub
    data_dir: Path

    async def post(self, question: Any, model_id: str = "openai", **body: Any) -> httpx.Response:
        self.stub.play(Step("一块红色。"))
        asked = {"question": question, "model_id": model_id, "knowledge": "never", "stream": False, **body}
        return await self.app.client.post(CHAT, json=asked)

    async def ask(self, question: Any, model_id: str = "openai", **body: Any) -> dict[str, Any]:
        response = await self.post(question, model_id, **body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def turn(self, turn_id: str) -> dict[str, Any]:
        return (await self.app.client.get(f"/turns/{turn_id}")).json()  # type: ignore[no-any-return]

    def files(self) -> list[str]:
        folder = self.data_dir / "images"
        return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())

    async def stored(self) -> tuple[int, int, list[str]]:
        """Return the numbers of turns, sessions, and files."""
        counts = (await self.app.client.get("/admin/stats")).json()["stored"]
        return counts["turns"], counts["sessions"], self.files()


@asynccontextmanager
async def looking(data_dir: Path, **sections: Any) -> AsyncIterator[Looking]:
    with stub_that_sees() as stub:
        async with open_app(image_settings(data_dir, stub, **sections)) as app:
            yield Looking(app, stub, data_dir)


@contextmanager
def stub_that_sees() -> Iterator[ToolStub]:
    with calling_tools(Step("一块红色。")) as stub:
        yield stub
