"""Requests to a model's server over its connection pool; every failure becomes a domain error.

The server's own words go into the error's `failure` and never into its message, which is logged.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from yarl import URL

from core.errors import Cause, LLMRefusedError, LLMUnavailableError, ModelFailure, StartRefusedError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`proxy` is the one the environment sets for this address; the headers contain API keys."""

    url: URL
    headers: Mapping[str, str] = field(repr=False)
    proxy: URL | None = None
    proxy_headers: Mapping[str, str] | None = field(default=None, repr=False)


def endpoint(base_url: str, path: str, headers: Mapping[str, str]) -> Endpoint:
    """`path` under `base_url`, whose query is kept; a user in it is sent as basic authorization.

    The environment's proxies are looked up here, not by aiohttp's `trust_env`: that would also read .netrc
    for every request, and fail when it names a host that has a key. Raises StartRefusedError.
    """
    try:
        base = URL(base_url)
    except ValueError:  # its message repeats the address, including any password
        raise StartRefusedError("base_url of a model is not a valid address.") from None
    url = (base / path).with_query(base.query).with_user(None)
    sent = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "wenmai"}
    sent |= headers
    if base.user:
        sent["Authorization"] = aiohttp.encode_basic_auth(base.user, base.password or "")
    return _through_proxy(Endpoint(url, sent))


def _through_proxy(direct: Endpoint) -> Endpoint:
    proxy = getproxies().get(direct.url.scheme)
    if not proxy or proxy_bypass(direct.url.host or ""):
        return direct
    via = URL(proxy if "://" in proxy else f"http://{proxy}")
    login = aiohttp.encode_basic_auth(via.user, via.password or "") if via.user else None
    known = {"Proxy-Authorization": login} if login else {}
    if direct.url.scheme == "http":  # there is no CONNECT that could carry it
        return Endpoint(direct.url, {**direct.headers, **known}, via.with_user(None))
    return Endpoint(direct.url, direct.headers, via.with_user(None), known or None)


CONNECT_TIMEOUT_S = 5.0
KEEP_ALIVE_S = 30.0  # how long an idle connection is kept
READ_BYTES = 16_384  # at most: each read becomes one event, and one write to each reader
MAX_REFUSAL_BYTES = 65_536
REFUSAL_PATIENCE_S = 5.0
MAX_REPLY_BYTES = 8_000_000  # the longest known list of models is a tenth of that
REPLY_S = 10.0
LARGE_BYTES = 1 << 18  # only a body with images is this large
FEW_STREAMS = 16  # up to so many streams are read without pauses
PAUSE_S = 0.002  # between two reads, for each stream beyond FEW_STREAMS
MAX_PAUSE_S = 0.1  # data that arrives ten times a second is still read as it arrives
DRAIN_S = 0.25  # to read the body's end after the answer's end, so that the connection can be reused
REASON_CHARS = 500  # of a refusal: after its reason, a server may repeat the whole request

_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError)
# How servers say that the cause is the length or a filter, not the form of the messages.
_OTHER_CAUSE = re.compile(
    r"context.?(length|window|size)|content.?(filter|policy|management)|too many (input |prompt )?tokens"
    r"|(prompt|input|message|request|text)s?( is| are)? too (long|large)|reduce (the length|your prompt)"
    r"|max_?(imum)?[ _](model[ _]len|input[ _]|prompt[ _])|tokens? limit|limit of \d+ tokens"
    r"|tokens?( count)?.{0,20}exceed|maximum number of tokens|input.{0,9}length|max_new_tokens"
    r"|上下文(长度|窗口)|(输入|长度|内容|[Tt]oken).{0,8}(过长|超长|超出|超过|过多)",
    re.I,
)


@asynccontextmanager
async def open_model_client(read_timeout_s: float) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Open one provider's connection pool. `read_timeout_s`, between two reads, backs up our own limits."""
    timeout = aiohttp.ClientTimeout(
        total=None, connect=CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s
    )
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=cookies) as client:
        yield client


class ModelStream:
    """The body of an answer as it arrives. When many are read at once, each pauses briefly between two reads:
    a token costs the event loop a fifth of a millisecond from socket to socket, several together hardly more,
    and other requests wait behind all of them (docs/decisions/0056)."""

    open: ClassVar[int] = 0
    """How many streams this process is reading."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._place = str(response.url.origin())
        self._begun = False

    async def read(self) -> bytes:
        """The bytes received since the last read; b"" at a clean end. Raises LLMUnavailableError."""
        if self._begun and ModelStream.open > FEW_STREAMS:
            await asyncio.sleep(min(MAX_PAUSE_S, PAUSE_S * (ModelStream.open - FEW_STREAMS)))
        try:
            piece = await self._content.read(READ_BYTES)
        except _FAILURES as error:
            piece = self._content._read_nowait(-1)  # aiohttp withholds what arrived before the failure
            if not piece:
                raise _failure(error, self._place, begun=self._begun) from error
        self._begun = True
        return piece

    async def read_until(self, deadline: float) -> bytes:
        """Read what follows the answer's end mark; b"" also on failure or once `deadline` has passed."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._content.readany()
        except _FAILURES:
            return b""

    async def drain(self) -> None:
        if not self._content.is_eof():
            await self.read_until(asyncio.get_running_loop().time() + DRAIN_S)


