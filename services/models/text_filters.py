"""A deployment's own text filters, named by import path: for questions that come and answers that go."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import structlog

from core.errors import BadRequestError, StartRefusedError, WenmaiError
from core.text import TextScrubber, preprocess_question

log = structlog.get_logger()

QuestionFilter = Callable[[str], str]
FAILED = "A text filter of this server failed."
REASON_CHARS = 500


class AnswerFilter(Protocol):
    """For the text of one answer, in pieces: `feed` gives what is decided so far, `flush` the rest."""

    def feed(self, text: str) -> str: ...

    def flush(self) -> str: ...


AnswerFilters = Callable[[], AnswerFilter]
"""Makes the filter of one answer."""


class QuestionRefusedError(BadRequestError):
    """A filter of the deployment does not take this question; the message is the filter's."""

    code = "question_refused"


def load_question_filters(paths: Sequence[str]) -> QuestionFilter:
    """One function that applies the named ones (`package.module:function`, str → str) in order; what it gives
    is cleaned.

    It raises QuestionRefusedError for a ValueError of theirs, and WenmaiError for anything else they do
    wrong. Raises StartRefusedError when one cannot be imported or called with a text.
    """
    filters = [(path, _function(path)) for path in paths]
    if not filters:
        return preprocess_question

    def filtered(question: str) -> str:
        for path, function in filters:
            with _foreign(path, refuses=True):
                question = _text(function(question))
        return preprocess_question(question)

    return filtered


def load_answer_filters(paths: Sequence[str]) -> AnswerFilters | None:
    """What makes the filters of one answer (`package.module:Class`), in order; None when none is named.

    Raises StartRefusedError when a class cannot be imported, made without arguments, fed and flushed.
    """
    classes = [(path, _class(path)) for path in paths]
    if not classes:
        return None
    try:
        _FilterChain(classes)
    except WenmaiError as error:
        raise StartRefusedError(f"ANSWER_FILTERS: {error} It could not be made.") from error
    return lambda: _FilterChain(classes)


class _FilterChain:
    """Each filter's text goes into the next; in the end it is scrubbed, as all text that is streamed."""

    def __init__(self, classes: Sequence[tuple[str, Callable[[], AnswerFilter]]]) -> None:
        self._filters: list[tuple[str, AnswerFilter]] = []
        for path, made in classes:
            with _foreign(path):
                self._filters.append((path, made()))
        self._scrubber = TextScrubber()

    def feed(self, text: str) -> str:
        for path, each in self._filters:
            with _foreign(path):
                text = _text(each.feed(text)) if text else ""
        return self._scrubber.feed(text)

    def flush(self) -> str:
        text = ""
        for path, each in self._filters:
            with _foreign(path):
                text = (_text(each.feed(text)) if text else "") + _text(each.flush())
        return self._scrubber.feed(text) + self._scrubber.flush()


@contextmanager
def _foreign(path: str, *, refuses: bool = False) -> Iterator[None]:
    """Around a call of the deployment's own code, which may raise anything: it never passes unfiltered."""
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
    if not callable(imported) or inspect.iscoroutinefunction(imported) or not _takes(imported, ""):
        raise StartRefusedError(f"QUESTION_FILTERS: {path!r} is not a function that takes a str.")
    return imported  # type: ignore[no-any-return]


def _class(path: str) -> Callable[[], AnswerFilter]:
    imported = _imported(path, "ANSWER_FILTERS")
    feed, flush = getattr(imported, "feed", None), getattr(imported, "flush", None)
    fits = (
        isinstance(imported, type)
        and _takes(imported)
        and _takes(feed, imported, "")
        and _takes(flush, imported)
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
    except Exception as error:  # what a module of somebody else's does at import is not ours to know
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
        raise StartRefusedError(f"{setting}: {path!r} cannot be imported: {reason}") from error


def _takes(function: object, *arguments: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # written in C, and says nothing of its arguments
        return True
    return True
