"""The model's answer so far: scrubbed, split into thinking and content, trimmed, with token counts; and its
citations, whose key passages are chosen while the model writes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

import structlog

from api.turn.stream import ContentEvent, ThinkEvent
from core.citing.citations import Mark, cite, claims, find_marks, mark_cited
from core.citing.passages import KeyPassages, Span
from core.knowledge import Candidate, Citation
from core.llm_wrapper import LLMDelta
from core.prompt.budget import estimate_tokens
from core.prompt.messages import ToolCall
from core.prompt.tool_text import CallReader
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms
from core.text import TextScrubber
from core.thinking import Piece, ThinkSplitter
from services.models.text_filters import AnswerFilters

TextEvents = list[ContentEvent | ThinkEvent]

LENGTH = "length"
STEP_GAP = "\n\n"
SAVE_EVERY_S = 1.0
READ_FACTOR = 2  # limit on characters read, as a multiple of `max_chars`


class TrimmedText:
    """Text in pieces, without leading or trailing white space: spaces are held until a word follows."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._waiting: list[str] = []

    def __str__(self) -> str:
        return "".join(self._parts)

    def add(self, piece: str) -> str:
        """Return what may be sent now and has not been sent yet."""
        if not self._parts:
            piece = piece.lstrip()
        trimmed = piece.rstrip()
        space = len(piece) - len(trimmed)
        if trimmed:
            if self._waiting:
                trimmed = "".join([*self._waiting, trimmed])
                self._waiting.clear()
            self._parts.append(trimmed)
        if space:
            self._waiting.append(piece[-space:])
        return trimmed

    def end_paragraph(self) -> None:
        """Separate whatever comes next by an empty line."""
        if self._parts:
            self._waiting = [STEP_GAP]

    def take_back(self, size: int) -> str:
        """Remove the last `size` characters of the text that `add` returned last; return the rest of it."""
        last = self._parts.pop()
        last = last[: len(last) - size]
        if last:
            self._parts.append(last)
        return last


