"""Erasure and its proof: what was erased, where it was searched for afterwards, what is left and why.

A proof names every place that can hold something, with how much was examined there and how much was found.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

from core.citing.passages import sentences
from core.conversation.turns import Turn

ERASED_ID = "00000000-0000-0000-0000-000000000000"  # replaces the id of an erased document


class ErasedKind(StrEnum):
    TURN = "turn"
    SESSION = "session"
    DOCUMENT = "document"
    OWNER = "owner"
    MEMORY = "memory"


class Thoroughness(StrEnum):
    """`REFERENCES`: every field that can hold one of the ids. `FULL`: every stored string, for the ids and
    for pieces of the texts."""

    REFERENCES = "references"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Traced:
    """All that identifies one erased thing, wherever it may have left a trace: none of it may remain.

    `owner` is whose it was, "" if nobody's. `session_id` is the turn's session, "" if unknown. `source` is a
    document's followed folder, "" for an upload. `texts` are pieces of its texts that occur nowhere else.
    """

    kind: ErasedKind
    name: str
    owner: str = ""
    session_id: str = ""
    turn_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    chunk_ids: tuple[str, ...] = ()
    memory_ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    shared: bool = False
    source: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """Every id that is unique; an owner's name is not, as it may be an everyday word."""
        lists = (self.turn_ids, self.session_ids, self.document_ids, self.chunk_ids, self.memory_ids)
        return frozenset(each for ids in lists for each in ids)


@dataclass(frozen=True, slots=True)
class Searched:
    """One place by name, how many items were examined there, and how many of them hold something."""

    place: str
    looked_at: int
    hits: int


@dataclass(frozen=True, slots=True)
class Left:
    """What is left, or may be, and what to do about it. `hits` is 0 if it only may be."""

    place: str
    hits: int
    what_to_do: str


@dataclass(frozen=True, slots=True)
class CopyHit:
    """A backup, or the store as it was before a re-embedding. `holds` is "yes", "no", or "may": it was made
    before the erasure, and could not be searched."""

    name: str
    made_at: str
    holds: str


