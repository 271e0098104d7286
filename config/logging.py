"""Logs: structlog events as JSON lines on standard error, or readable lines in a terminal."""

from __future__ import annotations

import logging
import sys
import traceback
from functools import partial
from types import TracebackType

import structlog
from structlog.typing import EventDict, WrappedLogger

from config.secrets import Mask

_INNERMOST_FRAMES = 12
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def configure_logging(level: str, mask: Mask | None = None) -> None:
    """Never the text of a question, an answer, a document or a secret: events carry ids and counts only,
    and what `mask` knows, or what looks like a key, is taken out of their values."""
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            without_messages,
            partial(_masked, mask or Mask()),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    server = logging.getLogger("uvicorn.error")
    server.handlers, server.propagate = [_ServerLog(level=logging.WARNING)], False


def _masked(mask: Mask, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {name: mask(value) if isinstance(value, str) else value for name, value in event.items()}


def without_messages(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """An exception as its types and places: its message may quote a question, a prompt or a key."""
    exc_info = event.pop("exc_info", None)
    if exc_info:
        _, error, _ = _exc_info(exc_info)
        event["exception"] = described(error)
    return event


def described(error: BaseException | None) -> list[str]:
    """Type and innermost places of the error, then of what caused it."""
    lines: list[str] = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)[-_INNERMOST_FRAMES:]
        lines.append(type(error).__qualname__)
        lines += [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


def _exc_info(exc_info: object) -> _ExcInfo | tuple[None, None, None]:
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    return exc_info if isinstance(exc_info, tuple) else sys.exc_info()


class _ServerLog(logging.Handler):
    """What uvicorn has to say, in our form."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger("uvicorn")
        message = record.getMessage().partition("\n")[0]
        log.log(record.levelno, "http_server", message=message, exc_info=record.exc_info)
