"""Events are the same however the network cuts them (RELIABILITY P5)."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.http.sse import MAX_LINE_BYTES, Event, EventReader, NotAnAnswerError

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
EVENTS = st.lists(st.tuples(LINES, st.lists(LINES, min_size=1, max_size=3), LINES), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


@given(EVENTS, ENDS, st.booleans(), st.lists(st.integers(0, 10_000), max_size=12))
def test_every_partition_of_every_line_ending_gives_the_same_events(
    drawn: list[tuple[str, list[str], str]], end: str, bom: bool, places: list[int]
) -> None:
    """Discriminates: losing the LF of a CRLF cut in two; a BOM cut in two; joining data without newlines."""
    lines: list[str] = []
    for name, reported, comment in drawn:
        lines += [f": {comment}", f"event: {name}", *(f"data: {line}" for line in reported), ""]
    text = "".join(line + end for line in lines)
    raw = ("\ufeff" if bom else "").encode() + text.encode()
    expected = [(name.encode(), "\n".join(reported).encode()) for name, reported, _ in drawn]
    assert read(cut(raw, places)) == expected
    assert read([raw[place : place + 1] for place in range(len(raw))]) == expected


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data:{}\n\n", [(b"", b"{}")]),
        (b"data:  two blanks\n\n", [(b"", b" two blanks")]),
        (b"data\n\n", [(b"", b"")]),
        (b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n", [(b"", b"1"), (b"", b"2")]),
        (b"event: ping\n\ndata: 1\n\n", [(b"", b"1")]),
        (b"id: 7\nretry: 10\nevent: x\ndata: 1\nunknown: 2\n\n", [(b"x", b"1")]),
        (b": a\n: b\ndata: 1\n: c\n\n", [(b"", b"1")]),
        (b"data: 1\n\ndata: unfinished\n", [(b"", b"1")]),
        (b"<html>\n\n<body>no events</body>\n\n</html>", []),
        (b"data: \xff\xfe\n\n", [(b"", b"\xff\xfe")]),
        (b"\xef\xbb\n\ndata: 1\n\n", [(b"", b"1")]),
    ],
)
def test_the_odd_forms_that_the_standard_knows(raw: bytes, events: list[Event]) -> None:
    assert read([raw]) == events
    assert read([raw[place : place + 1] for place in range(len(raw))]) == events


@pytest.mark.parametrize("size", [1, 4_096, 100_000_000])
def test_a_line_without_an_end_is_refused_after_what_came_before_it(size: int) -> None:
    """Discriminates: a buffer without a bound; losing the events that stand before the line."""
    reader, step = EventReader(), max(size, 4_096)
    raw = b"data: 1\n\ndata: " + b"x" * (MAX_LINE_BYTES + 2 * 4_096)
    events: list[Event] = []
    pieces = (raw[place : place + step] for place in [*range(0, len(raw), step), len(raw)])
    with pytest.raises(NotAnAnswerError):
        events.extend(event for piece in pieces for event in reader.feed(piece))
    assert events == [(b"", b"1")]


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    """Discriminates: joining or searching all that is held for every piece."""
    reader, start = EventReader(), time.process_time()
    for _ in range(180_000):
        reader.feed(b"12345")
    assert time.process_time() - start < 3
