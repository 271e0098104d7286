"""Measuring over HTTP: with a temporary server on a free port, or one that is already running.

Over HTTP an owner is an API key, so every scope of a set needs one.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.search.handler import SearchRequest
from config.settings import load_settings
from core.knowledge import Upload
from routes.wire.chat import Answer
from routes.wire.documents import AddedDocument, DocumentPage
from routes.wire.imports import ImportedConversation
from routes.wire.search import SearchResult as SearchReply
from scripts.commands.maintenance import CommandError
from scripts.commands.server import Server, ServerClient, checked, error_part, open_client, show_server_store
from scripts.evaluation.judging import Hit, Reply
from scripts.evaluation.knowledge import Exchanges, IngestionError, SearchResult
from scripts.ingest import ask_patiently, job_progress

if TYPE_CHECKING:
    import httpx

ROOT = Path(__file__).parent.parent.parent
MAX_INGESTING = 8
REQUEST_TIMEOUT_S = 120.0
STOP_WAIT_S = 40.0
REFUSED = 422
MAX_PREVIOUS = 10  # more are refused, and fewer are used
NO_ANSWER = "no answer from {url} ({kind}): {error}"
_ADDRESS = re.compile(r"http://[^\s/]+:\d+")


class ServedKnowledge:
    """A Target behind a server. `keys` by owner; "" sends none. Times are of whole requests, with embedding.

    Methods raise CommandError if continuing is pointless.
    """

    max_ingesting = MAX_INGESTING

    def __init__(self, client: ServerClient, keys: Mapping[str, str]) -> None:
        self._client = client
        self._keys = keys
        self._added: list[tuple[str, str]] = []

    async def check_empty(self) -> None:
        """Raises CommandError, also if others' documents would appear among ours."""
        for owner in self._keys:
            if checked(await self._send("GET", "/documents", owner), DocumentPage).documents:
                raise CommandError(
                    "the server has documents already: measure on an empty one (LOAD_SAMPLE=false)"
                )

    async def add(self, upload: Upload) -> str:
        """Raises IngestionError."""
        fields = {"external_id": upload.external_id or "", **({"date": upload.date} if upload.date else {})}
        files = {"file": (upload.file_name, upload.content)}
        reply = await self._send("POST", "/documents", upload.owner, files=files, data=fields)
        if reply.status_code in (400, 413, 415, 422):
            raise IngestionError(error_part(reply, "code") or str(reply.status_code))
        addition = checked(reply, AddedDocument)
        document_id = addition.document.document_id
        if not addition.existing:
            self._added.append((upload.owner, document_id))
        if addition.job_id is not None:
            async for job in job_progress(self._client, addition, headers=self._headers(upload.owner)):
                stage, code = job.stage, job.error_code
            if stage != "done":
                raise IngestionError(code or stage)
        return document_id

    async def search(self, request: SearchRequest) -> SearchResult:
        """Search; fields the request leaves empty are not sent."""
        filters: dict[str, Any] = {
            "previous_questions": list(request.previous_questions[-MAX_PREVIOUS:]),
            "last_answer": request.last_answer,
            "date": request.date,
        }
        body = {"question": request.question, "top_n": request.top_n}
        started = time.perf_counter()
        reply = await self._send(
            "POST",
            "/search",
            request.owner,
            json=body | {name: value for name, value in filters.items() if value},
        )
        elapsed_ms = (time.perf_counter() - started) * 1000
        if reply.status_code == REFUSED:
            return SearchResult()
        hits = (
            Hit(one.document_id, one.probability, f"{one.heading}\n{one.text}", one.heading, one.file_name)
            for one in checked(reply, SearchReply).candidates
        )
        return SearchResult(tuple(hits), elapsed_ms)

    async def answer(self, question: str, previous: Exchanges, owner: str) -> Reply:
        """Answer in a session that is deleted afterwards."""
        body: dict[str, Any] = {"question": question, "stream": False}
        if previous:
            turns = [{"question": asked, "answer": answered} for asked, answered in previous]
            reply = await self._send("POST", "/sessions/import", owner, json={"turns": turns})
            body["session_id"] = checked(reply, ImportedConversation).session_id
        reply = await self._send("POST", "/knowledge_chat_conversation", owner, json=body)
        if reply.status_code == REFUSED:
            return Reply()
        answer = checked(reply, Answer)
        await self._send("DELETE", f"/sessions/{answer.session_id}", owner)
        return Reply(answer.answer, tuple(map(Hit.of_source, answer.sources)))

    async def remove_added(self) -> None:
        """Delete the documents this run added."""
        for owner, document_id in self._added:
            await self._send("DELETE", f"/documents/{document_id}", owner)
        self._added.clear()

    async def _send(self, method: str, path: str, owner: str, **content: Any) -> httpx.Response:
        return await ask_patiently(self._client, method, path, headers=self._headers(owner), **content)

    def _headers(self, owner: str) -> dict[str, str]:
        key = self._keys[owner]
        return {"Authorization": f"Bearer {key}"} if key else {}


@asynccontextmanager
async def open_server(
    owners: Sequence[str], url: str, api_keys: Sequence[str]
) -> AsyncIterator[ServedKnowledge]:
    """Start a temporary server for these owners, or use that at `url`. Raises CommandError."""
    if not url:
        keys = {owner: secrets.token_hex(16) for owner in owners}
        with _child(list(keys.values())) as address:
            async with open_client(Server(address), REQUEST_TIMEOUT_S, NO_ANSWER) as client:
                yield ServedKnowledge(client, keys)
        return
    if len(owners) > max(1, len(api_keys)):
        raise CommandError(
            f"{len(owners)} collections need as many API keys: set API_KEYS here as at the server "
            f"({len(api_keys)} given)"
        )
    asked = Server(url, next(iter(api_keys), ""))
    async with open_client(asked, REQUEST_TIMEOUT_S, NO_ANSWER) as client:
        await show_server_store(load_settings(), client, asked, named=True)
        server = ServedKnowledge(client, dict(zip(owners, api_keys or [""], strict=False)))
        await server.check_empty()
        try:
            yield server
        finally:
            await server.remove_added()


@contextmanager
def _child(keys: Sequence[str]) -> Iterator[str]:
    """Run `python -m scripts.serve` as configured, but empty and for these keys only. Raises CommandError."""
    with tempfile.TemporaryDirectory(prefix="wenmai-evaluation-") as folder:
        ours = {
            "DATA_DIR": folder, "HOST": "127.0.0.1", "PORT": "0", "QDRANT_URL": "", "LOAD_SAMPLE": "false",
            "API_KEYS": ",".join(keys), "ADMIN_API_KEYS": "", "LOG_LEVEL": "error",
        }  # fmt: skip
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.serve"],
            env={**os.environ, "PYTHONPATH": path, **ours},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield _address(process)
        finally:
            _stop(process)


def _address(process: subprocess.Popen[str]) -> str:
    """Read the address from the greeting, printed once it is ready; if it ends, it prints why itself."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := _ADDRESS.search(line):
            return match[0]
    raise CommandError(f"the server did not start (exit code {process.wait()})")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
