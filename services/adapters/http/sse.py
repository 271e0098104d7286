"""Server-sent events out of byte chunks that are cut anywhere (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

from core.errors import LLMUnavailableError

MAX_LINE_BYTES = 1_000_000  # of an event too: no provider's is a tenth of that

_BOM = b"\xef\xbb\xbf"
_FAST = b"data: "
_FIELDS = (b"data", b"event")

Event = tuple[bytes, bytes]  # its name (b"" for none) and its data


class NotAnAnswerError(LLMUnavailableError):
    """The upstream's bytes are not what its API promises; none of them is shown."""

    def __init__(self) -> None:
        super().__init__("The model's server sent something that is not an answer.")


class EventReader:
    """Give it what was read, take the events that are whole; a stream's last, unfinished one is none.

    An event that grows over MAX_LINE_BYTES raises NotAnAnswerError, after those before it were given out.
    """

    def __init__(self) -> None:
        self._held = bytearray()  # of an event that is not whole yet
        self._after_cr = False
        self._begun = False
        self._failed = False

    def feed(self, chunk: bytes) -> list[Event]:
        if self._failed:
            raise NotAnAnswerError
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_newlines(chunk)
        if not self._begun and not (chunk := self._without_bom(chunk)):
            return []
        if self._held:
            chunk = self._joined(chunk)
        whole, _, rest = chunk.rpartition(b"\n\n")
        if rest:
            self._held += rest
        events: list[Event] = []
        if whole:
            self._take(whole, events)
        self._failed = self._failed or len(self._held) > MAX_LINE_BYTES
        if self._failed and not events:
            raise NotAnAnswerError
        return events

    def _with_newlines(self, chunk: bytes) -> bytes:
        """CR and CRLF as LF; the LF of a CRLF that was cut in two has been counted already."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        elif not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, chunk: bytes) -> bytes:
        """Nothing as long as what came may become a byte order mark."""
        start = bytes(self._held) + chunk
        self._held.clear()
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._held += start
            return b""
        self._begun = True
        return start.removeprefix(_BOM)

    def _joined(self, chunk: bytes) -> bytes:
        """What is held with `chunk`, once an event in it may be whole; looks at no byte twice."""
        if b"\n\n" not in chunk and not (self._held.endswith(b"\n") and chunk.startswith(b"\n")):
            self._held += chunk
            return b""
        joined = bytes(self._held) + chunk
        self._held.clear()
        return joined

    def _take(self, whole: bytes, events: list[Event]) -> None:
        for block in whole.split(b"\n\n"):
            if len(block) > MAX_LINE_BYTES:
                self._failed = True
                return
            if block.startswith(_FAST) and b"\n" not in block:
                events.append((b"", block[6:]))
            elif (event := _event(block)) is not None:
                events.append(event)


def _event(block: bytes) -> Event | None:
    """Of lines without a blank one between them; None for comments alone, or a name without data."""
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field in _FIELDS:
            value = value[1:] if value.startswith(b" ") else value
            if field == b"data":
                data.append(value)
            else:
                name = value
    return (name, b"\n".join(data)) if data else None
