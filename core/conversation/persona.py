"""A session's own system prompt: what a caller may give, and the form it is kept in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.errors import BadRequestError
from core.text import preprocess_question

MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class Persona:
    """`updated_us` is UTC microseconds. `document_id` and `chunk_id` name the passage the text is from."""

    persona_id: str
    name: str
    text: str
    updated_us: int
    document_id: str | None = None
    chunk_id: str | None = None


@dataclass(frozen=True, slots=True)
class PersonaDraft:
    """A persona as a caller gives it, before it has an id and a time."""

    text: str
    name: str = ""
    document_id: str | None = None
    chunk_id: str | None = None


def _anything(text: str) -> None:
    """No limit in tokens."""


@dataclass(frozen=True, slots=True)
class PersonaRules:
    """`check` refuses, with a BadRequestError, a text that has more tokens than its share of the window."""

    max_chars: int = 4_000
    check: Callable[[str], None] = _anything

    def checked(self, text: str, field: str = "text") -> str:
        """The text as it is kept: scrubbed and stripped. Raises BadRequestError, which names `field`."""
        if "\0" in text:
            raise BadRequestError(f"{field}: must not contain the NUL character.")
        text = preprocess_question(text)
        if not text:
            raise BadRequestError(f"{field}: must not be empty.")
        if len(text) > self.max_chars:
            raise BadRequestError(f"{field}: {len(text)} characters, at most {self.max_chars} are allowed.")
        self.check(text)
        return text
