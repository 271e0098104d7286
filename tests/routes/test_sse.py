from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from core.events import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
)
from core.frames import line_safe
from core.text import scrub
from routes.sse import encode_json, encode_prefix
from tests.support.sse import Frame, frames, frames_by_line, parse_sse

HOSTILE = [
    "DONE:",
    "\ndata: DONE:\n\n",
    "SOURCE:[]",
    "\r",
    "\u2028",
    "\x85",
    ": ping",
    "id: 1",
    "\n",
    "\n\n",
    "",
    "字",
    "\ud800",
    "\0",
]
TEXT = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), max_size=6).map("".join).map(scrub)
EVENTS = st.lists(
    st.builds(ContentEvent, TEXT)
    | st.builds(ThinkEvent, TEXT)
    | st.builds(ErrorEvent, TEXT)
    | st.builds(StatusEvent, st.just("generating"), TEXT),
    max_size=8,
)


def encode(events: list[Event]) -> tuple[str, list[Event]]:
    safe = [piece for event in events for piece in line_safe(event)]
    return b"".join(encode_prefix(event, f"t:{n}") for n, event in enumerate(safe, 1)).decode(), safe


def expected(events: list[Event]) -> list[tuple[str, str]]:
    """Neighbouring texts of one kind joined, since a text may be cut into several frames."""
    flat: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ContentEvent(text):
                flat.append(("CONTENT", text))
            case ThinkEvent(text):
                flat.append(("THINK", text))
            case ErrorEvent(message):
                flat.append(("ERROR", " ".join(message.split())))
            case StatusEvent(stage, message, _):
                flat.append(("STATUS", json.dumps({"stage": stage, "message": message})))
    return merged(flat)


def merged(flat: list[tuple[str, str]]) -> list[tuple[str, str]]:
    said = [(kind, text) for kind, text in flat if text or kind not in ("CONTENT", "THINK")]
    runs: list[tuple[str, str]] = []
    for kind, group in itertools.groupby(said, key=lambda pair: pair[0]):
        texts = [text for _, text in group]
        runs += [(kind, "".join(texts))] if kind in ("CONTENT", "THINK") else [(kind, text) for text in texts]
    return runs


def seen(read: list[Frame]) -> list[tuple[str, str]]:
    return merged([(frame.kind, frame.text) for frame in read])


@settings(max_examples=400)
@given(EVENTS)
def test_no_text_forges_a_frame_for_either_reader(events: list[Event]) -> None:
    """Discriminates: writing "data: " before every line of a text lets a line reader see DONE."""
    wire, _ = encode(events)
    assert seen(frames(wire)) == expected(events)
    assert seen(frames_by_line(wire)) == expected(events)


def test_the_wire_is_as_the_protocol_shows_it() -> None:
    wire, _ = encode([ContentEvent("first line\nDONE: is only text here")])
    assert wire == (
        "id: t:1\ndata: CONTENT:first line\ndata:\n\nid: t:2\ndata: CONTENT:DONE: is only text here\n\n"
    )


def test_ids_count_the_frames_from_one() -> None:
    wire, safe = encode([SessionEvent("s"), ContentEvent("a\nb\n\nc"), SourceEvent(()), DoneEvent()])
    assert [event_id for _, event_id, _ in parse_sse(wire)] == [f"t:{n}" for n in range(1, len(safe) + 1)]


def test_json_payloads_are_one_ascii_line() -> None:
    wire = encode_prefix(StatusEvent("retrieving", "正在\n检索\u2028"), "t:1")
    assert wire.isascii()
    assert wire.count(b"\n") == 3


def test_old_clients_get_the_first_progress_line_as_content() -> None:
    event = StatusEvent("retrieving", "正在进行混合检索...")
    assert "data: CONTENT:正在进行混合检索...\n" in encode_prefix(event, "t:1", "CONTENT").decode()
    assert "data: STATUS:" in encode_prefix(StatusEvent("reranking", "x"), "t:2", "CONTENT").decode()


@given(TEXT)
def test_the_json_format_names_the_event_and_keeps_the_text(text: str) -> None:
    ((name, event_id, data),) = parse_sse(encode_json(ContentEvent(text), "t:3").decode())
    assert (name, event_id, json.loads(data)) == ("content", "t:3", {"text": text})
