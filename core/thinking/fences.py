"""Where the answer's text stands in its lines: at the beginning of one, in a code fence, anywhere else.

A fence as in CommonMark: three or more of ` or ~ at the beginning of a line open it (no ` may follow those
of ` on that line), at least as many of the same kind alone on a line close it. Indentation does not matter
here, since a list may ask for any; a fence after a list marker or a quote mark is not seen.
Only the answer's own text counts: thinking and its tags are no part of its lines.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_BLANKS = re.compile(r"[^\S\n]*+")
_RUNS = {"`": re.compile(r"`*+"), "~": re.compile(r"~*+")}
_INFO_ENDS = {"`": re.compile(r"[`\n]"), "~": re.compile(r"\n")}
# The next line that begins with a fence or, outside of one, with what may be a tag. Any other line costs
# no step of ours, so that a text of nothing but line breaks takes no longer than others.
_LINE_IN_FENCE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z)")
_LINE_OUTSIDE = re.compile(r"\n[^\S\n]*+(?=[`~]{3}|[`~]{0,2}\Z|(?ai:</?think))")


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
    """Told the text piece by piece, in any pieces; each character is looked at a bounded number of times."""

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
