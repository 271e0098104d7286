"""Split a streamed answer into thinking and content, whatever the split of the stream.

Tags are `<think>` and `<thinking>` and their closing forms, in any letter case, with at most four blanks
before the `>` and none elsewhere; either closing form closes either opening form. What is no tag is text.

- An opening tag counts at the beginning of a line of the answer, only blanks before it, outside a code
  fence: at the very beginning, and again after the answer has begun. Anywhere else (in
  a line, in inline code, in a fence, in thinking) it is text.
- A closing tag ends thinking, wherever it stands: fences inside thinking do not matter. Where nothing was
  opened it is text. When no tag was ever opened and the first such closing tag stands alone on its line
  outside a fence, `stray_closer` reports that this model's answers begin in thinking.
- `begins_thinking`: thinking from the first character, since the prompt ended with the opening tag; one at
  the very beginning is taken for the same.
- Thinking that is never closed is thinking to the end, and `unclosed` says so.

A fence as in CommonMark: three or more of ` or ~ at the beginning of a line open it (no ` may follow those
of ` on that line), at least as many of the same kind alone on a line close it. Indentation does not matter
here, since a list may ask for any; a fence after a list marker or a quote mark is not seen. Only the answer's
own text counts: thinking and its tags are no part of its lines.

The joined pieces and the recognised tags are the input. LF is the only line break (core.text.scrub).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

_BLANKS = re.compile(r"[^\S\n]*+")
_RUNS = {"`": re.compile(r"`*+"), "~": re.compile(r"~*+")}
_INFO_ENDS = {"`": re.compile(r"[`\n]"), "~": re.compile(r"\n")}
# The next line that begins with a fence or, outside of one, with what may be a tag, of thinking or of a call
# (core.prompt.tool_text). Any other line costs no step of ours, so that a text of nothing but line breaks
# takes no longer than others.
_LINE_IN_FENCE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z)")
_LINE_OUTSIDE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z|(?ai:</?think)|<tool_call>)")


class _Place(Enum):
    BEGINNING = auto()  # only blanks so far
    RUN = auto()  # in the ` or ~ that a line begins with
    INFO = auto()  # after those that may open a fence
    TAIL = auto()  # after those that may close the fence
    LONE = auto()  # after a tag that the line begins with
    WITHIN = auto()  # nothing that follows on this line matters


# An enumeration's members are slow to look up, and this runs for each line of each answer.
_BEGINNING, _RUN, _INFO, _TAIL, _LONE, _WITHIN = _Place


class Lines:
    """Where the answer's text stands in its lines: at the beginning of one, in a code fence, anywhere else.

    Fed the text piece by piece, in any pieces; each character is looked at a bounded number of times."""

    __slots__ = ("_count", "_fence", "_fence_count", "_kind", "_place", "stood_alone")

    def __init__(self) -> None:
        self._place = _BEGINNING
        self._kind = ""
        self._count = 0
        self._fence = ""
        self._fence_count = 0
        self.stood_alone = False

    @property
    def within(self) -> bool:
        """True when nothing matters before the next line break."""
        return self._place is _WITHIN

    def next_tag(self, text: str, at: int, end: int) -> int:
        """Go on from `at` to the first < that begins a line outside a fence; its place, or `end`."""
        while at < end:
            place = self._place
            if place is _WITHIN:
                at = self._to_line(text, at, end)
            elif place is _BEGINNING:
                at = _blanks_end(text, at, end)
                if at < end and text[at] == "<" and not self._fence:
                    return at
                if at < end:
                    self._begin(text[at])
            elif place is _RUN:
                at = self._run(text, at, end)
            elif place is _INFO:
                at = self._info(text, at, end)
            else:
                at = self._alone(text, at, end)
        return end

    def pass_tag(self, *, lone: bool) -> None:
        """What begins where `next_tag` stopped is text. `lone`: see whether it is alone on its line."""
        self._place = _LONE if lone else _WITHIN

    def finish(self) -> None:
        """The text has ended, and so has its last line."""
        self.stood_alone = self.stood_alone or self._place is _LONE

    def _to_line(self, text: str, at: int, end: int) -> int:
        match = (_LINE_IN_FENCE if self._fence else _LINE_OUTSIDE).search(text, at, end)
        if match is None:
            return end
        self._place = _BEGINNING
        return match.end()

    def _begin(self, char: str) -> None:
        """The first character of a line that is no blank."""
        self._place = _RUN if char in _RUNS else _WITHIN
        self._kind, self._count = char, 0

    def _run(self, text: str, at: int, end: int) -> int:
        stop = _matched_end(_RUNS[self._kind], text, at, end)
        self._count += stop - at
        if stop < end:
            if not self._fence:
                self._place = _INFO if self._count >= 3 else _WITHIN
            else:
                closes = self._kind == self._fence and self._count >= self._fence_count
                self._place = _TAIL if closes else _WITHIN
        return stop

    def _info(self, text: str, at: int, end: int) -> int:
        match = _INFO_ENDS[self._kind].search(text, at, end)
        if match is None:
            return end
        self._place = _WITHIN
        if match.group() == "\n":
            self._fence, self._fence_count = self._kind, self._count
        return match.start()

    def _alone(self, text: str, at: int, end: int) -> int:
        """Only blanks may follow on the line."""
        at = _blanks_end(text, at, end)
        if at < end:
            ended = text[at] == "\n"
            if self._place is _LONE:
                self.stood_alone = self.stood_alone or ended
            elif ended:
                self._fence = ""
            self._place = _WITHIN
        return at


def _blanks_end(text: str, at: int, end: int) -> int:
    return at if text[at] in "\n`~<" else _matched_end(_BLANKS, text, at, end)


def _matched_end(pattern: re.Pattern[str], text: str, at: int, end: int) -> int:
    match = pattern.match(text, at, end)
    return match.end() if match else at


LONGEST_TAG = "</thinking    >"
_OPEN = re.compile(r"<think(?:ing)?[ \t]{0,4}>", re.IGNORECASE | re.ASCII)
_CLOSE = re.compile(r"</think(?:ing)?[ \t]{0,4}>", re.IGNORECASE | re.ASCII)
_CUT_OFF = frozenset(tag[:size] for tag in ("<thinking", "</thinking") for size in range(1, len(tag) + 1))
_WHOLE_NAMES = frozenset({"<think", "<thinking", "</think", "</thinking"})
_SPACE = re.compile(r"\s*+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A non-empty stretch of one kind."""

    text: str
    thinking: bool


