"""Domain errors, each with its wire `code` and whether a retry can help; and `where` an error comes from, in
a form that is safe to log.

WenmaiError
├── BadRequestError                  malformed or out of range; the message names the field
│   ├── MalformedRequestError
│   │   └── MalformedFormError
│   ├── ForbiddenHostError
│   ├── BodyTooLargeError
│   ├── EmptyQuestionError
│   ├── QuestionTooLongError
│   ├── InvalidParentError
│   ├── UnsupportedMediaError
│   ├── EmptyFileError
│   ├── UnreadableDocumentError
│   ├── ImageRefusedError            `fault` says why
│   └── MemoryRefusedError           a secret, nothing, or too long
├── NotFoundError                    unknown, or another owner's: the reply is the same
│   ├── UnknownSessionError
│   ├── UnknownTurnError
│   ├── UnknownModelError
│   ├── UnknownToolError
│   ├── UnknownToolCallError
│   ├── UnknownDocumentError
│   ├── UnknownJobError
│   ├── UnknownMemoryError
│   └── UnknownLibraryError          a module or a batch
├── ConflictError                    clashes with what is stored or running
│   ├── TurnConflictError
│   ├── SessionBusyError
│   └── StillRunningError            once that has ended, the same request is accepted
├── TooManyStreamsError
├── TooManyUploadsError              one owner's, or everybody's; in a while there is room
├── ShuttingDownError
├── UnauthorizedError                no key, or a wrong one
├── ForbiddenError                   an admin route, or a request from another site
├── UnavailableError                 an outside part does not answer; retryable
│   ├── StoreUnavailableError
│   │   ├── DiskFullError
│   │   └── StoreReadOnlyError
│   ├── NotStoredError
│   ├── TurnInterruptedError
│   ├── EmbeddingUnavailableError
│   ├── LLMUnavailableError
│   │   └── LLMRefusedError
│   └── LLMTruncatedError
└── StartRefusedError                the configuration or the data folder does not allow a start
    └── StoreLockedError

tests/core/test_errors.py compares this drawing with the classes.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from enum import StrEnum

TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})  # refusals that a retry may cure


class WenmaiError(Exception):
    """Base of all domain errors. `str(error)` is one plain sentence for a person; `retry_after_s` says when
    the same request may succeed, None if unknown."""

    code = "internal"
    retryable = False
    retry_after_s: float | None = None


class BadRequestError(WenmaiError):
    code = "invalid_request"


class MalformedRequestError(BadRequestError):
    """Cannot even be parsed: broken JSON, a wrong encoding, a duplicate key."""

    code = "invalid_json"


class MalformedFormError(MalformedRequestError):
    code = "invalid_form"


class ForbiddenHostError(BadRequestError):
    code = "invalid_host"


class BodyTooLargeError(BadRequestError):
    code = "body_too_large"


class EmptyQuestionError(BadRequestError):
    code = "empty_question"


class QuestionTooLongError(BadRequestError):
    code = "question_too_long"


class InvalidParentError(BadRequestError):
    code = "invalid_parent_turn"


class UnsupportedMediaError(BadRequestError):
    code = "unsupported_media_type"


class EmptyFileError(BadRequestError):
    code = "empty_file"


class UnreadableDocumentError(BadRequestError):
    """A document that cannot be turned into text; `code` says why (`encrypted`, `no_text`, …)."""

    def __init__(self, message: str, code: str = "unreadable_document") -> None:
        super().__init__(message)
        self.code = code


class ImageRefusedError(BadRequestError):
    """An image of a question is not accepted; `fault` is one of core.images.ImageFault, `number` the image's
    position, from 1, or 0."""

    code = "image_refused"

    def __init__(self, fault: str, message: str = "", number: int = 0) -> None:
        super().__init__(message or f"images: one is refused ({fault}).")
        self.fault = fault
        self.number = number


class MemoryRefusedError(BadRequestError):
    """The write gate refused; `reason` is one of core.memory.gate.Refusal."""

    code = "memory_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"content: it cannot be remembered ({reason}).")
        self.reason = reason


class NotFoundError(WenmaiError):
    code = "not_found"


class UnknownSessionError(NotFoundError):
    code = "unknown_session"


class UnknownTurnError(NotFoundError):
    code = "unknown_turn"


class UnknownModelError(NotFoundError):
    code = "unknown_model"


class UnknownToolError(NotFoundError):
    code = "unknown_tool"


class UnknownToolCallError(NotFoundError):
    code = "unknown_tool_call"


class UnknownDocumentError(NotFoundError):
    code = "unknown_document"


class UnknownJobError(NotFoundError):
    code = "unknown_job"


class UnknownMemoryError(NotFoundError):
    code = "unknown_memory"


class UnknownLibraryError(NotFoundError):
    code = "unknown_library"


class ConflictError(WenmaiError):
    code = "conflict"


class TurnConflictError(ConflictError):
    code = "turn_conflict"


class SessionBusyError(ConflictError):
    code = "session_busy"
    retryable = True


class StillRunningError(ConflictError):
    retryable = True


class TooManyStreamsError(WenmaiError):
    code = "too_many_streams"
    retryable = True


class TooManyUploadsError(WenmaiError):
    code = "too_many_uploads"
    retryable = True
    retry_after_s: float

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ShuttingDownError(WenmaiError):
    """The server finishes what it is writing and accepts nothing new."""

    code = "shutting_down"
    retryable = True


class UnauthorizedError(WenmaiError):
    code = "unauthorized"


class ForbiddenError(WenmaiError):
    code = "forbidden"


class Cause(StrEnum):
    """Why a model gave no answer, which decides what to do. `SPARED` and `BUSY`: it was never asked."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN_HOST = "unknown_host"
    TLS = "tls"
    TIMEOUT = "timeout"
    BROKE_OFF = "broke_off"
    NOT_AN_ANSWER = "not_an_answer"
    GARBLED = "garbled"
    EMPTY = "empty"
    CLASS_FAILED = "class_failed"
    SPARED = "spared"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """`place` is the server's scheme, host and port; `status` the HTTP status, 0 for none; `reason` the
    server's own words, which may hold a key: they are masked before anybody sees them."""

    cause: Cause
    place: str = ""
    status: int = 0
    reason: str = field(default="", repr=False)


