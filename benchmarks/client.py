"""The load client: one asyncio protocol per answer, a few microseconds per piece, no objects per token.

On a small machine, a heavier client would take CPU time from the server it measures.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools

STAMP = re.compile(rb"@(\d+)@")
ANSWER_LIMIT_S = 180
EVENT_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to query one kind of server, and what its stream looks like.

    `body` builds the request from a question and the session to continue ("" for none). The first group of
    `content` is a piece of the answer, that of `session` the session's id; `done` and `error` are byte
    markers.
    """

    path: str
    body: Callable[[str, str], bytes]
    content: re.Pattern[bytes]
    done: bytes
    error: bytes
    session: re.Pattern[bytes] | None = None


@dataclass(slots=True)
class Answer:
    """One answer as seen by the client; times in seconds of the monotonic clock, `relay_s` durations.

    `problem` is empty if the stream is complete: status 200, an end marker, and no error in it.
    """

    tag: str
    sent_s: float = 0.0
    first_content_s: float | None = None
    last_content_s: float = 0.0
    ended_s: float = 0.0
    text: bytes = b""
    session_id: str = ""
    relay_s: list[float] = field(default_factory=list)
    problem: str = ""
    timed: bool = True

    @property
    def tokens(self) -> int:
        return len(self.text.split())


class Reader(asyncio.Protocol):
    """Reads one response; `finished` is set when it has ended."""

    def __init__(self, answer: Answer, dialect: Dialect | None = None) -> None:
        self.finished = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._dialect = dialect
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._done = False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("cut")

    def on_body(self, body: bytes) -> None:
        if self._dialect is None:
            return
        now = time.monotonic()
        events, end, self._rest = (self._rest + body).rpartition(EVENT_END)
        if end:
            self._read(events + end, now, self._dialect)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        unfinished = self._dialect is not None and not self._done
        self._end(f"HTTP {status}" if status != 200 else "no end" if unfinished else "")

    def _read(self, events: bytes, now: float, dialect: Dialect) -> None:
        answer = self._answer
        text = b"".join(dialect.content.findall(events))
        if text:
            answer.first_content_s = answer.first_content_s or now
            answer.last_content_s = now
            answer.text += text
            answer.relay_s += [now - int(stamp) / 1e6 for stamp in STAMP.findall(text)]
        if dialect.session is not None and not answer.session_id:
            answer.session_id = b"".join(dialect.session.findall(events)[:1]).decode()
        self._done = self._done or dialect.done in events
        if dialect.error in events:
            answer.problem = "error event"

    def _end(self, problem: str) -> None:
        if not self.finished.done():
            self._answer.problem = self._answer.problem or problem
            self.finished.set_result(None)


async def ask(url: str, dialect: Dialect, question: str, tag: str, session_id: str = "") -> Answer:
    """Ask on a new connection and read to the end. Never raises: a failure becomes the answer's `problem`."""
    answer = Answer(tag)
    body = dialect.body(f"{question} [q-{tag}]", session_id)
    head = (
        f"POST {dialect.path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    await _exchange(url, head.encode() + body, answer, dialect)
    return answer


async def time_get(url: str, path: str) -> float:
    """Return how many seconds a GET on a new connection takes. Raises RuntimeError if it fails."""
    answer = Answer("")
    head = f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nConnection: close\r\n\r\n"
    await _exchange(url, head.encode(), answer, None)
    if answer.problem:
        raise RuntimeError(f"{path}: {answer.problem}")
    return time.monotonic() - answer.sent_s


async def _exchange(url: str, request: bytes, answer: Answer, dialect: Dialect | None) -> None:
    address = urlsplit(url)
    answer.sent_s = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            transport, reader = await asyncio.get_running_loop().create_connection(
                lambda: Reader(answer, dialect), address.hostname or "", address.port or 80
            )
            transport.write(request)
            await reader.finished
            answer.ended_s = time.monotonic()
            transport.close()
    except OSError as error:  # includes TimeoutError
        answer.problem = repr(error)
