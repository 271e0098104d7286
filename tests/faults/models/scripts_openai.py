"""F6 to F9, F11 and F12, caused by an OpenAI-compatible server."""

from __future__ import annotations

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
    Steps,
    data,
    pieces,
    refusal,
    sse,
)

CAP_CHARS = 20_000  # MAX_ANSWER_CHARS of the worlds these are played in
DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **extra: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return data(chunk_body([choice], **extra))


def chunk_body(choices: Any, **extra: Any) -> dict[str, Any]:
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "stub"}
    return {**head, "choices": choices, **extra}


def answer_events(text: str = TEXT, size: int = 3) -> tuple[bytes, ...]:
    return tuple(chunk({"content": piece}) for piece in pieces(text, size))


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, "stop")
GOOD = sse(ROLE, *answer_events(), STOP, DONE)
LENGTH = sse(ROLE, *answer_events(), chunk({}, "length"), DONE)
WITH_COMMENTS: Steps = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    % len(b"".join([ROLE, *answer_events(), STOP, DONE])),
    b"".join([ROLE, *answer_events(), STOP, DONE]),
    Act.KEEP,
)

_silent = Expect("broken", "", UNAVAILABLE, within_s=3, calls=(1, 1), pings=1)
_stalled = Expect("broken", HALF, UNAVAILABLE, within_s=3.5, pings=1)
_reset_early = Expect("either", None, calls=(1, 3))
_refused = Expect("broken", "", UNAVAILABLE, calls=(1, 1), within_s=3)
_passing = Expect("broken", "", UNAVAILABLE, calls=(3, 3))
_mended = Expect(calls=(3, 3))

BASE = (
    Script("good", "good", (GOOD,), Expect(within_s=3)),
    Script("good", "kept_alive", (WITH_COMMENTS,), Expect(within_s=3)),
    Script("F5", "circuit", (refusal("503 Busy"),), _passing, mended=GOOD),
)

SILENT = (
    Script("F6", "silent", ((Act.STALL,),), _silent),
    Script("F6", "silent_after_head", (sse(Act.STALL, end=False),), _silent),
    Script("F6", "silent_after_role", (sse(ROLE, Act.STALL, end=False),), _silent),
    Script("F6", "comments_for_ever", (sse(Repeat(b": keep\n\n", None, 0.2), end=False),), _silent),
    Script("F6", "roles_for_ever", (sse(Repeat(ROLE, None, 0.2), end=False),), _silent),
    Script("F6", "half_a_head", ((b"HTTP/1.1 200 OK\r\nContent-Ty", Act.STALL),), _silent),
)

STALLED = (
    Script("F7", "stall", (sse(ROLE, *answer_events(HALF), Act.STALL, end=False),), _stalled),
    Script(
        "F7",
        "stall_in_event",
        (sse(*answer_events(HALF), b'data: {"id": "c', Act.STALL, end=False),),
        _stalled,
    ),
    Script(
        "F7",
        "stall_comments",
        (sse(*answer_events(HALF), Repeat(b": keep\n\n", None, 0.2), end=False),),
        _stalled,
    ),
    Script(
        "F7", "stall_dripping", (sse(*answer_events(HALF), Repeat(b"x", None, 0.2), end=False),), _stalled
    ),
    Script(
        "F7",
        "slow_but_alive",
        (sse(*[part for piece in answer_events(TEXT, 16) for part in (1.2, piece)], STOP, DONE),),
        Expect(within_s=6),
    ),
)

CUT = (
    Script("F8", "reset", (sse(*answer_events(HALF), 0.05, Act.RESET, end=False),), Expect("broken", HALF)),
    Script(
        "F8", "closed_in_chunk", (sse(*answer_events(HALF), Act.CLOSE, end=False),), Expect("broken", HALF)
    ),
    Script("F8", "reset_before_head", ((0.05, Act.RESET), GOOD), Expect(calls=(2, 2))),
    Script("F8", "closed_before_head", ((Act.CLOSE,), GOOD), Expect(calls=(2, 2))),
    Script("F8", "reset_after_head", (sse(0.05, Act.RESET, end=False), GOOD), _reset_early),
    Script(
        "F8", "dropped_when_reused", (WITH_COMMENTS, (Act.RESET,)), Expect(calls=(1, 2)), by_connection=True
    ),
)

ENDED = (
    Script("F9", "no_end_marker", (sse(ROLE, *answer_events()),), Expect("broken", TEXT, TRUNCATED)),
    Script("F9", "no_end_marker_half", (sse(ROLE, *answer_events(HALF)),), Expect("broken", HALF, TRUNCATED)),
    Script("F9", "no_done_line", (sse(ROLE, *answer_events(), STOP),), Expect("either", TEXT)),
    Script("F9", "no_finish_reason", (sse(ROLE, *answer_events(), DONE),), Expect("either", TEXT)),
    Script("F9", "length", (LENGTH,), Expect("capped", TEXT)),
    Script("F9", "length_nothing_said", (sse(ROLE, chunk({}, "length"), DONE),), Expect("broken", "")),
    Script(
        "F9",
        "content_filter",
        (sse(*answer_events(HALF), chunk({}, "content_filter"), DONE),),
        Expect("either", HALF),
    ),
)