class UnavailableError(WenmaiError):
    """`failure` is set if a model is what does not answer; `retry_after_s` is how long its server asked to be
    left alone."""

    code = "unavailable"
    retryable = True

    def __init__(
        self, message: str, failure: ModelFailure | None = None, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.retry_after_s = retry_after_s


class StoreUnavailableError(UnavailableError):
    code = "store_unavailable"


class DiskFullError(StoreUnavailableError):
    """Stored data is safe and readable; nothing more is written until there is space again."""

    code = "disk_full"


class StoreReadOnlyError(StoreUnavailableError):
    """Part of the stored data is lost. The rest is readable, and nothing is written until somebody has
    restored a backup or accepted the loss."""

    code = "store_read_only"
    retryable = False


class NotStoredError(UnavailableError):
    code = "not_stored"


class TurnInterruptedError(UnavailableError):
    code = "turn_interrupted"


class EmbeddingUnavailableError(UnavailableError):
    code = "embedding_unavailable"


class LLMUnavailableError(UnavailableError):
    """`transient`: the same request may succeed in a moment.

    `busy`: it waited in our own queue, which says nothing about the model's health.
    """

    code = "llm_unavailable"

    def __init__(
        self,
        message: str,
        failure: ModelFailure | None = None,
        *,
        transient: bool = False,
        retry_after_s: float | None = None,
        busy: bool = False,
    ) -> None:
        super().__init__(message, failure, retry_after_s=retry_after_s)
        self.transient = transient
        self.busy = busy


class LLMRefusedError(LLMUnavailableError):
    """The model's server refused the request itself.

    `status` is the HTTP status; `about_form` is False if it named a cause other than the messages' form.
    """

    def __init__(
        self,
        message: str,
        status: int,
        about_form: bool = True,
        *,
        place: str = "",
        reason: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        failure = ModelFailure(Cause.REFUSED, place, status, reason)
        super().__init__(
            message, failure, transient=status in TRANSIENT_STATUSES, retry_after_s=retry_after_s
        )
        self.retryable = self.transient
        self.status = status
        self.about_form = about_form


class LLMTruncatedError(UnavailableError):
    code = "llm_truncated"


class StartRefusedError(WenmaiError):
    """The server must not start like this; the message says what to change. Exit code 2."""

    code = "start_refused"


class StoreLockedError(StartRefusedError):
    """Another process owns the embedded store. Exit code 1."""

    code = "store_locked"


LOGGED_FRAMES = 5


def where(error: BaseException) -> list[str]:
    """Return the innermost frames of the error, at most five, as "module:line in function", innermost last.

    Without message, source lines or values: those may hold the question, the prompt or a key.
    """
    frames = list(traceback.walk_tb(error.__traceback__))[-LOGGED_FRAMES:]
    return [
        f"{frame.f_globals.get('__name__', '?')}:{line} in {frame.f_code.co_qualname}"
        for frame, line in frames
    ]
