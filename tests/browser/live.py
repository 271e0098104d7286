"""A real server whose model speaks as a test tells it, word by word, and one document to answer from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.server import running_server
from tests.support.stub_llm import StubLLM, running_stub

DOCUMENT = "# 灯塔\n\n灯塔的灯每晚亮十二个小时。\n\n# 港口\n\n港口在冬天结冰。\n"
QUESTION = "灯塔的灯每晚亮多久\uff1f"


@dataclass(frozen=True)
class Live:
    """`stub` may be told another answer between two questions."""

    url: str
    stub: StubLLM

    def says(self, *words: str, pause_s: float = 0.0, **changes: object) -> None:
        plain = StubLLM()
        for name in ("status", "cut", "raw", "refuse", "usage"):
            setattr(self.stub, name, changes.get(name, getattr(plain, name)))
        self.stub.words = words
        self.stub.pause_s = pause_s


@contextmanager
def live_server(folder: Path, **environment: str) -> Iterator[Live]:
    with running_stub(StubLLM()) as stub:
        model = {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "none", "LLM_MODEL": "stub"}
        with running_server(folder, LOAD_SAMPLE="false", **{**model, **environment}) as server:
            _add_document(server.url)
            yield Live(server.url, stub)


def _add_document(url: str) -> None:
    files = {"file": ("灯塔.md", DOCUMENT.encode(), "text/markdown")}
    httpx.post(f"{url}/documents", files=files, timeout=30).raise_for_status()
    for _ in range(300):
        found = httpx.get(f"{url}/documents").json()["documents"]
        if found and all(document["status"] == "ready" for document in found):
            return
        time.sleep(0.05)
    raise AssertionError("the document was not read in")