RETRIED = (
    *(
        Script("F11", f"twice_{status.split()[0]}", (refusal(status), refusal(status), GOOD), _mended)
        for status in (
            "408 Request Timeout",
            "429 Too Many Requests",
            "500 Internal Server Error",
            "502 Bad Gateway",
            "503 Service Unavailable",
            "504 Gateway Timeout",
            "529 Overloaded",
        )
    ),
    *(
        Script("F11", f"always_{status}", (refusal(f"{status} Refused"),), expect)
        for status, expect in (
            (429, _passing),
            (500, _passing),
            (400, Expect("broken", "", UNAVAILABLE, calls=(1, 2))),  # the layout may be another
            (401, _refused),
            (403, _refused),
            (404, Expect("broken", "", UNAVAILABLE, calls=(1, 2))),  # it may have no chat side
        )
    ),
    Script(
        "F11",
        "retry_after_1",
        (refusal("429 Wait", "Retry-After: 1"), GOOD),
        Expect(calls=(2, 2), within_s=4),
    ),
    Script(
        "F11",
        "retry_after_date",
        (refusal("503 Wait", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"), GOOD),
        Expect(calls=(2, 2), within_s=4),
    ),
    Script(
        "F11",
        "retry_after_nonsense",
        (refusal("503 Wait", "Retry-After: soon"), GOOD),
        Expect(calls=(2, 2), within_s=4),
    ),
    Script("F11", "retry_after_an_hour", (refusal("429 Wait", "Retry-After: 3600"), GOOD), _refused),
    Script("F11", "retry_after_minus", (refusal("429 Wait", "Retry-After: -5"), GOOD), Expect(calls=(1, 2))),
)

_capped = Expect("capped", None, within_s=7)
_endless_nothing = Expect("broken", "", within_s=7)

ENDLESS = (
    Script(
        "F12",
        "tokens_full_speed",
        (sse(Repeat(b"".join(answer_events("word " * 20, 5))), end=False),),
        _capped,
    ),
    Script(
        "F12", "tokens_slowly", (sse(Repeat(chunk({"content": "word "}), None, 0.1), end=False),), _capped
    ),
    Script(
        "F12",
        "think_full_speed",
        (sse(chunk({"content": "<think>"}), Repeat(b"".join(answer_events("hmm " * 20, 4))), end=False),),
        _capped,
    ),
    Script(
        "F12",
        "reasoning_full_speed",
        (sse(Repeat(chunk({"reasoning_content": "hmm " * 20})), end=False),),
        _capped,
    ),
    Script("F12", "blank_full_speed", (sse(Repeat(chunk({"content": "\n " * 40})), end=False),), _capped),
    Script("F12", "roles_full_speed", (sse(Repeat(ROLE * 20), end=False),), _endless_nothing),
    Script("F12", "comments_full_speed", (sse(Repeat(b": x\n\n" * 100), end=False),), _endless_nothing),
    Script(
        "F12",
        "think_unclosed",
        (sse(*answer_events("<think>\n" + TEXT), STOP, DONE),),
        Expect("either", None, thinking=TEXT),
    ),
    Script(
        "F12",
        "huge_deltas",
        (sse(*[chunk({"content": "word " * 20_000})] * 50, STOP, DONE),),
        _capped,
    ),
)

READERS = (  # for the faults of readers: long answers at several speeds
    Script(
        "readers", "steady", (sse(ROLE, Repeat(chunk({"content": "word "}), None, 0.02), end=False),), _capped
    ),
    Script(
        "readers",
        "late_first",
        (sse(0.3, Repeat(chunk({"content": "word "}), None, 0.02), end=False),),
        _capped,
    ),
    Script("readers", "first_in_a_second", (sse(1.0, *answer_events(), STOP, DONE),), Expect()),
    Script(
        "readers",
        "three_seconds",
        (sse(ROLE, Repeat(chunk({"content": "word "}), 30, 0.1), chunk({"content": "end"}), STOP, DONE),),
        Expect(text="word " * 30 + "end"),
    ),
    Script("readers", "flood", (sse(Repeat(b"".join(answer_events("word " * 40, 5))), end=False),), _capped),
    Script(
        "readers",
        "flood_to_the_cap",
        (sse(Repeat(b"".join(answer_events("word " * 40, 5)), 1_000), STOP, DONE),),
        _capped,
    ),
    Script(
        "readers",
        "six_million",
        (
            sse(
                ROLE,
                Repeat(chunk({"content": "word " * 1_000}), 1_200),
                Repeat(chunk({"content": "x"}), None, 0.5),
                end=False,
            ),
        ),
        _capped,
    ),
)

OPENAI = (*BASE, *SILENT, *STALLED, *CUT, *ENDED, *RETRIED, *ENDLESS, *READERS)
