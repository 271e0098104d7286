from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.turn.stream import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
    line_safe,
)
from core.text import scrub
from routes.stream import encode_json, encode_prefix
from tests.faults.framing.frames import (
    BREAKS,
    HOSTILE,
    READERS,
    citation,
    encoded,
    encoded_json,
    events_in,
    events_in_json,
    sent,
    sent_json,
)
from tests.support.wire.sse import PREFIXES, parse_sse

# Not scrubbed: whatever a model, a document or an exception contains, the frames themselves must hold.
TEXT = st.lists(st.sampled_from(HOSTILE) | st.text(st.characters(codec=None), max_size=8), max_size=6).map(
    "".join
)
EVENTS = st.lists(
    st.builds(ContentEvent, TEXT)
    | st.builds(ThinkEvent, TEXT)
    | st.builds(ErrorEvent, TEXT)
    | st.builds(StatusEvent, st.just("generating"), TEXT)
    | TEXT.map(lambda text: SourceEvent((citation(text),)))
    | st.uuids().map(lambda each: SessionEvent(str(each)))
    | st.just(DoneEvent()),
    max_size=8,
)


@settings(max_examples=400)
@given(EVENTS)
def test_no_text_forges_a_frame_for_any_reader(events: list[Event]) -> None:
    """Discriminates: writing "data: " before every line of a text lets a line reader see DONE."""
    wire = encoded(events)
    for name, read in READERS.items():
        assert events_in(read(wire)) == sent(events), name
    assert events_in_json(encoded_json(events)) == sent_json(events)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line_break", BREAKS)
def test_a_prefix_after_any_line_break_is_text(prefix: str, line_break: str) -> None:
    """Discriminates: cutting only at LF, although a reader also ends a line at CR or NEL."""
    events: list[Event] = [ContentEvent(f"a{line_break}{prefix}{line_break}data: {prefix}"), DoneEvent()]
    for read in READERS.values():
        assert events_in(read(encoded(events))) == [("CONTENT", f"a\n{prefix}\ndata: {prefix}"), ("DONE", "")]


@given(TEXT.filter(bool))
def test_text_that_was_never_cut_at_its_newlines_forges_nothing_either(text: str) -> None:
    """Discriminates: continuation lines for a text that continues, which a line reader takes for frames."""
    for event in (ContentEvent(text), ThinkEvent(text)):
        wire = encode_prefix(event, "t:1").decode()
        for read in READERS.values():
            assert len(read(wire)) == 1
        assert not any(char in wire for char in "".join(BREAKS).replace("\n", ""))


@given(st.lists(TEXT, max_size=5))
def test_framing_for_the_wire_preserves_the_texts(texts: list[str]) -> None:
    pieces = [piece for text in texts for piece in line_safe(ThinkEvent(text))]
    words = [piece.text for piece in pieces if isinstance(piece, ThinkEvent)]
    assert "".join(words) == "".join(scrub(text) for text in texts)
    assert all(text and "\n" not in text.rstrip("\n") for text in words)


def test_the_wire_is_as_the_protocol_shows_it() -> None:
    wire = encoded([ContentEvent("first line\nDONE: is only text here")])
    assert wire == (
        "id: t:1\ndata: CONTENT:first line\ndata:\n\nid: t:2\ndata: CONTENT:DONE: is only text here\n\n"
    )


def test_ids_count_the_frames_from_one() -> None:
    wire = encoded([SessionEvent("s"), ContentEvent("a\nb\n\nc"), SourceEvent(()), DoneEvent()])
    assert [event_id for _, event_id, _ in parse_sse(wire)] == [f"t:{n}" for n in range(1, 7)]


def test_json_payloads_are_one_readable_line() -> None:
    """Discriminates: \\u6b63 for 正, which nobody can read in a terminal; a line break at which some parser
    ends the line."""
    status = encode_prefix(StatusEvent("retrieving", f"正在检索{''.join(BREAKS)}\x7f\x9f"), "t:1").decode()
    source = encode_prefix(SourceEvent((citation(f"正{''.join(BREAKS)}\ud800"),)), "t:1").decode()
    for wire in (status, source):
        assert "正" in wire
        assert "\\u2028" in wire
        assert len(wire.splitlines()) == wire.count("\n") == 3
    assert "\\u009f" in status


def test_an_error_is_one_line_in_both_formats() -> None:
    event = ErrorEvent("It broke.\r\n\u2028 Try\0 again.\n")
    assert encode_prefix(event, "t:1") == b"id: t:1\ndata: ERROR:It broke. Try again.\n\n"
    assert (
        encode_json(event, "t:1") == b'event: error\nid: t:1\ndata: {"message": "It broke. Try again."}\n\n'
    )


def test_old_clients_get_the_first_progress_line_as_content() -> None:
    event = StatusEvent("retrieving", "正在进行混合检索...")
    assert "data: CONTENT:正在进行混合检索...\n" in encode_prefix(event, "t:1", "CONTENT").decode()
    assert "data: STATUS:" in encode_prefix(StatusEvent("reranking", "x"), "t:2", "CONTENT").decode()


@given(TEXT)
def test_the_json_format_names_the_event_and_keeps_the_text(text: str) -> None:
    wire = encode_json(ContentEvent(text), "t:3").decode()
    assert len(wire.splitlines()) == 4
    ((name, event_id, data),) = parse_sse(wire)
    assert (name, event_id, json.loads(data)) == ("content", "t:3", {"text": scrub(text)})
