"""Erasure and its proof: what was erased, where was looked for it afterwards, what is left and why.

A proof names every place that can hold something, with how much was looked at there and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

ERASED_ID = "00000000-0000-0000-0000-000000000000"  # stands where the id of an erased document stood


class ErasedKind(StrEnum):
    TURN = "turn"
    SESSION = "session"
    DOCUMENT = "document"
    OWNER = "owner"


class Thoroughness(StrEnum):
    """`REFERENCES`: every field that can hold one of the ids. `FULL`: every string of everything stored, for
    the ids and for pieces of the texts."""

    REFERENCES = "references"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Traced:
    """What one thing is known by, wherever it may have left a trace: all that must not be found any more.

    `owner` is whose it was, "" when nobody's. `session_id` is where a turn stood, "" when that is not known.
    `texts` are pieces of its texts that nothing else says.
    """

    kind: ErasedKind
    name: str
    owner: str = ""
    session_id: str = ""
    turn_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    chunk_ids: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    shared: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """Every id of it that is one of a kind; an owner's name is not, it may be an everyday word."""
        return frozenset((*self.turn_ids, *self.session_ids, *self.document_ids, *self.chunk_ids))


@dataclass(frozen=True, slots=True)
class Searched:
    """One place by name, how many things were looked at there, and how many of them hold something."""

    place: str
    looked_at: int
    hits: int


@dataclass(frozen=True, slots=True)
class Left:
    """What is still there, or may be, and what to do about it. `hits` is 0 where it only may be."""

    place: str
    hits: int
    what_to_do: str


@dataclass(frozen=True, slots=True)
class CopyFound:
    """A backup, or the store as it was before a re-embedding. `holds` is "yes", "no", or "may": it was made
    before the erasure, and could not be searched."""

    name: str
    made_at: str
    holds: str


@dataclass(frozen=True, slots=True)
class Proof:
    """`hits` is 0 when nothing is found any more. `complete` says whether every place was searched to its
    end, none could not be, and nothing is still under way but a rewriting of the store's files, which
    `left` announces. Times are RFC 3339 in UTC."""

    checked_at: str
    mode: Thoroughness
    hits: int
    complete: bool
    searched: tuple[Searched, ...]
    left: tuple[Left, ...] = ()
    backups: tuple[CopyFound, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """Turns and summaries (by the turn that holds them) that say something of an erased document in its own
    words."""

    turn_ids: tuple[str, ...] = ()
    summary_turn_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """`counts` are what went, by kind; in a dry run what would go, and then there is no proof."""

    kind: ErasedKind
    dry_run: bool
    counts: dict[str, int]
    proof: Proof | None = None
    quoted_in: Quoted = field(default_factory=Quoted)
    receipt_id: str = ""


@dataclass(frozen=True, slots=True)
class ErasureOptions:
    """`with_answers`: answers that quote an erased document go, too. `delete_backups`: archives that hold
    what is erased go, too. `reason` is the receipt's."""

    mode: Thoroughness = Thoroughness.REFERENCES
    with_answers: bool = False
    delete_backups: bool = False
    dry_run: bool = False
    reason: str = "request"


def total_hits(searched: Sequence[Searched]) -> int:
    return sum(each.hits for each in searched)
