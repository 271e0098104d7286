"""An answer to a client of OpenAI's API, whatever makes it: as a stream of chunks, or as one object."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass

from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from api.turn.stream import Event
from core.text import Language
from routes.errors import RETRY_AFTER_S
from routes.openai.chunks import Chunks, Collected
from routes.stream import EventStreamResponse, hear_whole

Events = AsyncGenerator[Sequence[Event], None]


@dataclass(frozen=True, slots=True)
class Form:
    """How a request wants its answer. `page` is where links to passages lead, `footer` the language of a list
    of sources below the answer (None: no list)."""

    model: str
    page: str
    footer: Language | None
    stream: bool
    include_usage: bool
    headers: Mapping[str, str]
    ping_interval_s: float
    receive: Receive


def _forget(whole: bool) -> None:
    """Whether it came to its end is nobody's business."""


async def respond(
    events: Events,
    form: Form,
    answer_id: str,
    seat: AbstractContextManager[None],
    ended: Callable[[bool], None] = _forget,
) -> Response:
    """`seat` is held while it is read; `ended` hears whether it was read to its end, and was no failure."""
    collected = Collected(answer_id, form.model, form.page, form.footer)
    reading = _reading(collected, seat, ended)
    if form.stream:
        frames = _frames(events, Chunks(collected, form.include_usage), reading)
        response: Response = EventStreamResponse(frames, form.ping_interval_s)
    else:
        with reading:
            await hear_whole(events, form.receive, collected.hear)
        response = _whole(collected)
    response.headers.update(form.headers)
    return response


@contextmanager
def _reading(
    collected: Collected, seat: AbstractContextManager[None], ended: Callable[[bool], None]
) -> Iterator[None]:
    whole = False
    try:
        with seat:
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
    headers = {"Retry-After": RETRY_AFTER_S[503]} if collected.error["retryable"] else None
    return JSONResponse({"error": collected.error}, 503, headers)
