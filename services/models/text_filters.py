"""Text filters for incoming questions and outgoing answers: a deployment's own, named by import path, and
built-in ones."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog

from core.errors import BadRequestError, StartRefusedError, WenmaiError
from core.text import TextScrubber, is_mostly_chinese, preprocess_question

log = structlog.get_logger()

QuestionFilter = Callable[[str], str]
FAILED = "A text filter of this server failed."
REASON_CHARS = 500


class AnswerFilter(Protocol):
    """Filters one answer's text, piece by piece: `feed` returns what is decided so far, `flush` the rest."""

    def feed(self, text: str) -> str: ...

    def flush(self) -> str: ...


AnswerFilters = Callable[[], AnswerFilter]
"""Makes the filter of one answer."""


class QuestionRefusedError(BadRequestError):
    """A filter of the deployment refuses this question; the message is the filter's."""

    code = "question_refused"


def load_question_filters(paths: Sequence[str], words: Path | None = None) -> QuestionFilter:
    """Return a function that applies the named ones (`package.module:function`, str → str) in order, refuses
    questions with a word of the list, and cleans the result.

    It raises QuestionRefusedError for a filter's ValueError, and WenmaiError for any other failure. Raises
    StartRefusedError if a filter cannot be imported or called with a text.
    """
    filters = [(path, _function(path)) for path in paths]
    if words:
        filters.append((str(words), partial(_refuse_blocked, load_words(words))))
    if not filters:
        return preprocess_question

    def filtered(question: str) -> str:
        for path, function in filters:
            with _guarded(path, refuses=True):
                question = _text(function(question))
        return preprocess_question(question)

    return filtered


def load_answer_filters(paths: Sequence[str], words: Path | None = None) -> AnswerFilters | None:
    """Return a factory that chains one answer's filters (`package.module:Class`) in order, and masks the
    words of the list last; None if there is neither.

    Raises StartRefusedError if a class cannot be imported, made without arguments, fed and flushed.
    """
    classes = [(path, _class(path)) for path in paths]
    if words:
        classes.append((str(words), partial(WordMask, load_words(words))))
    if not classes:
        return None
    try:
        _FilterChain(classes)
    except WenmaiError as error:
        raise StartRefusedError(f"ANSWER_FILTERS: {error} It could not be created.") from error
    return lambda: _FilterChain(classes)


@dataclass(frozen=True, slots=True)
class WordList:
    """`pattern` matches any of the words, longest first, ignoring case; Latin ones only as whole words.
    `longest` is the length of the longest word in characters."""

    pattern: re.Pattern[str]
    longest: int


def load_words(path: Path) -> WordList | None:
    """Load a UTF-8 file with a word or phrase per line, ignoring empty lines and lines that begin with #.
    Returns None if there are no words. Raises StartRefusedError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StartRefusedError(f"BLOCKED_WORDS: {path} cannot be read as UTF-8 text: {error}") from error
    words = {word for line in lines if (word := line.strip()) and not word.startswith("#")}
    if not words:
        return None
    longest_first = sorted(words, key=len, reverse=True)
    return WordList(re.compile("|".join(map(_whole_word, longest_first)), re.I), len(longest_first[0]))


_LATIN = "[A-Za-z0-9_]"


def _whole_word(word: str) -> str:
    before = f"(?<!{_LATIN})" if re.match(_LATIN, word) else ""
    after = f"(?!{_LATIN})" if re.match(_LATIN, word[-1]) else ""
    return f"{before}{re.escape(word)}{after}"


def _refuse_blocked(words: WordList | None, question: str) -> str:
    if words and words.pattern.search(question):
        chinese = is_mostly_chinese(question)
        raise ValueError(
            "其中有这台服务器不接受的词。"
            if chinese
            else "it contains a word that this server does not accept."
        )
    return question


class WordMask:
    """Replaces each character of a listed word by *, even if the word is split between pieces of a stream."""

    def __init__(self, words: WordList | None) -> None:
        self._words = words
        self._before = ""  # the last character passed on
        self._held = ""

    def feed(self, text: str) -> str:
        return self._passed(text, held=self._words.longest if self._words else 0)

    def flush(self) -> str:
        return self._passed("", held=0)

    def _passed(self, text: str, held: int) -> str:
        """Return all but the last `held` characters, in which a word may be unfinished."""
        if self._words is None:
            return text
        start, whole = len(self._before), self._before + self._held + text
        end = max(start, len(whole) - held)
        masked = list(whole)
        for match in self._words.pattern.finditer(whole, start):
            if match.start() < end:
                masked[match.start() : match.end()] = "*" * (match.end() - match.start())
                end = max(end, match.end())
        self._held, self._before = whole[end:], whole[:end][-1:]
        return "".join(masked[start:end])


class CodeFences:
    """An optional filter, named in ANSWER_FILTERS as the guide shows; not used elsewhere in the code. Removes
    the ``` and ~~~ lines that enclose code, and keeps the code."""

    _FENCE = re.compile(r" {0,3}(?:```|~~~)[^`\n]*\n?")
    _MAY_BECOME_ONE = re.compile(r" {0,3}(?:`{0,2}|~{0,2}|(?:```|~~~)[^`\n]*)")

    def __init__(self) -> None:
        self._line = ""  # the beginning of a line that may become a fence
        self._is_inside = False  # a line has been passed on in part

    def feed(self, text: str) -> str:
        return "".join(self._passed(piece) for piece in re.split(r"(?<=\n)", text) if piece)

    def flush(self) -> str:
        line, self._line = self._line, ""
        return "" if self._FENCE.fullmatch(line) else line

    def _passed(self, piece: str) -> str:
        line, self._line = self._line + piece, ""
        ends = line.endswith("\n")
        if not self._is_inside:
            if not ends and self._MAY_BECOME_ONE.fullmatch(line):
                self._line = line
                return ""
            if self._FENCE.fullmatch(line):
                return ""
        self._is_inside = not ends
        return line


