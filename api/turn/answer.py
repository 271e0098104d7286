"""What the model has said so far: scrubbed, split into thinking and content, trimmed, with its counts; and
the citations of the answer: their key passages are chosen while the model writes."""

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
SILENT_CHARS = 2  # what is read at most, as a multiple of what is kept at most


class TrimmedText:
    """Text in pieces, without white space at its beginning and end: what follows a word waits for more."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._waiting: list[str] = []

    def __str__(self) -> str:
        return "".join(self._parts)

    def add(self, piece: str) -> str:
        """What may be sent of the text so far, beyond what was."""
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
        """However it ended, what comes next begins behind an empty line."""
        if self._parts:
            self._waiting = [STEP_GAP]

    def take_back(self, size: int) -> str:
        """What is left of the text that `add` gave last, without its last `size` characters."""
        last = self._parts.pop()
        last = last[: len(last) - size]
        if last:
            self._parts.append(last)
        return last


class Answer:
    """`filters` makes the filter that the content goes through, and only it, before it is kept or sent.

    `begins_thinking`: the text is thinking until it says otherwise. When that was only `guessed`, an answer
    that ended by itself and never said otherwise was no thinking: it is then sent again as content, and kept
    as such. One that met a limit stays thinking: its closing tag may not have come yet.
    `max_chars`: thinking and content together are cut there, and no more is read. Without `shows_thinking` it
    is told apart, and neither sent nor kept.
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
        self._step_begins = (0, 0)  # in content and thinking
        self._earlier_tokens: tuple[int | None, int] = (0, 0)  # of the steps before: prompt, completion
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
        self._unread = SILENT_CHARS * max_chars
        self._full = False
        self._shows_thinking = shows_thinking
        self._thinking_apart = False
        self._timer = timer
        self._thought_s: tuple[float, float] | None = None  # when the first and the last piece came
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
        """From the first to the last piece of thinking; None when there was none."""
        if self._thought_s is None or not self.thinking:
            return None
        first, last = self._thought_s
        return round((last - first) * 1000, 1)

    @property
    def completion_tokens(self) -> int:
        """As reported by the provider, else estimated; of all steps together."""
        content, thinking = self._step_begins
        own = self._reported_completion
        if own is None:
            own = sum(map(estimate_tokens, (self.content[content:], str(self._thinking)[thinking:])))
        return self._earlier_tokens[1] + own

    @property
    def prompt_tokens(self) -> int | None:
        """As reported, of all steps together; None when one of them was not."""
        earlier, own = self._earlier_tokens[0], self._reported_prompt
        return None if earlier is None or own is None else earlier + own

    @property
    def is_full(self) -> bool:
        """No more is read of it."""
        return self._full

    def read_calls(self) -> None:
        """The model writes its calls of tools into the text: they are taken out of it."""
        self._reads_calls, self._reader = True, CallReader()

    def next_step(self) -> None:
        """The model goes on behind calls of tools: as a paragraph of its own, which may begin in thinking."""
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
        """What the answer, once at its end, showed of the model; None: nothing new.

        True: it ended a thinking that nothing began, so answers begin in thinking. False: they do not, as
        this one ended by itself and was content from its beginning, or was wrongly taken for thinking.
        """
        if self._splitter.stray_closer and not self._thinking_apart:
            return True
        plain = not self._begins_thinking and self.content and self.finish_reason != LENGTH
        return False if plain or self._guessed_wrong else None

    async def events(self, deltas: AsyncGenerator[LLMDelta, None]) -> AsyncGenerator[TextEvents, None]:
        """What is to be sent on, for each delta that says something; never an empty list.

        The model's connection is closed when this generator is, and when `max_chars` have been sent.
        """
        async with aclosing(deltas):
            async for delta in deltas:
                events = self._hear(delta)
                if events:
                    yield events
                if self._full or (self._reader and self._reader.ended):
                    break
        if rest := self._rest():
            yield rest

    def whole(self, text: str) -> TextEvents:
        """The event of a text of our own: all of it is content, and no filter is asked."""
        text = self._content.add(text)
        return [ContentEvent(text)] if text else []

    def _hear(self, delta: LLMDelta) -> TextEvents:
        """Runs for every token: nothing is made here that is not sent, unless the delta is a special one."""
        text = self._text_scrubber.feed(delta.text)
        self._unread -= len(text)
        is_special = delta.finish_reason or delta.completion_tokens or delta.prompt_tokens or delta.tool_calls
        if is_special or delta.thinking or self._unread < 0:
            return self._hear_special(delta, text)
        splitter = self._splitter
        if not splitter.passes(text):
            return self._keep(splitter.feed(text))
        event = self._event(text, splitter.unclosed)
        return [event] if event else []

    def _hear_special(self, delta: LLMDelta, text: str) -> TextEvents:
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.calls += delta.tool_calls
        if delta.prompt_tokens is not None:
            self._reported_prompt = delta.prompt_tokens
        if delta.completion_tokens is not None:
            self._reported_completion = delta.completion_tokens
        self._unread -= len(delta.thinking)
        if self._unread < 0:
            self._fill()
        apart = self._hear_thinking(delta.thinking) if delta.thinking else []
        return apart + self._keep(self._splitter.feed(text))

    def _hear_thinking(self, thinking: str) -> TextEvents:
        """From the provider's own field; the text beside it is then no thinking, whatever was assumed."""
        self._thinking_apart = True
        before = self._splitter.answer_now()
        return self._keep([*before, Piece(self._thinking_scrubber.feed(thinking), thinking=True)])

    def _keep(self, pieces: Iterable[Piece]) -> TextEvents:
        return [event for piece in pieces if (event := self._event(piece.text, piece.thinking))]

    def _event(self, text: str, thinking: bool) -> ContentEvent | ThinkEvent | None:
        """What is to be sent of a piece; white space at its end waits for more."""
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
        """What fits of the text that was added last; there is room for no more."""
        cut = texts.take_back(-self._room)
        self._room = 0
        self._fill()
        return cut

    def _fill(self) -> None:
        self._full = True
        self.finish_reason = LENGTH

    def _rest(self) -> TextEvents:
        """What the splitter and the filters held back, at the end of the stream."""
        events = self._keep(
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
        """What the reader of calls and the filter held back; the filter's is unfiltered by itself."""
        events: TextEvents = []
        reader, self._reader = self._reader, None
        if reader is not None:
            events += self._keep([Piece(reader.flush(), thinking=False)])
            self.calls += tuple(reader.calls)
        last, self._filter = self._filter, None
        return events + (self._keep([Piece(last.flush(), thinking=False)]) if last is not None else [])

    def _answer_after_all(self) -> TextEvents:
        """The thinking as content, once."""
        text = str(self._thinking)
        if not text:
            return []
        self._guessed_wrong = True
        self._thinking = TrimmedText()
        self._room = self._max_chars
        return self._keep([Piece(text, thinking=False)])


log = structlog.get_logger()
T = TypeVar("T")

LARGE_CHARS = 8_000  # a text that takes more than about a millisecond goes to a thread


class AnswerSaver:
    """Has an answer that is still coming written once a second, when there is more of it than the last time.

    `write` takes the content and the thinking so far. What it cannot store is logged: the whole turn is
    stored at its end, and reports it.
    """

    def __init__(self, answer: Answer, write: Callable[[str, str], Awaitable[None]]) -> None:
        self._answer = answer
        self._write = write
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """No write is under way when this returns: a late one would undo the last."""
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
            except Exception:  # whatever it is, the turn goes on
                log.exception("answer_not_saved_meanwhile")
            written = so_far

    async def _ended_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Citing:
    """`expect` what will be cited, `begin` when the first token has been sent, `finish` with the answer."""

    def __init__(self) -> None:
        self._query: Query | None = None
        self._candidates: tuple[Candidate, ...] = ()
        self._passages: KeyPassages | None = None
        self._spans: list[Span | None] = []
        self._reading: asyncio.Task[None] | None = None

    def expect(self, query: Query | None, candidates: tuple[Candidate, ...], rewritten: str = "") -> None:
        """`rewritten` is the question as a model put it, "" when none did."""
        if query is not None and rewritten:
            form = QueryForm(rewritten, [], SparseTerms([], []))
            query = replace(query, forms=(*query.forms, form))
        self._query = query
        self._candidates = candidates

    def add(self, query: Query, candidates: Sequence[Candidate]) -> list[int]:
        """Sources beside those that are expected, of a search with another query; gives the numbers of all of
        these. What is a source already keeps its number."""
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
        """Costs nothing to be called again."""
        if self._reading is None and self._candidates:
            self._reading = asyncio.create_task(self._read(), name="key passages")

    async def finish(self, answer: str) -> tuple[Citation, ...]:
        """Numbered as in the prompt, those marked that the answer used.

        Whatever goes wrong with a key passage, there is a citation for each candidate.
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
        """By the question's words alone; between two steps whoever waits for the loop gets it."""
        if self._query is None:
            return
        passages = KeyPassages(self._query)
        texts = [candidate.chunk.text for candidate in self._candidates]
        for text in texts:
            await _step(len(text), passages.read, text)
        spans = [await _step(len(text), passages.span, number) for number, text in enumerate(texts)]
        self._passages, self._spans = passages, list(spans)

    async def _refine(self, claimed: dict[int, str]) -> None:
        """By what the answer says, too, for the sources that it names."""
        if self._reading is not None:
            await self._reading
        if self._passages is None:
            return
        for index, claim in claimed.items():
            number = index - 1
            size = len(self._candidates[number].chunk.text)
            self._spans[number] = await _step(size, self._passages.span, number, claim)


async def _step(size: int, work: Callable[..., T], *arguments: object) -> T:
    """One step of the work, then the others' turn; in a thread when `size` characters take long."""
    if size > LARGE_CHARS:
        return await asyncio.to_thread(work, *arguments)
    done = work(*arguments)
    await asyncio.sleep(0)
    return done