class ThinkSplitter:
    """Feed deltas, get pieces; less than `LONGEST_TAG` is held back. Linear in the input."""

    def __init__(self, begins_thinking: bool = False) -> None:
        self._pending = ""
        self._inside = begins_thinking
        self._assumed = begins_thinking
        self._at_beginning = begins_thinking  # an opening tag may follow that says what is known
        self._watching = not begins_thinking  # for a closing tag that nothing opened
        self._lines = Lines()
        self._quiet = False  # what has no line break and no < in it needs no look

    def passes(self, delta: str) -> bool:
        """True when all of `delta` is of the kind that `unclosed` states and need not be fed: most tokens."""
        return self._quiet and "<" not in delta and (self._inside or "\n" not in delta)

    def feed(self, delta: str) -> Sequence[Piece]:
        """The pieces that `delta` completes."""
        if self.passes(delta):
            return (Piece(delta, self._inside),) if delta else ()
        text = self._pending + delta
        end = _cut_off_tag(text)
        pieces = self._split(text, end)
        self._pending = text[end:]
        self._quiet = not self._pending and not self._at_beginning and (self._inside or self._lines.within)
        return pieces

    def flush(self) -> Sequence[Piece]:
        """What was held back, at the end of the stream."""
        rest, self._pending = self._pending, ""
        if rest and not self._inside:
            self._lines.pass_tag(lone=False)
        self._lines.finish()
        return (Piece(rest, self._inside),) if rest else ()

    def answer_now(self) -> Sequence[Piece]:
        """Thinking came apart from the text: what was assumed to begin in thinking is the answer from here.

        Gives what was held back; nothing happens when thinking was not assumed.
        """
        if not self.assumed:
            return ()
        rest, self._pending = self._pending, ""
        self._inside = self._assumed = self._at_beginning = self._quiet = False
        return (Piece(rest, thinking=True),) if rest else ()

    @property
    def unclosed(self) -> bool:
        """True when the stream has so far ended inside thinking."""
        return self._inside

    @property
    def assumed(self) -> bool:
        """True while nothing but `begins_thinking` says that this is thinking."""
        return self._assumed

    @property
    def stray_closer(self) -> bool:
        """True when the answer seems to begin in thinking without an opening tag or a setting for it."""
        return self._lines.stood_alone

    def _split(self, text: str, end: int) -> list[Piece]:
        pieces: list[Piece] = []
        at = 0
        stray = _CLOSE.search(text, 0, end) if self._watching else None
        while at < end:
            thinking = self._inside
            if thinking:
                stop, after = self._thinking(text, at, end)
            else:
                stop, after = self._content(text, at, end, stray.start() if stray else -1)
            if stop > at:
                pieces.append(Piece(text[at:stop], thinking))
            at = after
        self._watching = self._watching and stray is None
        return pieces

    def _thinking(self, text: str, at: int, end: int) -> tuple[int, int]:
        """Where thinking that goes on from `at` stops, and where the text goes on after the tag there."""
        if self._at_beginning:
            opening = self._repeated_opening(text, at, end)
            if opening is not None:
                return opening
        closing = _CLOSE.search(text, at, end)
        if closing is None:
            return end, end
        self._inside = self._assumed = False
        return closing.span()

    def _repeated_opening(self, text: str, at: int, end: int) -> tuple[int, int] | None:
        space = _SPACE.match(text, at, end)
        begin = space.end() if space else at
        if begin == end:
            return end, end
        self._at_beginning = False
        opening = _OPEN.match(text, begin, end)
        if opening is None:
            return None
        self._assumed = False
        return opening.span()

    def _content(self, text: str, at: int, end: int, stray: int) -> tuple[int, int]:
        """Where content that goes on from `at` stops, and where the text goes on after the tag there."""
        while True:
            at = self._lines.next_tag(text, at, end)
            if at == end:
                return end, end
            opening = _OPEN.match(text, at, end)
            if opening is not None:
                self._inside = True
                return opening.span()
            closing = _CLOSE.match(text, at, end)
            self._lines.pass_tag(lone=self._watching and at == stray)
            at = closing.end() if closing else at + 1


