"""Answers for clients of OpenAI's API, from a turn or a plain model: a stream of chunks, or one object."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from api.turn.stream import ContentEvent, DoneEvent, Event, SessionEvent, SourceEvent, StatusEvent, ThinkEvent
from core.citing.citations import find_marks
from core.conversation.turns import TurnStage, sources_footer
from core.errors import Cause
from core.knowledge import Citation
from core.prompt.fence import PassageLinks
from core.text import Language, scrub
from routes.errors import error_in_openai, failed_turn_headers
from routes.openai.wire import Completion
from routes.stream import EventStreamResponse, citation_objects, json_line, read_whole

FINISH_REASONS = ("length", "content_filter")  # any other reason becomes "stop"
DONE = b"data: [DONE]\n\n"

Events = AsyncGenerator[Sequence[Event], None]


class Collected:
    """The events of a turn, or of a plain answer, so far. `language` is that of the sources footer (None: no
    footer); `page` is the base URL of links to passages."""

    def __init__(self, turn_id: str, model: str, page: str, language: Language | None) -> None:
        self._error: dict[str, Any] | None = None
        self.ended = False
        self._id = f"chatcmpl-{turn_id}"
        self._turn_id = turn_id
        self._model = model
        self._page = page
        self._links = PassageLinks(page)
        self._language = language
        self._created = int(time.time())
        self._session_id = ""
        self._content: list[str] = []
        self._thinking: list[str] = []
        self._sources: tuple[Citation, ...] = ()
        self._citations: list[dict[str, Any]] = []
        self._finished: dict[str, Any] = {}

    def add(self, event: Event) -> str:
        """Return the part of the answer that this event adds."""
        before = len(self._content)
        match event:
            case ContentEvent(text):
                self._content.append(self._links.feed(text))
            case ThinkEvent(text):
                self._thinking.append(text)
            case SessionEvent(session_id):
                self._session_id = session_id
            case SourceEvent(citations):
                self._sources, self._citations = citations, citation_objects(event)
            case StatusEvent(TurnStage.ERROR, message, fields):
                error = {"message": message, "code": "internal", "retryable": False, **fields}
                self._error = error_in_openai(503, error)
            case StatusEvent(TurnStage.FINISHED, _, fields):
                self._finished = fields
            case DoneEvent():
                self._content.append(self._links.end())
                self.ended = True
        return "".join(self._content[before:])

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    @property
    def footer(self) -> str:
        if self._language is None:
            return ""
        used = [source for source in self._sources if source.cited] or self._sources
        lines = [(each.index, " · ".join(filter(None, (each.file_name, each.heading)))) for each in used]
        return sources_footer(lines, self._language)

    @property
    def error(self) -> dict[str, Any] | None:
        """No text because all of `max_tokens` went to thinking is an empty answer in OpenAI's API, not an
        error, which its SDKs would repeat."""
        is_cut = self.finish_reason == "length" and self._error and self._error.get("cause") == Cause.EMPTY
        return None if is_cut else self._error

    @property
    def finish_reason(self) -> str:
        reason = str(self._finished.get("finish_reason", ""))
        return reason if reason in FINISH_REASONS else "stop"

    @property
    def usage(self) -> dict[str, int]:
        usage = self._finished.get("usage", {})
        prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    @property
    def sources(self) -> dict[str, Any]:
        """The fields of a message that name its sources; none for a plain answer."""
        return {"annotations": self._annotations(), "citations": self._citations} if self._session_id else {}

    @property
    def place(self) -> dict[str, Any]:
        """The object `wenmai`; none for a plain answer."""
        if not self._session_id:
            return {}
        parent = self._finished.get("parent_turn_id")
        ids = {"session_id": self._session_id, "turn_id": self._turn_id, "parent_turn_id": parent}
        return {"wenmai": ids}

    def completion(self) -> Completion:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content) + self.footer}
        if self._thinking:
            message["reasoning_content"] = "".join(self._thinking)
        choice = {"index": 0, "message": message | self.sources, "finish_reason": self.finish_reason}
        body = {**self.head("chat.completion"), "choices": [choice], "usage": self.usage, **self.place}
        return Completion.model_validate(body)

    def _annotations(self) -> list[dict[str, Any]]:
        by_index = {source.index: source for source in self._sources}
        marks = find_marks("".join(self._content), len(self._sources))
        return [
            self._annotation(mark.start, mark.end, by_index[number])
            for mark in marks
            for number in mark.numbers
            if number in by_index
        ]

    def _annotation(self, start: int, end: int, source: Citation) -> dict[str, Any]:
        place = {"start_index": start, "end_index": end, "title": source.file_name}
        url = f"{self._page}#/d/{source.document_id}/{source.chunk_id}"
        return {"type": "url_citation", "url_citation": {**place, "url": url}}


class Chunks:
    """Writes a stream's bytes; a piece of text costs no more than its own JSON."""

    def __init__(self, collected: Collected, include_usage: bool) -> None:
        self._collected = collected
        self._beside: dict[str, Any] = {"usage": None} if include_usage else {}
        frame = self._frame({}, None)
        self._before, self._after = (part.encode() for part in frame.split("{}", 1))

    def begin(self) -> bytes:
        return self._frame({"role": "assistant", "content": ""}, None).encode()

    def write(self, event: Event) -> Iterator[bytes]:
        if answer := self._collected.add(event):
            yield self._text("content", answer)
        match event:
            case ThinkEvent(text):
                yield self._text("reasoning_content", text)
            case DoneEvent():
                yield from self._end()

    def _text(self, field: str, text: str) -> bytes:
        return b'%b{"%b": %b}%b' % (
            self._before,
            field.encode(),
            json_line(scrub(text)).encode(),
            self._after,
        )

    def _end(self) -> Iterator[bytes]:
        collected = self._collected
        if collected.error is not None:
            yield f"data: {json_line({'error': collected.error})}\n\n".encode()
            return
        if collected.footer:
            yield self._text("content", collected.footer)
        yield self._frame(collected.sources, collected.finish_reason, **collected.place).encode()
        if self._beside:
            body = {**collected.head("chat.completion.chunk"), "choices": [], "usage": collected.usage}
            yield f"data: {json_line(body)}\n\n".encode()
        yield DONE

    def _frame(self, delta: dict[str, Any], finish_reason: str | None, **place: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        body = {**self._collected.head("chat.completion.chunk"), "choices": [choice], **self._beside, **place}
        return f"data: {json_line(body)}\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which a request wants its answer. `page` is the base URL of links to passages, `footer` the
    language of a list of sources below the answer (None: no list)."""

    model: str
    page: str
    footer: Language | None
    stream: bool
    include_usage: bool
    headers: Mapping[str, str]
    ping_interval_s: float
    receive: Receive


def _ignore(whole: bool) -> None:
    """Ignore whether the answer was complete."""


async def respond(
    events: Events,
    form: Form,
    answer_id: str,
    slot: AbstractContextManager[None],
    ended: Callable[[bool], None] = _ignore,
) -> Response:
    """`slot` is held while it is read; `ended` is told whether it was read to its end without a failure."""
    collected = Collected(answer_id, form.model, form.page, form.footer)
    reading = _reading(collected, slot, ended)
    if form.stream:
        frames = _frames(events, Chunks(collected, form.include_usage), reading)
        response: Response = EventStreamResponse(frames, form.ping_interval_s)
    else:
        with reading:
            await read_whole(events, form.receive, collected.add)
        response = _whole(collected)
    response.headers.update(form.headers)
    return response


@contextmanager
def _reading(
    collected: Collected, slot: AbstractContextManager[None], ended: Callable[[bool], None]
) -> Iterator[None]:
    whole = False
    try:
        with slot:
            yield
        whole = collected.ended and collected.error is None
    finally:
        ended(whole)


async def _frames(
    events: Events, chunks: Chunks, reading: AbstractContextManager[None]
) -> AsyncGenerator[bytes, None]:
    with reading:
        async with aclosing(events):
            yield chunks.begin()
            async for batch in events:
                if frames := [frame for event in batch for frame in chunks.write(event)]:
                    yield b"".join(frames)


def _whole(collected: Collected) -> Response:
    if collected.error is None:
        body = collected.completion().model_dump_json(exclude_unset=True)
        return Response(body, media_type="application/json")
    headers = failed_turn_headers(collected.error["retryable"], collected.error.get("retry_after_s"))
    return JSONResponse({"error": collected.error}, 503, headers)
