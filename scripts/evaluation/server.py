"""The same over HTTP: a server of our own on a free port, or one that runs already.

Over HTTP an owner is an API key, so every scope of a set takes one.
"""

from __future__ import annotations

import asyncio
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
from typing import Any

import httpx

from api.search.handler import SearchRequest
from core.knowledge import Upload
from routes.wire.documents import AddedDocument, Document, DocumentPage, Job
from routes.wire.search import SearchResult as SearchReply
from scripts.evaluation.target import Hit, NotReadError, SearchResult

ROOT = Path(__file__).parent.parent.parent
READS_AT_ONCE = 8
REQUEST_TIMEOUT_S = 120.0
STOP_WAIT_S = 40.0
POLL_S = 0.02
SLOWEST_POLL_S = 1.0
MOST_PREVIOUS = 10  # more are refused, and fewer are looked at
BUSY = (429, 503)
BUSY_ATTEMPTS = 120
_ADDRESS = re.compile(r"http://[^\s/]+:\d+")


class ServerError(Exception):
    """The server is not there, refuses us, or is not ours to fill; one plain line."""


class Server:
    """`keys` by owner; "" sends none. The times are those of whole requests, the embedding included."""

    reads_at_once = READS_AT_ONCE

    def __init__(self, client: httpx.AsyncClient, keys: Mapping[str, str]) -> None:
        self._client = client
        self._keys = keys
        self._added: list[tuple[str, str]] = []

    async def check_empty(self) -> None:
        """Raises ServerError when documents of others would be found among ours."""
        for owner in self._keys:
            reply = await self._send("GET", "/documents", owner)
            if DocumentPage.model_validate_json(_checked(reply).content).documents:
                raise ServerError(
                    "the server has documents already: measure on an empty one (LOAD_SAMPLE=false)"
                )

    async def add(self, upload: Upload) -> str:
        """Raises NotReadError, and ServerError or httpx.HTTPError when there is no use in going on."""
        fields = {"external_id": upload.external_id or "", **({"date": upload.date} if upload.date else {})}
        reply = await self._send(
            "POST",
            "/documents",
            upload.owner,
            files={"file": (upload.file_name, upload.content)},
            data=fields,
        )
        if reply.status_code in (400, 413, 415, 422):
            raise NotReadError(_code(reply))
        addition = AddedDocument.model_validate_json(_checked(reply).content)
        document_id = addition.document.document_id
        if not addition.existing:
            self._added.append((upload.owner, document_id))
        if addition.job_id is not None:
            await self._wait(addition.job_id, document_id, upload.owner)
        return document_id

    async def search(self, request: SearchRequest) -> SearchResult:
        """What the request does not say is not sent."""
        filters: dict[str, Any] = {
            "previous_questions": list(request.previous_questions[-MOST_PREVIOUS:]),
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
        candidates = SearchReply.model_validate_json(_checked(reply).content).candidates
        hits = (Hit(one.document_id, one.probability, f"{one.heading}\n{one.text}") for one in candidates)
        return SearchResult(tuple(hits), elapsed_ms)

    async def remove_added(self) -> None:
        """What this run has added goes again."""
        for owner, document_id in self._added:
            await self._send("DELETE", f"/documents/{document_id}", owner)
        self._added.clear()

    async def _send(self, method: str, path: str, owner: str, **request: Any) -> httpx.Response:
        """A busy server is asked again."""
        key = self._keys[owner]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        for _ in range(BUSY_ATTEMPTS):
            reply = await self._client.request(method, path, headers=headers, **request)
            if reply.status_code not in BUSY:
                break
            await asyncio.sleep(0.5)
        return reply

    async def _wait(self, job_id: str, document_id: str, owner: str) -> None:
        pause_s = POLL_S
        while True:
            reply = await self._send("GET", f"/jobs/{job_id}", owner)
            missing = reply.status_code == 404
            stage, code = await self._stage_of(document_id, owner) if missing else _stage(reply)
            if stage == "done":
                return
            if stage in ("failed", "cancelled"):
                raise NotReadError(code or stage)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, SLOWEST_POLL_S)

    async def _stage_of(self, document_id: str, owner: str) -> tuple[str, str | None]:
        """The server has forgotten the job: the document says how it stands."""
        reply = _checked(await self._send("GET", f"/documents/{document_id}", owner))
        status = Document.model_validate_json(reply.content).status
        return ("done" if status == "ready" else status.value), None


@asynccontextmanager
async def open_server(owners: Sequence[str], url: str, api_keys: Sequence[str]) -> AsyncIterator[Server]:
    """A server of our own for these owners, or the one at `url` with the keys given.

    Raises ServerError, httpx.HTTPError.
    """
    if not url:
        keys = {owner: secrets.token_hex(16) for owner in owners}
        with _child(list(keys.values())) as address:
            async with httpx.AsyncClient(base_url=address, timeout=REQUEST_TIMEOUT_S) as client:
                yield Server(client, keys)
        return
    if len(owners) > max(1, len(api_keys)):
        raise ServerError(
            f"{len(owners)} collections need as many API keys: set API_KEYS here as at the server "
            f"({len(api_keys)} given)"
        )
    keys = dict(zip(owners, api_keys or [""], strict=False))
    async with httpx.AsyncClient(base_url=url, timeout=REQUEST_TIMEOUT_S) as client:
        server = Server(client, keys)
        await server.check_empty()
        try:
            yield server
        finally:
            await server.remove_added()


@contextmanager
def _child(keys: Sequence[str]) -> Iterator[str]:
    """`python -m scripts.serve` as configured, but empty and for these keys only. Raises ServerError."""
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
    """From its greeting, which it prints when it is ready; it says why it ends, if it does."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := _ADDRESS.search(line):
            return match[0]
    raise ServerError(f"the server did not start (exit code {process.wait()})")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _stage(reply: httpx.Response) -> tuple[str, str | None]:
    """A job's stage, and the code of its error."""
    job = Job.model_validate_json(_checked(reply).content)
    return job.stage, job.error_code


def _checked(reply: httpx.Response) -> httpx.Response:
    if reply.is_success:
        return reply
    raise ServerError(f"the server answered {reply.status_code} ({_code(reply)}) to {reply.request.url.path}")


def _code(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return str(reply.status_code)
