"""Erasure and its proof: what was erased, where was looked for it afterwards, what is left and why.

A proof names every place that can hold something, with how much was looked at there and what was found.
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

ERASED_ID = "00000000-0000-0000-0000-000000000000"  # stands where the id of an erased document stood


class ErasedKind(StrEnum):
    TURN = "turn"
    SESSION = "session"
    DOCUMENT = "document"
    OWNER = "owner"
    MEMORY = "memory"


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
    memory_ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    shared: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """Every id of it that is one of a kind; an owner's name is not, it may be an everyday word."""
        lists = (self.turn_ids, self.session_ids, self.document_ids, self.chunk_ids, self.memory_ids)
        return frozenset(each for ids in lists for each in ids)


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
class CopyHit:
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
    backups: tuple[CopyHit, ...] = ()


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


# Where an id or an owner is named: ids that are UUIDs are recognised anywhere, all others by their field
# only.


UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_BYTES = re.compile(UUID_TEXT.pattern.encode())
FEW = 8  # ids that are looked for one by one
OWNER_FIELDS = frozenset(("owner", "writer"))
_ID_ENDINGS = ("id", "ids")


def uuids_of(ids: Collection[str]) -> frozenset[str]:
    return frozenset(each for each in ids if UUID_TEXT.fullmatch(each))


def others_of(ids: Collection[str]) -> frozenset[str]:
    """Such an id, of an imported session, may be an everyday word: it is never looked for in a text."""
    return frozenset(each for each in ids if each and not UUID_TEXT.fullmatch(each))


def mentioning(values: Collection[bytes]) -> Callable[[bytes], bool]:
    """Whether stored bytes have one of the values in them; of many, only those that are UUIDs are found."""
    if len(values) <= FEW:
        return lambda body: any(each in body for each in values)
    many = frozenset(values)
    return lambda body: not many.isdisjoint(_UUID_BYTES.findall(body))


def is_id_field(path: str) -> bool:
    """Whether what stands at `a.b` is an id, or a list of ids."""
    return path.endswith(_ID_ENDINGS)


def has_id(value: Any, ids: Collection[str], path: str = "") -> bool:
    """Whether a field for ids of this payload holds exactly one of these."""
    match value:
        case str():
            return is_id_field(path) and value in ids
        case dict():
            return any(has_id(member, ids, str(key)) for key, member in value.items())
        case list():
            return any(has_id(member, ids, path) for member in value)
    return False


def is_of(payload: Mapping[str, Any], owner: str) -> bool:
    """Whether a point with this payload is this owner's."""
    return bool(owner) and any(payload.get(field) == owner for field in OWNER_FIELDS)


# The words of a turn: derived from the record, so that a new field of text cannot be left out.


_NO_WORDS = frozenset(
    (
        "owner", "command", "request_hash", "finish_reason", "filters", "warnings", "request.date",
        "request.tools", "tool_calls.function.name", "images",
    )
)  # fmt: skip
_COPIED = frozenset(("sources", "prompt", "summary"))  # what documents, or the turns before it, say
_STORED_AS = {"question": "user_query", "answer": "assistant_response", "rewritten": "rewritten_question"}


def own_words(record: type = Turn) -> tuple[str, ...]:
    """Where a stored turn says something itself, as `a.b`: every text but ids, names and copies."""
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


# Verbatim quotes: whether a text says a whole sentence of another one.


LEAST_CHARS = 20  # a shorter sentence may be anybody's
PIECE_CHARS = 80
MAX_SENTENCES = 200_000


class Quotes:
    """The sentences of some texts, those of at least LEAST_CHARS characters."""

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
            if len(sentence) >= LEAST_CHARS and self._number < MAX_SENTENCES:
                same = self._by_beginning[sentence[:LEAST_CHARS]]
                self._number += sentence not in same
                same.add(sentence)

    def discard(self, text: str) -> None:
        """Forget the sentences that this text says, too."""
        for sentence in self.in_text(text):
            self._by_beginning[sentence[:LEAST_CHARS]].discard(sentence)
            self._number -= 1

    def are_in(self, text: str) -> bool:
        """Whether the text contains one of them, word for word."""
        return bool(self._number) and next(iter(self.in_text(text)), None) is not None

    def in_text(self, text: str) -> list[str]:
        """Those that the text contains, each once."""
        if not self._number:
            return []
        quotes: dict[str, None] = {}
        known = self._by_beginning
        for start in range(len(text) - LEAST_CHARS + 1):
            beginning = text[start : start + LEAST_CHARS]
            if beginning in known:
                quotes |= {one: None for one in known[beginning] if text.startswith(one, start)}
        return list(quotes)


def pieces_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The beginning of each text that is long enough to be distinctive."""
    cut = (text.strip()[:PIECE_CHARS] for text in texts)
    return tuple(dict.fromkeys(piece for piece in cut if len(piece) >= LEAST_CHARS))