@asynccontextmanager
async def post_stream(
    client: aiohttp.ClientSession, to: Endpoint, body: bytes
) -> AsyncGenerator[ModelStream, None]:
    """On exit, the connection is closed, or returned to the pool if the body was read to its end.

    A redirect counts as a refusal: it could leak the key. Raises LLMUnavailableError, LLMRefusedError.
    """
    try:
        response = await client.post(
            to.url,
            data=body if len(body) < LARGE_BYTES else io.BytesIO(body),  # sent in pieces, not blocking others
            headers=to.headers,
            allow_redirects=False,
            proxy=to.proxy,
            proxy_headers=to.proxy_headers,
        )
    except _FAILURES as error:
        raise _failure(error, str(to.url.origin()), begun=False) from error
    try:
        if response.status != 200:
            raise await _refusal(response)
        ModelStream.open += 1
        try:
            yield ModelStream(response)
        finally:
            ModelStream.open -= 1
    finally:
        response.close()


async def fetch_json(client: aiohttp.ClientSession, to: Endpoint, body: bytes | None) -> Any:
    """Fetch a whole JSON reply, by GET or by POST of `body`; redirects are not followed.

    Raises LLMUnavailableError, LLMRefusedError, NotAnAnswerError.
    """
    method, read = "GET" if body is None else "POST", bytearray()
    try:
        async with (
            asyncio.timeout(REPLY_S),
            client.request(
                method, to.url, data=body, headers=to.headers, allow_redirects=False,
                proxy=to.proxy, proxy_headers=to.proxy_headers,
            ) as response,
        ):  # fmt: skip
            if response.status != 200:
                raise await _refusal(response)
            async for piece in response.content.iter_chunked(READ_BYTES):
                read += piece
                if len(read) > MAX_REPLY_BYTES:
                    raise NotAnAnswerError
    except _FAILURES as error:
        raise _failure(error, str(to.url.origin()), begun=False) from error
    try:
        return json.loads(read)
    except (ValueError, RecursionError):
        raise NotAnAnswerError from None


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """The seconds in a Retry-After header, which holds a number of seconds or a date."""
    try:
        seconds = float(value or "nan")
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value or "") - now).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


# "Please try again in 1m30s", "Retry after 26 seconds": some servers name the wait only in the message.
_WAIT = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)? ?(?:h|m|s|ms)[a-z]* ?)+)", re.IGNORECASE
)
_UNITS = {"h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def wait_in(words: str) -> float | None:
    """The wait named in a refusal's message, in seconds."""
    if (named := _WAIT.search(words)) is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms\b|h|m|s)", named[1].lower())
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


async def _refusal(response: aiohttp.ClientResponse) -> LLMRefusedError:
    code, reason = reason_of(await _beginning(response.content))
    named_s = retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC))
    return LLMRefusedError(
        f"The model's server refused the request (HTTP {response.status}).",
        response.status,
        about_form=not _OTHER_CAUSE.search(f"{code} {reason}"[:REASON_CHARS]),
        place=str(response.url.origin()),
        reason="" if reason.lstrip().startswith("<") else reason,  # a proxy's page
        retry_after_s=wait_in(reason) if named_s is None else named_s,
    )


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(REFUSAL_PATIENCE_S):
            while len(body) < MAX_REFUSAL_BYTES and (
                piece := await content.read(MAX_REFUSAL_BYTES - len(body))
            ):
                body += piece
    except _FAILURES:
        pass  # the status is still reported
    return bytes(body)