class Answer:
    """`filters` makes the filter applied to the content, and only to it, before it is stored or sent.

    `begins_thinking`: text is thinking until it says otherwise. If that was only `guessed`, an answer that
    ended normally and never said otherwise was not thinking: it is sent again and stored as content. One that
    hit a limit remains thinking, as its closing tag may not have arrived yet. `max_chars` cuts thinking and
    content together; nothing is read after the cut. Without `shows_thinking`, thinking is separated but
    neither sent nor stored.
    """

    def __init__(
        self,
        filters: AnswerFilters | None = None,
        *,
        begins_thinking: bool = False,
        guessed: bool = False,
        max_chars: int = sys.maxsize,
        shows_thinking: bool = True,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._content = TrimmedText()
        self._thinking = TrimmedText()
        self._filters = filters
        self._step_begins = (0, 0)  # offsets in content and thinking
        self._earlier_tokens: tuple[int | None, int] = (0, 0)  # prompt and completion, of earlier steps
        self.calls: tuple[ToolCall, ...] = ()
        self._reads_calls = False
        self._reader: CallReader | None = None
        self._splitter = ThinkSplitter(begins_thinking)
        self._text_scrubber = TextScrubber()
        self._thinking_scrubber = TextScrubber()
        self._filter = filters() if filters else None
        self._begins_thinking = begins_thinking
        self._guessed = guessed
        self._guessed_wrong = False
        self._max_chars = self._room = max_chars
        self._unread = READ_FACTOR * max_chars
        self._full = False
        self._shows_thinking = shows_thinking
        self._thinking_apart = False
        self._timer = timer
        self._thought_s: tuple[float, float] | None = None  # when the first and last pieces arrived
        self._reported_completion: int | None = None
        self._reported_prompt: int | None = None
        self.finish_reason: str | None = None

    @property
    def content(self) -> str:
        return str(self._content)

    @property
    def thinking(self) -> str:
        return str(self._thinking) if self._shows_thinking else ""

    @property
    def thinking_ms(self) -> float | None:
        """The time from the first to the last piece of thinking; None without thinking."""
        if self._thought_s is None or not self.thinking:
            return None
        first, last = self._thought_s
        return round((last - first) * 1000, 1)

    @property
    def completion_tokens(self) -> int:
        """All steps together, as reported by the provider, else estimated."""
        content, thinking = self._step_begins
        own = self._reported_completion
        if own is None:
            own = sum(map(estimate_tokens, (self.content[content:], str(self._thinking)[thinking:])))
        return self._earlier_tokens[1] + own

    @property
    def prompt_tokens(self) -> int | None:
        """All steps together, as reported; None if a step reported none."""
        earlier, own = self._earlier_tokens[0], self._reported_prompt
        return None if earlier is None or own is None else earlier + own

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached and no more is read."""
        return self._full

    def read_calls(self) -> None:
        """Extract tool calls from the text, for a model that writes them there."""
        self._reads_calls, self._reader = True, CallReader()

    def next_step(self) -> None:
        """The model continues after tool calls, in a new paragraph that may begin with thinking."""
        self._earlier_tokens = (self.prompt_tokens, self.completion_tokens)
        self._reported_completion = self._reported_prompt = self.finish_reason = None
        self._step_begins = (len(self.content), len(str(self._thinking)))
        self.calls = ()
        self._splitter = ThinkSplitter(self._begins_thinking)
        self._filter = self._filters() if self._filters else None
        self._reader = CallReader() if self._reads_calls else None
        for text in (self._content, self._thinking):
            text.end_paragraph()

    @property
    def showed_thinking_first(self) -> bool | None:
        """What the finished answer revealed about the model; None: nothing new.

        True: it closed thinking that was never opened, so answers begin in thinking. False: they do not, as
        this one ended normally and was content from the start, or was wrongly taken for thinking.
        """
        if self._splitter.stray_closer and not self._thinking_apart:
            return True
        plain = not self._begins_thinking and self.content and self.finish_reason != LENGTH
        return False if plain or self._guessed_wrong else None

    async def events(self, deltas: AsyncGenerator[LLMDelta, None]) -> AsyncGenerator[TextEvents, None]:
        """Yield the events to send for each delta that produces any; never an empty list.

        The model's connection is closed with this generator, or once `max_chars` have been sent.
        """
        async with aclosing(deltas):
            async for delta in deltas:
                events = self._feed(delta)
                if events:
                    yield events
                if self._full or (self._reader and self._reader.ended):
                    break
        if rest := self._rest():
            yield rest

    def whole(self, text: str) -> TextEvents:
        """Return the event of a text of our own: it is all content, and bypasses the filter."""
        text = self._content.add(text)
        return [ContentEvent(text)] if text else []

    def _feed(self, delta: LLMDelta) -> TextEvents:
        """Runs for every token: allocates only what is sent, unless the delta is a special one."""
        text = self._text_scrubber.feed(delta.text)
        self._unread -= len(text)
        is_special = delta.finish_reason or delta.completion_tokens or delta.prompt_tokens or delta.tool_calls
        if is_special or delta.thinking or self._unread < 0:
            return self._feed_special(delta, text)
        splitter = self._splitter
        if not splitter.passes(text):
            return self._events_for(splitter.feed(text))
        event = self._event(text, splitter.unclosed)
        return [event] if event else []

    def _feed_special(self, delta: LLMDelta, text: str) -> TextEvents:
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.calls += delta.tool_calls
        if delta.prompt_tokens is not None:
            self._reported_prompt = delta.prompt_tokens
        if delta.completion_tokens is not None:
            self._reported_completion = delta.completion_tokens
        self._unread -= len(delta.thinking)
        if self._unread < 0:
            self._mark_full()
        apart = self._feed_thinking(delta.thinking) if delta.thinking else []
        return apart + self._events_for(self._splitter.feed(text))

    def _feed_thinking(self, thinking: str) -> TextEvents:
        """Thinking from the provider's own field; then the text is not thinking, whatever was assumed."""
        self._thinking_apart = True
        before = self._splitter.answer_now()
        return self._events_for([*before, Piece(self._thinking_scrubber.feed(thinking), thinking=True)])

    def _events_for(self, pieces: Iterable[Piece]) -> TextEvents:
        return [event for piece in pieces if (event := self._event(piece.text, piece.thinking))]

    def _event(self, text: str, thinking: bool) -> ContentEvent | ThinkEvent | None:
        """Return the event for a piece, if any; trailing white space waits for more."""
        if self._reader is not None and not thinking:
            text = self._reader.feed(text)
        if self._filter is not None and not thinking:
            text = self._filter.feed(text)
        texts = self._thinking if thinking else self._content
        added = texts.add(text)
        self._room -= len(added)
        if self._room < 0:
            added = self._cut(texts)
        if not added:
            return None
        if not thinking:
            return ContentEvent(added)
        if not self._shows_thinking:
            return None
        now = self._timer()
        self._thought_s = (self._thought_s[0] if self._thought_s else now, now)
        return ThinkEvent(added)

    def _cut(self, texts: TrimmedText) -> str:
        """Return the part of the last added text that fits; the answer is then full."""
        cut = texts.take_back(-self._room)
        self._room = 0
        self._mark_full()
        return cut

    def _mark_full(self) -> None:
        self._full = True
        self.finish_reason = LENGTH

    def _rest(self) -> TextEvents:
        """Return what the splitter and filters held back, at the end of the stream."""
        events = self._events_for(
            [
                Piece(self._thinking_scrubber.flush(), thinking=True),
                *self._splitter.feed(self._text_scrubber.flush()),
                *self._splitter.flush(),
            ]
        )
        if self._guessed and self._splitter.assumed and self.finish_reason != LENGTH:
            events += self._answer_after_all()
        return events + self._flushed()

    def _flushed(self) -> TextEvents:
        """Flush the call reader and the filter; the filter's remainder is not filtered again."""
        events: TextEvents = []
        reader, self._reader = self._reader, None
        if reader is not None:
            events += self._events_for([Piece(reader.flush(), thinking=False)])
            self.calls += tuple(reader.calls)
        last, self._filter = self._filter, None
        return events + (self._events_for([Piece(last.flush(), thinking=False)]) if last is not None else [])

    def _answer_after_all(self) -> TextEvents:
        """Turn the thinking into content, once."""
        text = str(self._thinking)
        if not text:
            return []
        self._guessed_wrong = True
        self._thinking = TrimmedText()
        self._room = self._max_chars
        return self._events_for([Piece(text, thinking=False)])


log = structlog.get_logger()
T = TypeVar("T")

LARGE_CHARS = 8_000  # longer texts take over a millisecond and go to a thread


class AnswerSaver:
    """Writes a growing answer once a second, if it has grown since the last write.

    `write` takes the content and thinking so far. Its failures are only logged: the whole turn is stored at
    the end, which reports any failure.
    """

    def __init__(self, answer: Answer, write: Callable[[str, str], Awaitable[None]]) -> None:
        self._answer = answer
        self._write = write
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Return once no write is under way: a late one would undo the final one."""
        self._ended.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        written = ("", "")
        while not await self._ended_within(SAVE_EVERY_S):
            so_far = (self._answer.content, self._answer.thinking)
            if so_far == written:
                continue
            try:
                await self._write(*so_far)
            except Exception:  # whatever happens, the turn continues
                log.exception("answer_not_saved_meanwhile")
            written = so_far

    async def _ended_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Citing:
    """`expect` what will be cited, `begin` after the first token is sent, `finish` with the answer."""

    def __init__(self) -> None:
        self._query: Query | None = None
        self._candidates: tuple[Candidate, ...] = ()
        self._passages: KeyPassages | None = None
        self._spans: list[Span | None] = []
        self._reading: asyncio.Task[None] | None = None

    def expect(self, query: Query | None, candidates: tuple[Candidate, ...], rewritten: str = "") -> None:
        """`rewritten` is the question as rewritten by a model, or ""."""
        if query is not None and rewritten:
            form = QueryForm(rewritten, [], SparseTerms([], []))
            query = replace(query, forms=(*query.forms, form))
        self._query = query
        self._candidates = candidates

    def add(self, query: Query, candidates: Sequence[Candidate]) -> list[int]:
        """Add sources found by another query; return the numbers of all `candidates`. Existing sources keep
        their numbers."""
        numbers = {each.chunk.chunk_id: at for at, each in enumerate(self._candidates, start=1)}
        fresh = [each for each in candidates if each.chunk.chunk_id not in numbers]
        for each in fresh:
            numbers[each.chunk.chunk_id] = len(numbers) + 1
        if fresh:
            self._restart()
            rewritten = query.question if self._query is not None else ""
            self.expect(self._query or query, (*self._candidates, *fresh), rewritten)
        return [numbers[each.chunk.chunk_id] for each in candidates]

    def _restart(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self._passages = None
        self._spans = []

    def begin(self) -> None:
        """Repeated calls cost nothing."""
        if self._reading is None and self._candidates:
            self._reading = asyncio.create_task(self._read(), name="key passages")

    async def finish(self, answer: str) -> tuple[Citation, ...]:
        """Return citations numbered as in the prompt, those used by the answer marked.

        If choosing key passages fails, there is still a citation for each candidate.
        """
        if not self._candidates:
            return ()
        self.begin()
        marks = await _step(len(answer), self._marks, answer)
        refining = asyncio.create_task(self._refine(claims(answer, marks)))
        await asyncio.wait([refining])
        if refining.exception() is not None:
            log.error("key_passages_failed", exc_info=refining.exception())
        return mark_cited(cite(self._candidates, self._spans), marks)

    def _marks(self, answer: str) -> list[Mark]:
        return list(find_marks(answer, len(self._candidates)))

    async def _read(self) -> None:
        """Choose spans by the question's words alone; between steps the event loop gets a turn."""
        if self._query is None:
            return
        passages = KeyPassages(self._query)
        texts = [candidate.chunk.text for candidate in self._candidates]
        for text in texts:
            await _step(len(text), passages.read, text)
        spans = [await _step(len(text), passages.span, number) for number, text in enumerate(texts)]
        self._passages, self._spans = passages, list(spans)

    async def _refine(self, claimed: dict[int, str]) -> None:
        """For sources that the answer cites, choose spans by the answer's claims as well."""
        if self._reading is not None:
            await self._reading
        if self._passages is None:
            return
        for index, claim in claimed.items():
            number = index - 1
            size = len(self._candidates[number].chunk.text)
            self._spans[number] = await _step(size, self._passages.span, number, claim)


async def _step(size: int, work: Callable[..., T], *arguments: object) -> T:
    """Do one step of work, then yield to the event loop; use a thread when `size` characters take long."""
    if size > LARGE_CHARS:
        return await asyncio.to_thread(work, *arguments)
    done = work(*arguments)
    await asyncio.sleep(0)
    return done
