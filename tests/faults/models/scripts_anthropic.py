"""The same faults, caused by a server of Anthropic's Messages API."""

from __future__ import annotations

import re
from typing import Any

from tests.faults.models.script import (
    HALF,
    TEXT,
    TRUNCATED,
    UNAVAILABLE,
    Act,
    Expect,
    Repeat,
    Script,
    Step,
    data,
    drip,
    pieces,
    refusal,
    response,
    sse,
)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + data({"type": kind, **fields})


def text_delta(text: str) -> bytes:
    return _delta({"type": "text_delta", "text": text})


def thinking_delta(text: str) -> bytes:
    return _delta({"type": "thinking_delta", "thinking": text})


def _delta(delta: Any) -> bytes:
    return event("content_block_delta", index=0, delta=delta)


def answer_events(text: str = TEXT, size: int = 3) -> tuple[bytes, ...]:
    return tuple(text_delta(piece) for piece in pieces(text, size))


def stopped(reason: str) -> tuple[bytes, ...]:
    delta_event = event(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 9}
    )
    return (event("content_block_stop", index=0), delta_event, event("message_stop"))


_MESSAGE: dict[str, Any] = {
    "id": "m-1", "type": "message", "role": "assistant", "model": "stub", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
}  # fmt: skip
START = (
    event("message_start", message=_MESSAGE)
    + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + event("ping")
)
STOP = stopped("end_turn")
GOOD = sse(START, *answer_events(), *STOP)
_ERROR = event("error", error={"type": "overloaded_error", "message": "scripted secret"})
_MEGABYTE = b"x" * 1_000_000


def _script(fault: str, name: str, expect: Expect, *parts: Step, end: bool = True) -> Script:
    return Script(fault, f"claude_{name}", (sse(*parts, end=end),), expect, "anthropic")


def _refused(name: str, expect: Expect, *statuses: str) -> Script:
    answers = tuple(refusal(status) for status in statuses)
    return Script("F11", f"claude_{name}", (*answers, GOOD), expect, "anthropic")


_silent = Expect("broken", "", UNAVAILABLE, within_s=3, calls=(1, 1), pings=1)
_stalled = Expect("broken", HALF, UNAVAILABLE, within_s=3.5, pings=1)
_half = Expect("broken", HALF)
_no_text = Expect("broken", "")
_capped = Expect("capped", None, within_s=7)
_endless_nothing = Expect("broken", "", within_s=7)
_whole = Expect(within_s=4)
_either = Expect("either", None)

CLAUDE = (
    _script("good", "good", _whole, START, *answer_events(), *STOP),
    _script("F6", "silent_after_start", _silent, START, Act.STALL, end=False),
    _script("F6", "pings_for_ever", _silent, START, Repeat(event("ping"), None, 0.2), end=False),
    _script("F7", "stall", _stalled, START, *answer_events(HALF), Act.STALL, end=False),
    _script(
        "F7",
        "stall_pings",
        _stalled,
        START,
        *answer_events(HALF),
        Repeat(event("ping"), None, 0.2),
        end=False,
    ),
    _script("F8", "reset", _half, START, *answer_events(HALF), 0.05, Act.RESET, end=False),
    _script("F9", "no_message_stop", Expect("broken", TEXT, TRUNCATED), START, *answer_events()),
    _script("F9", "no_message_stop_half", Expect("broken", HALF, TRUNCATED), START, *answer_events(HALF)),
    _script("F9", "block_stop_only", Expect("broken", TEXT, TRUNCATED), START, *answer_events(), STOP[0]),
    _script("F9", "length", Expect("capped", TEXT), START, *answer_events(), *stopped("max_tokens")),
    _script("F9", "refusal", _either, START, *answer_events(HALF), *stopped("refusal")),
    _script("F10", "error_first", _no_text, _ERROR),
    _script("F10", "error_later", _half, START, *answer_events(HALF), _ERROR),
    _script("F10", "broken_json", _either, START, *answer_events(HALF), b"event: x\ndata: {bro\n\n", *STOP),
    _script(
        "F10", "unknown_events", _whole, START, event("news", x=1), *answer_events(), event("news"), *STOP
    ),
    _script("F10", "unknown_delta", _whole, START, *answer_events(), _delta({"type": "cite"}), *STOP),
    _script(
        "F10", "data_only", _whole, re.sub(rb"event: .*\n", b"", b"".join([START, *answer_events(), *STOP]))
    ),
    _script("F10", "crlf", _whole, b"".join([START, *answer_events(), *STOP]).replace(b"\n", b"\r\n")),
    _script("F10", "by_bytes", _whole, *drip(START + b"".join(answer_events(TEXT, 20))), *STOP),
    _script("F10", "no_start", _either, *answer_events(), *STOP),
    _script("F10", "empty", _no_text, START, *STOP),
    _script("F10", "nothing", _no_text),
    _script("F10", "line_50mb", _no_text, START, b"data: ", Repeat(_MEGABYTE, 50), b"\n\n"),
    _script(
        "F10",
        "delta_is_null",
        _either,
        START,
        _delta(None),
        *answer_events(),
        *STOP,
    ),
    _script(
        "F10",
        "openai_stream",
        _no_text,
        data({"choices": [{"delta": {"content": "x"}}]}),
        b"data: [DONE]\n\n",
    ),
    Script(
        "F10",
        "claude_html_200",
        (response("200 OK", b"<html>", content_type="text/html"),),
        _no_text,
        "anthropic",
    ),
    _refused("twice_529", Expect(calls=(3, 3)), "529 Overloaded", "529 Overloaded"),
    _refused("twice_429", Expect(calls=(3, 3)), "429 Wait", "429 Wait"),
    _refused("always_529", Expect("broken", "", calls=(3, 3)), *["529 Overloaded"] * 5),
    _refused("always_401", Expect("broken", "", calls=(1, 1)), *["401 No"] * 5),
    _script("F12", "tokens_full_speed", _capped, START, Repeat(text_delta("word " * 20)), end=False),
    _script("F12", "thinking_full_speed", _capped, START, Repeat(thinking_delta("hmm " * 20)), end=False),
    _script("F12", "pings_full_speed", _endless_nothing, START, Repeat(event("ping") * 50), end=False),
)