@dataclass(frozen=True, slots=True)
class Proof:
    """`hits` is 0 if nothing is left. `complete`: every place was searched to its end, none was unavailable,
    and nothing is still under way except a rewrite of the store's files, which `left` announces. Times are
    RFC 3339 in UTC."""

    checked_at: str
    mode: Thoroughness
    hits: int
    complete: bool
    searched: tuple[Searched, ...]
    left: tuple[Left, ...] = ()
    backups: tuple[CopyHit, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """Turns and summaries (by the turn that holds them) that repeat an erased document verbatim."""

    turn_ids: tuple[str, ...] = ()
    summary_turn_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Erased:
    """`counts` are the erased items by kind; in a dry run, what would be erased, without a proof."""

    kind: ErasedKind
    dry_run: bool
    counts: dict[str, int]
    proof: Proof | None = None
    quoted_in: Quoted = field(default_factory=Quoted)
    receipt_id: str = ""


@dataclass(frozen=True, slots=True)
class ErasureOptions:
    """`with_answers`: erase answers that quote an erased document, too. `delete_backups`: delete archives
    that hold what is erased, too. `reason` goes into the receipt."""

    mode: Thoroughness = Thoroughness.REFERENCES
    with_answers: bool = False
    delete_backups: bool = False
    dry_run: bool = False
    reason: str = "request"


def total_hits(searched: Sequence[Searched]) -> int:
    return sum(each.hits for each in searched)


# Finding ids and owners: ids that are UUIDs are recognised anywhere, all others only by their field.


UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_BYTES = re.compile(UUID_TEXT.pattern.encode())
MAX_SEPARATE_SEARCHES = 8  # up to so many ids are searched for one by one
OWNER_FIELDS = frozenset(("owner", "writer"))
_ID_ENDINGS = ("id", "ids")


def uuids_of(ids: Collection[str]) -> frozenset[str]:
    return frozenset(each for each in ids if UUID_TEXT.fullmatch(each))


def non_uuids_of(ids: Collection[str]) -> frozenset[str]:
    """Return ids other than UUIDs (imported sessions): as possible words, never searched for in texts."""
    return frozenset(each for each in ids if each and not UUID_TEXT.fullmatch(each))


def mentioning(values: Collection[bytes]) -> Callable[[bytes], bool]:
    """Return a test whether stored bytes contain one of the values; of many, only UUIDs are found."""
    if len(values) <= MAX_SEPARATE_SEARCHES:
        return lambda body: any(each in body for each in values)
    many = frozenset(values)
    return lambda body: not many.isdisjoint(_UUID_BYTES.findall(body))


def is_id_field(path: str) -> bool:
    """Whether the field at `a.b` holds an id, or a list of ids."""
    return path.endswith(_ID_ENDINGS)


def has_id(value: Any, ids: Collection[str], path: str = "") -> bool:
    """Whether an id field of this payload holds exactly one of these ids."""
    match value:
        case str():
            return is_id_field(path) and value in ids
        case dict():
            return any(has_id(member, ids, str(key)) for key, member in value.items())
        case list():
            return any(has_id(member, ids, path) for member in value)
    return False


def is_owned_by(payload: Mapping[str, Any], owner: str) -> bool:
    """Whether a point with this payload belongs to this owner."""
    return bool(owner) and any(payload.get(field) == owner for field in OWNER_FIELDS)


# The text fields of a turn, derived from the record, so that no new field can be forgotten.


_NO_WORDS = frozenset(
    (
        "owner", "command", "request_hash", "finish_reason", "filters", "warnings", "request.date",
        "request.tools", "tool_calls.function.name", "images",
    )
)  # fmt: skip
_COPIED = frozenset(("sources", "prompt", "summary"))  # copied from documents or earlier turns
_STORED_AS = {"question": "user_query", "answer": "assistant_response", "rewritten": "rewritten_question"}


def own_words(record: type = Turn) -> tuple[str, ...]:
    """Return the text fields of a stored turn, as `a.b`, without ids, names and copies."""
    return tuple(
        dict.fromkeys(
            path
            for name, hint in get_type_hints(record).items()
            if name not in _NO_WORDS | _COPIED
            for path in _text_paths(hint, _STORED_AS.get(name, name))
            if path not in _NO_WORDS and not is_id_field(path)
        )
    )


def _text_paths(hint: Any, path: str) -> Iterator[str]:
    if hint is str:
        yield path
    elif is_dataclass(hint):
        for name, each in get_type_hints(hint).items():
            yield from _text_paths(each, f"{path}.{name}")
    else:  # a list, an optional part, or the values of a mapping
        parts = get_args(hint)
        for part in parts[1:] if get_origin(hint) is dict else parts:
            yield from _text_paths(part, path)


# Verbatim quotes: whether a text contains a whole sentence of another one.


MIN_QUOTE_CHARS = 20  # shorter sentences may be coincidence
PIECE_CHARS = 80
MAX_SENTENCES = 200_000


class Quotes:
    """The sentences of some texts that have at least MIN_QUOTE_CHARS characters."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._by_beginning: dict[str, set[str]] = defaultdict(set)
        self._number = 0
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return self._number

    def add(self, text: str) -> None:
        for span in sentences(text):
            sentence = text[span.start : span.end].strip()
            if len(sentence) >= MIN_QUOTE_CHARS and self._number < MAX_SENTENCES:
                same = self._by_beginning[sentence[:MIN_QUOTE_CHARS]]
                self._number += sentence not in same
                same.add(sentence)

    def discard(self, text: str) -> None:
        """Forget the sentences that this text contains, too."""
        for sentence in self.in_text(text):
            self._by_beginning[sentence[:MIN_QUOTE_CHARS]].discard(sentence)
            self._number -= 1

    def are_in(self, text: str) -> bool:
        """Whether the text contains one of them verbatim."""
        return bool(self._number) and next(iter(self.in_text(text)), None) is not None

    def in_text(self, text: str) -> list[str]:
        """Return those that the text contains, without duplicates."""
        if not self._number:
            return []
        quotes: dict[str, None] = {}
        known = self._by_beginning
        for start in range(len(text) - MIN_QUOTE_CHARS + 1):
            beginning = text[start : start + MIN_QUOTE_CHARS]
            if beginning in known:
                quotes |= {one: None for one in known[beginning] if text.startswith(one, start)}
        return list(quotes)


def pieces_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the beginning of each text that is long enough to be distinctive."""
    cut = (text.strip()[:PIECE_CHARS] for text in texts)
    return tuple(dict.fromkeys(piece for piece in cut if len(piece) >= MIN_QUOTE_CHARS))
