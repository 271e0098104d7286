"""A POST to a model's server over its pool of connections; every failure becomes a domain error.

What the server says of a failure stays here: neither its words nor its address reach a client.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

from core.errors import LLMRefusedError, LLMUnavailableError
from services.adapters.http.endpoint import Endpoint
from services.adapters.http.sse import NotAnAnswerError

CONNECT_TIMEOUT_S = 5.0
KEEP_ALIVE_S = 30.0  # an idle connection is kept that long
READ_BYTES = 16_384  # at most: what is read becomes one event, and one write to each reader
MAX_REFUSAL_BYTES = 65_536
REFUSAL_PATIENCE_S = 5.0
DRAIN_S = 0.25  # for the end of the body after the end of the answer, so that the connection can be kept
REASON_CHARS = 500  # of a refusal that are looked at: a server may repeat the whole request after its reason

_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError)
# How servers say that it is the length, or a filter, and not the form of the messages.
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
    """The connections to one provider. `read_timeout_s` between two reads is the net below our own limits."""
    timeout = aiohttp.ClientTimeout(
        total=None, connect=CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s
    )
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=cookies) as client:
        yield client


class ModelStream:
    """The body of an answer as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._begun = False

    async def read(self) -> bytes:
        """What has come since the last read; b"" at a clean end. Raises LLMUnavailableError."""
        try:
            piece = await self._content.read(READ_BYTES)
        except _FAILURES as error:
            piece = self._content._read_nowait(-1)  # aiohttp holds back what came before the failure
            if not piece:
                raise _failure(error, begun=self._begun) from error
        self._begun = True
        return piece

    async def read_until(self, deadline: float) -> bytes:
        """The same behind the answer's end mark: b"" also for a failure, or when `deadline` has passed."""
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
    """Leaving it closes the connection, or gives it back when the body was read to its end.

    A redirect is a refusal: it could carry the key elsewhere. Raises LLMUnavailableError, LLMRefusedError.
    """
    try:
        response = await client.post(
            to.url,
            data=body,
            headers=to.headers,
            allow_redirects=False,
            proxy=to.proxy,
            proxy_headers=to.proxy_headers,
        )
    except _FAILURES as error:
        raise _failure(error, begun=False) from error
    try:
        if response.status != 200:
            raise await _refusal(response)
        yield ModelStream(response)
    finally:
        response.close()


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date."""
    try:
        seconds = float(value or "nan")
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value or "") - now).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


async def _refusal(response: aiohttp.ClientResponse) -> LLMRefusedError:
    body = await _beginning(response.content)
    return LLMRefusedError(
        f"The model's server refused the request (HTTP {response.status}).",
        response.status,
        about_form=not _OTHER_CAUSE.search(_reason(body)),
        retry_after_s=retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC)),
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
        pass  # the status is reported all the same
    return bytes(body)


def _reason(body: bytes) -> str:
    """The beginning of what the server gave as its reason; of any text, when it is not the usual object."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text[:REASON_CHARS]
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if isinstance(error, dict):
        error = f"{error.get('code')} {error.get('message') or error.get('detail') or text}"
    return str(error)[:REASON_CHARS]


def _failure(error: Exception, *, begun: bool) -> LLMUnavailableError:
    """`begun`: a part of the answer was read. What may pass in a moment before that is transient."""
    broke_off = isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | OSError)
    if isinstance(error.__cause__, ContentEncodingError):
        return NotAnAnswerError()
    if isinstance(error, TimeoutError):
        return LLMUnavailableError("The model's server did not answer in time.")
    if isinstance(error, aiohttp.ClientSSLError | ValueError):  # or an address that cannot be one
        return LLMUnavailableError("The model's server could not be reached.")
    if broke_off and begun:
        return LLMUnavailableError("The connection to the model's server broke off.")
    if broke_off:
        return LLMUnavailableError("The model's server could not be reached.", transient=True)
    return NotAnAnswerError()