class _FilterChain:
    """Pipes text through the filters in order, then through the scrubber, like all streamed text."""

    def __init__(self, classes: Sequence[tuple[str, Callable[[], AnswerFilter]]]) -> None:
        self._filters: list[tuple[str, AnswerFilter]] = []
        for path, made in classes:
            with _guarded(path):
                self._filters.append((path, made()))
        self._scrubber = TextScrubber()

    def feed(self, text: str) -> str:
        for path, each in self._filters:
            with _guarded(path):
                text = _text(each.feed(text)) if text else ""
        return self._scrubber.feed(text)

    def flush(self) -> str:
        text = ""
        for path, each in self._filters:
            with _guarded(path):
                text = (_text(each.feed(text)) if text else "") + _text(each.flush())
        return self._scrubber.feed(text) + self._scrubber.flush()


@contextmanager
def _guarded(path: str, *, refuses: bool = False) -> Iterator[None]:
    """Wrap a call of the deployment's code, which may raise anything: text never passes unfiltered."""
    try:
        yield
    except Exception as error:
        if refuses and isinstance(error, ValueError) and not isinstance(error, UnicodeError):
            reason = " ".join(str(error).split())[:REASON_CHARS] or "not accepted."
            raise QuestionRefusedError(f"question: {reason}") from error
        log.exception("text_filter_failed", filter=path)
        raise WenmaiError(FAILED) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text filter must return str, not {type(value).__name__}")
    return value


def _function(path: str) -> QuestionFilter:
    imported = _imported(path, "QUESTION_FILTERS")
    if not callable(imported) or inspect.iscoroutinefunction(imported) or not _accepts(imported, ""):
        raise StartRefusedError(f"QUESTION_FILTERS: {path!r} is not a function that takes a str.")
    return imported  # type: ignore[no-any-return]


def _class(path: str) -> Callable[[], AnswerFilter]:
    imported = _imported(path, "ANSWER_FILTERS")
    feed, flush = getattr(imported, "feed", None), getattr(imported, "flush", None)
    fits = (
        isinstance(imported, type)
        and _accepts(imported)
        and _accepts(feed, imported, "")
        and _accepts(flush, imported)
    )
    if not fits or inspect.iscoroutinefunction(feed) or inspect.iscoroutinefunction(flush):
        raise StartRefusedError(
            f"ANSWER_FILTERS: {path!r} is not a class made without arguments, with feed(text) and flush()."
        )
    return imported  # type: ignore[no-any-return]


def _imported(path: str, setting: str) -> Any:
    module_name, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except Exception as error:  # a third-party module may raise anything at import
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
        raise StartRefusedError(f"{setting}: {path!r} cannot be imported: {reason}") from error


def _accepts(function: object, *arguments: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True
