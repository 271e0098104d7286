"""An OpenAI-compatible streaming model stub on loopback: `python -m benchmarks.stub_llm`.

It is a single asyncio protocol, to leave the machine to the server under test. Every tenth token carries the
time it was sent, `@<microseconds>@`. `POST /shape` changes pace and length, `GET /arrivals` reports when each
request arrived, by the `[q-…]` in its question. All times are of the monotonic clock, which all processes of
a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from dataclasses import asdict, dataclass
from typing import cast

import httptools
import uvloop

STAMP_EVERY = 10
TOKENS_A_WRITE = 10  # at full speed; yielding between writes gives the other streams their turn
TAG = re.compile(rb"\[q-([\w.-]+)\]")
WORDS = ("The", "server", "keeps", "each", "answer", "short", "so", "that", "a", "reader", "finds", "it", ".")
EVENT = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"stub",'
    b'"choices":[{"index":0,"delta":{%b},"logprobs":null,"finish_reason":%b}]}\n\n'
)
END = EVENT % (b"", b'"stop"') + b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """`rate` is in tokens per second, 0 for as fast as the client reads; `ttft_ms` is the time to the first
    token."""

    ttft_ms: float = 0
    rate: float = 50
    tokens: int = 100


class State:
    """The shape of the answers, and the last arrival time in seconds by request tag."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.arrivals: dict[str, float] = {}


class Stream:
    """One answer, written by timers at absolute times, so that a late token does not delay the rest."""

    def __init__(self, connection: Connection, shape: Shape) -> None:
        self.stalled = False  # whether a due write found the buffer full
        self._connection = connection
        self._shape = shape
        self._sent = 0
        self._start = time.monotonic() + shape.ttft_ms / 1000
        connection.write(STREAM_HEAD)
        self.schedule()

    def schedule(self) -> None:
        gap = 1 / self._shape.rate if self._shape.rate else 0.0
        delay = self._start + self._sent * gap - time.monotonic()
        asyncio.get_running_loop().call_later(max(0.0, delay), self._tick)

    def _tick(self) -> None:
        self.stalled = self._connection.paused
        if self.stalled or self._connection.closed:
            return
        left = self._shape.tokens - self._sent
        count = min(left, 1 if self._shape.rate else TOKENS_A_WRITE)
        self._connection.write(_chunk(b"".join(_token(self._sent + n) for n in range(count))))
        self._sent += count
        if self._sent < self._shape.tokens:
            self.schedule()
        else:
            self._connection.write(_chunk(END) + b"0\r\n\r\n")
            self._connection.stream = None


class Connection(asyncio.Protocol):
    def __init__(self, state: State) -> None:
        self._state = state
        self._parser = httptools.HttpRequestParser(self)
        self._url = self._body = b""
        self.stream: Stream | None = None
        self.paused = self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed, self.stream = True, None

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.stream is not None and self.stream.stalled:
            self.stream.schedule()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        now, state = time.monotonic(), self._state
        if self._url.endswith(b"/chat/completions"):
            if tags := TAG.findall(self._body):
                state.arrivals[tags[-1].decode()] = now
            self.stream = Stream(self, state.shape)
        elif self._url == b"/arrivals":
            self._answer(state.arrivals)
        elif self._url == b"/shape":
            state.shape, state.arrivals = Shape(**json.loads(self._body)), {}
            self._answer(asdict(state.shape))
        else:
            self.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def write(self, piece: bytes) -> None:
        self._transport.write(piece)

    def _answer(self, body: object) -> None:
        text = json.dumps(body).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.write(head % len(text) + text)


def _token(n: int) -> bytes:
    stamped = n % STAMP_EVERY == 0
    word = f"@{time.monotonic_ns() // 1000}@" if stamped else WORDS[n % len(WORDS)]
    return EVENT % (f'"content":"{word} "'.encode(), b"null")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def serve(shape: Shape) -> None:
    state = State(shape)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(state), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A streaming OpenAI-compatible stub on loopback.")
    usual = Shape()
    parser.add_argument("--ttft-ms", type=float, default=usual.ttft_ms)
    parser.add_argument("--rate", type=float, default=usual.rate, help="tokens per second; 0: full speed")
    parser.add_argument("--tokens", type=int, default=usual.tokens)
    parsed = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Shape(parsed.ttft_ms, parsed.rate, parsed.tokens)))


if __name__ == "__main__":
    main()
