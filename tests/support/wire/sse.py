"""Two parsers of the stream: a full Server-Sent Events parser, and a naive loop over lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PREFIXES = ("SESSION:", "STATUS:", "THINK:", "CONTENT:", "SOURCE:", "ERROR:", "DONE:")


@dataclass(frozen=True)
class Frame:
    kind: str
    text: str
    event_id: str = ""


def parse_sse(wire: str) -> list[tuple[str, str, str]]:
    """Return (event, id, data) by the WHATWG rules; comments are dropped."""
    events = []
    name, event_id = "", ""
    data: list[str] = []
    for line in wire.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                events.append((name, event_id, "\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "id":
            event_id = value
        elif field == "event":
            name = value
    return events


def frames(wire: str) -> list[Frame]:
    """Return the frames of the prefix format, in order."""
    results = []
    for _, event_id, data in parse_sse(wire):
        kind, _, text = data.partition(":")
        results.append(Frame(kind, text, event_id))
    return results


def frames_by_line(wire: str) -> list[Frame]:
    """Return what a loop over line prefixes sees; an empty data line is a line break in the piece."""
    results: list[Frame] = []
    for line in wire.split("\n"):
        if not line.startswith("data:"):
            continue
        text = line.removeprefix("data:").removeprefix(" ")
        if not text:
            last = results[-1]
            results[-1] = Frame(last.kind, last.text + "\n")
            continue
        kind, _, rest = text.partition(":")
        results.append(Frame(kind, rest))
    return results


@dataclass(frozen=True)
class Streamed:
    """A turn as seen by a client."""

    frames: list[Frame]

    def text(self, kind: str) -> str:
        return "".join(frame.text for frame in self.frames if frame.kind == kind)

    @property
    def kinds(self) -> list[str]:
        """The kinds in order, without consecutive repeats."""
        observed: list[str] = []
        for frame in self.frames:
            if not observed or observed[-1] != frame.kind:
                observed.append(frame.kind)
        return observed

    @property
    def session_id(self) -> str:
        return self.text("SESSION")

    @property
    def answer(self) -> str:
        return self.text("CONTENT")

    @property
    def sources(self) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = json.loads(self.text("SOURCE") or "[]")
        return results

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return [json.loads(frame.text) for frame in self.frames if frame.kind == "STATUS"]

    @property
    def finished(self) -> dict[str, Any]:
        return next(status for status in self.statuses if status["stage"] == "finished")
