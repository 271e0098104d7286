"""What a scripted model server sends, step by step, and what a client must then see."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal

TEXT = "脉络 clear: 第一行\nsecond line 😀 ünïcode, the end."
HALF = TEXT[: len(TEXT) // 2 // 3 * 3]
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
UNAVAILABLE = ("llm_unavailable",)
TRUNCATED = ("llm_truncated",)
BROKEN = ("llm_unavailable", "llm_truncated")


class Act(Enum):
    STALL = auto()  # send nothing more, keep the connection
    RESET = auto()
    CLOSE = auto()
    KEEP = auto()  # this answer leaves the connection open for the next request


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same bytes repeatedly, `pause_s` apart; None: forever."""

    data: bytes
    times: int | None = None
    pause_s: float = 0.0


Step = bytes | float | Act | Repeat
Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Expect:
    """What the turn must be. `whole`: completed with `text`. `broken`: ERROR with one of `codes` after
    exactly `text`. `either`: one of both, any text. `capped`: cut at the limit, reported by an ERROR or by
    finish_reason "length".

    `calls` are the minimum and maximum of upstream requests; None: 1 after a first token, else 1 to 3.
    """

    end: Literal["whole", "broken", "either", "capped"] = "whole"
    text: str | None = TEXT
    codes: tuple[str, ...] = BROKEN
    within_s: float = 11.0
    calls: tuple[int, int] | None = None
    finish_reason: str | None = None
    thinking: str | None = None
    pings: int = 0
    statuses: tuple[str, ...] = ("failed", "interrupted")

    @property
    def calls_allowed(self) -> tuple[int, int]:
        if self.calls is not None:
            return self.calls
        return (1, 1) if self.end == "whole" or self.text else (1, 3)


@dataclass(frozen=True, slots=True)
class Script:
    """`answers` are played in turn to the calls of one question (with `by_connection`: to the requests of one
    connection), the last one for all further ones; `mended` instead, while its switch is on."""

    fault: str
    name: str
    answers: tuple[Steps, ...]
    expect: Expect
    provider: str = "openai"
    by_connection: bool = False
    mended: Steps | None = None

    def steps_of(self, call: int, switched_on: bool) -> Steps:
        if switched_on and self.mended is not None:
            return self.mended
        return self.answers[min(call, len(self.answers)) - 1]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(*parts: Step, end: bool = True, head: bytes = SSE_HEAD) -> Steps:
    """An event stream: each part is one HTTP chunk. `end` closes it in an orderly way."""
    steps = [_framed(part) for part in parts]
    return (head, *steps, b"0\r\n\r\n", Act.CLOSE) if end else (head, *steps)


def _framed(part: Step) -> Step:
    match part:
        case bytes():
            return chunked(part)
        case Repeat(data, times, pause_s):
            return Repeat(chunked(data), times, pause_s)
        case _:
            return part


def response(status: str, body: bytes = b"", *headers: str, content_type: str = "application/json") -> Steps:
    """A complete answer with a length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, "Connection: close", *headers, "", ""])
    return (head.encode() + body, Act.CLOSE)


def refusal(status: str, *headers: str) -> Steps:
    code = int(status.split()[0])
    error = {"type": "error", "error": {"message": "scripted", "type": "server_error", "code": code}}
    return response(status, json.dumps(error).encode(), *headers)


def data(body: Any, *, ascii_only: bool = True) -> bytes:
    """One event."""
    return b"data: " + json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n\n"


def pieces(text: str = TEXT, size: int = 3) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def drip(body: bytes, size: int = 1) -> tuple[bytes, ...]:
    return tuple(body[at : at + size] for at in range(0, len(body), size))