def without_thinking(
    text: str, begins_thinking: bool = False, *, guessed: bool = False, cut: bool = False
) -> str:
    """A whole text at once, read as the answer it is; trimmed.

    `guessed`: how it begins is not known for sure, so the text itself has the last word. It is an answer
    although it should begin in thinking when no tag says so, unless a limit `cut` it; it does begin in
    thinking without an opening tag when `stray_closer` is set, since nothing of it was sent yet.
    """
    splitter = ThinkSplitter(begins_thinking)
    answer = _answer_of(splitter, text)
    if not guessed:
        return answer
    if splitter.assumed:
        return "" if cut else text.strip()
    return _answer_of(ThinkSplitter(begins_thinking=True), text) if splitter.stray_closer else answer


def _answer_of(splitter: ThinkSplitter, text: str) -> str:
    pieces = [*splitter.feed(text), *splitter.flush()]
    return "".join(piece.text for piece in pieces if not piece.thinking).strip()


def _cut_off_tag(text: str) -> int:
    """Where a tag begins that the end of `text` may have cut off; the end of `text` when there is none."""
    size = len(text)
    at = text.rfind("<", max(0, size - len(LONGEST_TAG) + 1))
    if at < 0:
        return size
    tail = text[at:]
    name = tail.rstrip(" \t")
    blanks = len(tail) - len(name)
    possible = name.isascii() and name.lower() in (_WHOLE_NAMES if blanks else _CUT_OFF) and blanks <= 4
    return at if possible else size
