"""A real server whose model speaks as a test directs it, word by word, and one document to answer from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import httpx

from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.server import running_server

DOCUMENT = "# 灯塔\n\n灯塔的灯每晚亮十二个小时。\n\n# 港口\n\n港口在冬天结冰。\n"
QUESTION = "灯塔的灯每晚亮多久\uff1f"


@dataclass
class HaltingLLM(StubLLM):
    """Pauses before the words with these numbers (from 0) until their events are set."""

    halts: dict[int, Event] = field(default_factory=dict)

    async def _stream(self, flat: bool, words: tuple[str, ...]) -> AsyncIterator[str]:
        emitted, halts = 0, self.halts
        async for chunk in super()._stream(flat, words):
            if emitted in halts:
                await asyncio.to_thread(halts[emitted].wait)
            emitted += 1
            yield chunk


@dataclass(frozen=True)
class Live:
    """`stub` may get another answer between two questions."""

    url: str
    stub: HaltingLLM

    def says(self, *words: str, pause_s: float = 0.0, halts: Sequence[int] = (), **changes: object) -> None:
        """Before the words numbered in `halts` the model pauses until `resume`, so that even on a slow
        machine the test observes the page while it shows what came before."""
        plain = StubLLM()
        for name in ("status", "cut", "raw", "refuse", "usage"):
            setattr(self.stub, name, changes.get(name, getattr(plain, name)))
        self.stub.words = words
        self.stub.pause_s = pause_s
        self.release()
        self.stub.halts = {at: Event() for at in sorted(halts)}

    def resume(self) -> None:
        """Continue up to the next halt."""
        next(halt for halt in self.stub.halts.values() if not halt.is_set()).set()

    def release(self) -> None:
        """So that a failed test leaves nothing waiting."""
        for halt in self.stub.halts.values():
            halt.set()


@contextmanager
def live_server(folder: Path, **environment: str) -> Iterator[Live]:
    stub = HaltingLLM()
    with running_stub(stub):
        model = {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "none", "LLM_MODEL": "stub"}
        with running_server(folder, LOAD_SAMPLE="false", **{**model, **environment}) as server:
            _add_document(server.url)
            _choose_thinking(server.url)
            live = Live(server.url, stub)
            yield live
            live.release()


def _choose_thinking(url: str) -> None:
    """The choice of a person's last conversation: new ones begin with thinking shown."""
    session = f"{url}/sessions/{httpx.post(f'{url}/sessions', json={}).json()['session_id']}"
    httpx.patch(session, json={"thinking": True}).raise_for_status()
    httpx.delete(session).raise_for_status()


def _add_document(url: str) -> None:
    files = {"file": ("灯塔.md", DOCUMENT.encode(), "text/markdown")}
    httpx.post(f"{url}/documents", files=files, timeout=30).raise_for_status()
    for _ in range(300):
        results = httpx.get(f"{url}/documents").json()["documents"]
        if results and all(document["status"] == "ready" for document in results):
            return
        time.sleep(0.05)  # between two polls
    raise AssertionError("the document was not read in")
