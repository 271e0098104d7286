"""Logs: structlog events on standard error, as JSON lines or as readable text."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
import traceback
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from config.secrets import Mask

_FIRST_FIELDS = ("timestamp", "level", "event")
_INNERMOST_FRAMES = 12


def configure_logging(level: str, mask: Mask | None = None, form: str = "auto") -> None:
    """`form` as in LOG_FORMAT. Logs never hold the text of a question, an answer, a document or a secret,
    only ids and counts; `mask` removes the secrets it knows, and what looks like a key, from all values."""
    terminal = sys.stderr.isatty()
    as_text = form == "text" or (form == "auto" and terminal)
    rendering: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if as_text:
        colors = terminal and not os.environ.get("NO_COLOR")
        rendering = [_lines_of_exception, structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("%Y-%m-%d %H:%M:%S" if as_text else "iso", utc=not as_text),
            without_messages,
            partial(_masked, mask or Mask()),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_LossyStream(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    server = logging.getLogger("uvicorn.error")
    server.handlers, server.propagate = [_ServerLog(level=logging.WARNING)], False


class _LossyStream:
    """Swallows write errors: with a full disk or a lost reader, lines are lost and nothing else stops."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _masked(mask: Mask, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Mask the values, and put the fields that every line has first."""
    event = {**dict.fromkeys(_FIRST_FIELDS), **event}
    return {name: mask(value) if isinstance(value, str) else value for name, value in event.items()}


def _lines_of_exception(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if "exception" in event:
        event["exception"] = "\n".join(event["exception"])
    return event


def without_messages(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Reduce an exception to its types and locations: its message may quote a question, a prompt or a key."""
    exc_info = event.pop("exc_info", None)
    if exc_info is True:
        exc_info = sys.exception()
    if exc_info:
        event["exception"] = described(exc_info[1] if isinstance(exc_info, tuple) else exc_info)
    return event


def described(error: BaseException | None) -> list[str]:
    """Return the type and innermost frames of the error, then those of its causes."""
    lines: list[str] = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)[-_INNERMOST_FRAMES:]
        lines.append(type(error).__qualname__)
        lines += [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


class _ServerLog(logging.Handler):
    """Logs uvicorn's records in our format, rate-limited: clients can cause floods, as by invalid HTTP."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._limited_log = RateLimitedLog()

    def emit(self, record: logging.LogRecord) -> None:
        message = {"message": record.getMessage().partition("\n")[0]}
        if record.exc_info:
            structlog.get_logger().log(record.levelno, "http_server", **message, exc_info=record.exc_info)
        else:
            self._limited_log(record.levelno, "http_server", message)


class RateLimitedLog:
    """Rate-limits lines that could flood the log: of each kind, `limit` are logged within `within_s` seconds
    and the rest are counted; afterwards one line reports their number as `more`. For the event loop only."""

    def __init__(self, limit: int = 5, within_s: float = 60.0) -> None:
        self._limit = limit
        self._within_s = within_s
        self._counts: Counter[tuple[object, ...]] = Counter()

    def __call__(self, level: int, event: str, kind: dict[str, Any], **fields: object) -> None:
        """Two lines are of the same kind if level, event and the fields of `kind` are equal."""
        key = (level, event, *kind.values())
        self._counts[key] += 1
        if self._counts[key] == 1:
            own = contextvars.Context()  # the total covers many requests, so it carries the id of none
            asyncio.get_running_loop().call_later(
                self._within_s, self._sum_up, key, level, event, kind, context=own
            )
        if self._counts[key] <= self._limit:
            structlog.get_logger().log(level, event, **kind, **fields)

    def _sum_up(self, key: tuple[object, ...], level: int, event: str, kind: dict[str, Any]) -> None:
        more = self._counts.pop(key) - self._limit
        if more > 0:
            structlog.get_logger().log(level, event, **kind, more=more, within_s=self._within_s)
