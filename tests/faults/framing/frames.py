"""G9, frames: whatever the texts contain, every reader of the wire sees exactly the events that were sent."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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
from core.knowledge import Citation
from core.text import scrub
from routes.stream import citation_reply, encode_json, encode_prefix
from tests.faults.outcome import Fault, Outcome
from tests.support.wire.sse import PREFIXES, Frame, frames, frames_by_line, parse_sse

Events = list[tuple[str, str]]
"""Kind and text of each frame, neighbouring texts of one kind joined: a text may have several frames."""

BREAKS = ("\r", "\n", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
HOSTILE = (
    *BREAKS,
    *PREFIXES,
    *(f"{each}data: DONE:{each}{each}" for each in BREAKS),
    *("\nSOURCE:[]", ": ping", "id: 1", "event: done", "retry: 1", "\n\n", "data:", " ", "", "字", '"}'),
    *("\ufeff", "\ud800", "\udc00", "\0", "\N{PILE OF POO}", "e\u0301", "\u200b"),
)


def encoded(events: Sequence[Event]) -> str:
    """The wire in prefix format; it must be valid UTF-8."""
    return b"".join(encode_prefix(event, f"t:{n}") for n, event in enumerate(_safe(events), 1)).decode()


def encoded_json(events: Sequence[Event]) -> str:
    return b"".join(encode_json(event, f"t:{n}") for n, event in enumerate(_safe(events), 1)).decode()


def _safe(events: Sequence[Event]) -> list[Event]:
    return [piece for event in events for piece in line_safe(event)]


def frames_by_splitlines(wire: str) -> list[Frame]:
    """What a loop over `str.splitlines()` sees, for which eleven characters end a line."""
    return frames_by_line("\n".join(wire.splitlines()))


READERS: dict[str, Callable[[str], list[Frame]]] = {
    "parser": frames,
    "line loop": frames_by_line,
    "splitlines": frames_by_splitlines,
}


def events_in(read: Sequence[Frame]) -> Events:
    """The events as JSON written by Python, whatever was escaped."""
    return _merged(
        [
            (
                frame.kind,
                json.dumps(json.loads(frame.text)) if frame.kind in ("STATUS", "SOURCE") else frame.text,
            )
            for frame in read
        ]
    )


def events_in_json(wire: str) -> Events:
    """The JSON format's events; only texts and errors are compared."""
    read = [(name.upper(), json.loads(data)) for name, _, data in parse_sse(wire)]
    return _merged([(name, body.get("text", body.get("message", ""))) for name, body in read])


def sent(events: Sequence[Event]) -> Events:
    return _merged([_sent(event) for event in events])


def sent_json(events: Sequence[Event]) -> Events:
    """The sent events, as far as `events_in_json` compares them."""
    shown = [(kind, "" if kind in ("SOURCE", "SESSION") else text) for kind, text in map(_sent, events)]
    return _merged(
        [(kind, json.loads(text)["message"] if kind == "STATUS" else text) for kind, text in shown]
    )


def _sent(event: Event) -> tuple[str, str]:
    match event:
        case ContentEvent(text):
            return "CONTENT", scrub(text)
        case ThinkEvent(text):
            return "THINK", scrub(text)
        case ErrorEvent(message):
            return "ERROR", " ".join(scrub(message).split())
        case StatusEvent(stage, message, _):
            return "STATUS", json.dumps({"stage": stage, "message": message})
        case SourceEvent(citations):
            return "SOURCE", json.dumps(
                [citation_reply(each).model_dump(exclude_unset=True) for each in citations]
            )
        case SessionEvent(session_id):
            return "SESSION", session_id
        case DoneEvent():
            return "DONE", ""


def _merged(flat: Events) -> Events:
    words = [(kind, text) for kind, text in flat if text or kind not in ("CONTENT", "THINK")]
    runs: Events = []
    for kind, group in itertools.groupby(words, key=lambda pair: pair[0]):
        texts = [text for _, text in group]
        runs += [(kind, "".join(texts))] if kind in ("CONTENT", "THINK") else [(kind, text) for text in texts]
    return runs


def citation(text: str) -> Citation:
    """A source with `text` in every place that can hold a document's words."""
    return Citation(1, "d", text, "c", 0.5, None, text, 0, 1, text, text)


def event_list(rng: random.Random) -> list[Event]:
    """Up to ten events of any kind in any order, with hostile texts."""
    return [_event(rng) for _ in range(rng.randrange(11))]


def _event(rng: random.Random) -> Event:
    kind = rng.randrange(10)
    if kind < 4:
        return ContentEvent(_text(rng))
    if kind < 6:
        return ThinkEvent(_text(rng))
    if kind == 6:
        return ErrorEvent(_text(rng))
    if kind == 7:
        return StatusEvent("generating", _text(rng))
    return SourceEvent((citation(_text(rng)),)) if kind == 8 else DoneEvent()


def _text(rng: random.Random) -> str:
    parts = rng.choices(HOSTILE, k=rng.randrange(7))
    if rng.random() < 0.5:
        parts.append(chr(rng.randrange(0x110000)))
    return "".join(parts)


def run(trials: int, folder: Path, seed: int) -> Outcome:
    """Each trial is one list of events, read by every reader of both formats."""
    rng = random.Random(seed)
    outcome = Outcome()
    began = time.perf_counter()
    for trial in range(trials):
        events = event_list(rng)
        wire = encoded(events)
        promised = sent(events)
        for name, read in READERS.items():
            outcome.expect(
                events_in(read(wire)) == promised, f"seed {seed}, list {trial}: forged for the {name}"
            )
        right = events_in_json(encoded_json(events)) == sent_json(events)
        outcome.expect(right, f"seed {seed}, list {trial}: forged in the JSON format")
        outcome.trials += 1
    outcome.figures["lists per second"] = round(trials / (time.perf_counter() - began))
    return outcome


FRAMES = Fault("G9 frames", "no text forges a frame, for any reader", run, short=2_000, long=100_000)
FAULTS = (FRAMES,)
