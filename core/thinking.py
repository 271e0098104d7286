"""Split a streamed answer into thinking and content, however the stream is cut into deltas.

Tags are `<think>` and `<thinking>` and their closing forms, in any letter case, with at most four blanks
before the `>` and none elsewhere; either closing form closes either opening form. Anything else is text.

- An opening tag counts at the beginning of a line of the answer, after blanks only, outside a code fence,
  also after the answer has begun. Elsewhere (in a line, in inline code, in a fence, in thinking) it is text.
- A closing tag ends thinking wherever it stands: fences inside thinking do not matter. Outside thinking it is
  text. If no tag was ever opened and the first closing tag stands alone on its line outside a fence,
  `stray_closer` reports that this model's answers begin in thinking.
- `begins_thinking`: the text is thinking from the first character, since the prompt ended with the opening
  tag; an opening tag at the very beginning is taken for the same one.
- Thinking that is never closed is thinking to the end, and `unclosed` reports it.

Fences follow CommonMark: three or more of ` or ~ at the beginning of a line open one (no ` may follow those
of ` on that line); at least as many of the same kind alone on a line close it. Indentation is ignored, since
a list may require any; fences after a list marker or a quote mark are not recognised. Only the answer's own
text counts: thinking and its tags are not part of its lines.

Joined, the pieces and the recognised tags are the input: nothing else is dropped. LF is the only line break
(core.text.scrub).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

_BLANKS = re.compile(r"[^\S\n]*+")
_RUNS = {"`": re.compile(r"`*+"), "~": re.compile(r"~*+")}
_INFO_ENDS = {"`": re.compile(r"[`\n]"), "~": re.compile(r"\n")}
# The next line that begins with a fence or, outside one, with what may be a tag of thinking or of a call
# (core.prompt.tool_text). The regex skips all other lines, so that a text of nothing but line breaks takes no
# longer than others.
_LINE_IN_FENCE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z)")
_LINE_OUTSIDE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z|(?ai:</?think)|<tool_call>)")


class _Place(Enum):
    BEGINNING = auto()  # only blanks so far
    RUN = auto()  # in the run of ` or ~ that begins a line
    INFO = auto()  # after a run that may open a fence
    TAIL = auto()  # after a run that may close the fence
    LONE = auto()  # after a tag that begins the line
    WITHIN = auto()  # the rest of this line does not matter


# Enum members are slow to look up, and this runs for each line of each answer.
_BEGINNING, _RUN, _INFO, _TAIL, _LONE, _WITHIN = _Place


class Lines:
    """Tracks where the answer's text stands: at the beginning of a line, in a code fence, anywhere else.
    Takes pieces of any size, and looks at each character a bounded number of times."""

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
        """True if nothing matters before the next line break."""
        return self._place is _WITHIN

    def next_tag(self, text: str, at: int, end: int) -> int:
        """Advance from `at` to the next < that begins a line outside a fence; return its index, or `end`."""
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
        """Take what begins where `next_tag` stopped as text. `lone`: see whether its line ends after it."""
        self._place = _LONE if lone else _WITHIN

    def finish(self) -> None:
        """End the last line at the end of the text."""
        self.stood_alone = self.stood_alone or self._place is _LONE

    def _to_line(self, text: str, at: int, end: int) -> int:
        match = (_LINE_IN_FENCE if self._fence else _LINE_OUTSIDE).search(text, at, end)
        if match is None:
            return end
        self._place = _BEGINNING
        return match.end()

    def _begin(self, char: str) -> None:
        """Handle the first non-blank character of a line."""
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
        """Skip blanks, the only characters that may follow on the line."""
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
    """Takes deltas, gives pieces; holds back fewer characters than `LONGEST_TAG`. Linear in the input."""

    def __init__(self, begins_thinking: bool = False) -> None:
        self._pending = ""
        self._inside = begins_thinking
        self._assumed = begins_thinking
        self._at_beginning = begins_thinking  # a redundant opening tag may follow
        self._watching = not begins_thinking  # for a closing tag that nothing opened
        self._lines = Lines()
        self._quiet = False  # a delta without line break or < needs no parsing

    def passes(self, delta: str) -> bool:
        """True if all of `delta` is of the kind that `unclosed` gives and need not be fed: most tokens."""
        return self._quiet and "<" not in delta and (self._inside or "\n" not in delta)

    def feed(self, delta: str) -> Sequence[Piece]:
        """Return the pieces that `delta` completes."""
        if self.passes(delta):
            return (Piece(delta, self._inside),) if delta else ()
        text = self._pending + delta
        end = _cut_off_tag(text)
        pieces = self._split(text, end)
        self._pending = text[end:]
        self._quiet = not self._pending and not self._at_beginning and (self._inside or self._lines.within)
        return pieces

    def flush(self) -> Sequence[Piece]:
        """Return what was held back, at the end of the stream."""
        rest, self._pending = self._pending, ""
        if rest and not self._inside:
            self._lines.pass_tag(lone=False)
        self._lines.finish()
        return (Piece(rest, self._inside),) if rest else ()

    def answer_now(self) -> Sequence[Piece]:
        """End assumed thinking, since real thinking came separately: the text is the answer from here.

        Returns what was held back; does nothing if thinking was not assumed.
        """
        if not self.assumed:
            return ()
        rest, self._pending = self._pending, ""
        self._inside = self._assumed = self._at_beginning = self._quiet = False
        return (Piece(rest, thinking=True),) if rest else ()

    @property
    def unclosed(self) -> bool:
        """True if the stream so far ends inside thinking."""
        return self._inside

    @property
    def assumed(self) -> bool:
        """True while nothing but `begins_thinking` says that this is thinking."""
        return self._assumed

    @property
    def stray_closer(self) -> bool:
        """True if the answer seems to begin in thinking, without an opening tag or a setting that says so."""
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
        """Return where thinking, continued at `at`, stops, and where the text continues after the tag."""
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
        """Return where content, continued at `at`, stops, and where the text continues after the tag."""
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
    """Return the answer in a complete text, stripped.

    `guessed`: it is not certain how the text begins, so the text itself decides. If it should begin in
    thinking but no tag says so, it is the answer, unless a limit `cut` it; if `stray_closer` is set, it does
    begin in thinking without an opening tag, since nothing of it was sent yet.
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
    """Return where a tag begins that the end of `text` may cut off, or else the length of `text`."""
    size = len(text)
    at = text.rfind("<", max(0, size - len(LONGEST_TAG) + 1))
    if at < 0:
        return size
    tail = text[at:]
    name = tail.rstrip(" \t")
    blanks = len(tail) - len(name)
    possible = name.isascii() and name.lower() in (_WHOLE_NAMES if blanks else _CUT_OFF) and blanks <= 4
    return at if possible else size
