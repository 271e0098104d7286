"""A question in the forms it is searched with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SparseTerms:
    """A sparse vector: u32 term hashes, ascending and unique, with their weights."""

    indices: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class QueryForm:
    """One wording of the question. `weight` says how far its lists are trusted, 0…1."""

    text: str
    dense: list[float]
    sparse: SparseTerms
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """The question and all forms searched together.

    `forms[0]` is the question as it was asked, with its date where one is known; then joined with the one
    before, and with all of `previous` (earlier questions, oldest first). `last_answer` is what was answered
    to the last of them.
    """

    question: str
    forms: tuple[QueryForm, ...]
    previous: tuple[str, ...] = ()
    last_answer: str = ""