def reason_of(body: bytes) -> tuple[str, str]:
    """The code and message of a refusal's usual JSON object; of anything else, no code and its beginning."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return "", text[:REASON_CHARS]
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if isinstance(error, dict):
        words = error.get("message") or error.get("detail") or text
        return str(error.get("code")), str(words)[:REASON_CHARS]
    return "", str(error)[:REASON_CHARS]


def _failure(error: Exception, place: str, *, begun: bool) -> LLMUnavailableError:
    """`begun`: part of the answer was read. Before that, a broken connection is transient."""
    broke_off = isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | OSError)
    failure = ModelFailure(cause_of(error), place)
    if isinstance(error.__cause__, ContentEncodingError):
        return NotAnAnswerError()
    if isinstance(error, TimeoutError):
        return LLMUnavailableError("The model's server did not answer in time.", failure)
    if isinstance(error, aiohttp.ClientSSLError | ValueError):  # or an address that cannot be one
        return LLMUnavailableError("The model's server could not be reached.", failure)
    if broke_off and begun:
        return LLMUnavailableError("The connection to the model's server broke off.", failure)
    if broke_off:
        return LLMUnavailableError("The model's server could not be reached.", failure, transient=True)
    return NotAnAnswerError()


MAX_CHAIN = 8
_CAUSES: tuple[tuple[tuple[type[BaseException], ...], Cause], ...] = (
    ((ssl.SSLError, aiohttp.ClientSSLError), Cause.TLS),
    ((socket.gaierror,), Cause.UNKNOWN_HOST),
    ((aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout, ConnectionRefusedError), Cause.UNREACHABLE),
    ((TimeoutError, httpx.TimeoutException), Cause.TIMEOUT),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionError), Cause.BROKE_OFF),
    ((httpx.RemoteProtocolError, httpx.ReadError), Cause.BROKE_OFF),
)


def cause_of(error: BaseException) -> Cause:
    """The cause of an HTTP client's exception, found in it or in the exceptions that led to it."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < MAX_CHAIN:
        chain.append(cause)
    for kinds, cause_ in _CAUSES:
        if any(isinstance(each, kinds) for each in chain):
            return cause_
    return Cause.UNREACHABLE


# Parses server-sent events from byte chunks split at any position (WHATWG HTML, "Server-sent events").

MAX_LINE_BYTES = 1_000_000  # also of an event: no provider sends a tenth of that

_BOM = b"\xef\xbb\xbf"
_FAST = b"data: "
_FIELDS = (b"data", b"event")

Event = tuple[bytes, bytes]  # name (b"" for none) and data


class NotAnAnswerError(LLMUnavailableError):
    """The upstream's bytes are not what its API promises, or (GARBLED) no longer; none of them is shown."""

    def __init__(self, cause: Cause = Cause.NOT_AN_ANSWER) -> None:
        super().__init__("The model's server sent something that is not an answer.", ModelFailure(cause))


class EventReader:
    """Takes chunks as they are read and returns the complete events; an unfinished last event is dropped.

    An event longer than MAX_LINE_BYTES raises NotAnAnswerError, after the events before it were returned.
    """

    def __init__(self) -> None:
        self._pending = bytearray()  # an event that is not complete yet
        self._after_cr = False
        self._begun = False
        self._failed = False

    def feed(self, chunk: bytes) -> list[Event]:
        if self._failed:
            raise NotAnAnswerError
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_newlines(chunk)
        if not self._begun and not (chunk := self._without_bom(chunk)):
            return []
        if self._pending:
            chunk = self._joined(chunk)
        whole, _, rest = chunk.rpartition(b"\n\n")
        if rest:
            self._pending += rest
        events: list[Event] = []
        if whole:
            self._take(whole, events)
        self._failed = self._failed or len(self._pending) > MAX_LINE_BYTES
        if self._failed and not events:
            raise NotAnAnswerError
        return events

    def _with_newlines(self, chunk: bytes) -> bytes:
        """Replace CR and CRLF by LF; a CRLF split between two chunks yields one LF, for its CR."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        elif not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, chunk: bytes) -> bytes:
        """Return b"" as long as what arrived may still become a byte order mark."""
        start = bytes(self._pending) + chunk
        self._pending.clear()
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._pending += start
            return b""
        self._begun = True
        return start.removeprefix(_BOM)

    def _joined(self, chunk: bytes) -> bytes:
        """The held bytes plus `chunk` once they may contain a complete event; scans no byte twice."""
        if b"\n\n" not in chunk and not (self._pending.endswith(b"\n") and chunk.startswith(b"\n")):
            self._pending += chunk
            return b""
        joined = bytes(self._pending) + chunk
        self._pending.clear()
        return joined

    def _take(self, whole: bytes, events: list[Event]) -> None:
        for block in whole.split(b"\n\n"):
            if len(block) > MAX_LINE_BYTES:
                self._failed = True
                return
            if block.startswith(_FAST) and b"\n" not in block:
                events.append((b"", block[6:]))
            elif (event := _event(block)) is not None:
                events.append(event)


def _event(block: bytes) -> Event | None:
    """Parse the lines between two blank ones; None for mere comments, or a name without data."""
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field in _FIELDS:
            value = value[1:] if value.startswith(b" ") else value
            if field == b"data":
                data.append(value)
            else:
                name = value
    return (name, b"\n".join(data)) if data else None
