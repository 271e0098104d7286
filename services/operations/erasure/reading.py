"""Exact searches of the store: by an index where there is one, else by reading the fields; owners with
anything stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from config.settings import StoreSettings
from core.dates import rfc3339
from core.knowledge import SHARED_OWNER
from core.operations.erasure import (
    ERASED_ID,
    MAX_SEPARATE_SEARCHES,
    MIN_QUOTE_CHARS,
    OWNER_FIELDS,
    UUID_TEXT,
    ErasedKind,
    Quoted,
    Quotes,
    Searched,
    Traced,
    is_id_field,
    non_uuids_of,
    own_words,
    uuids_of,
)
from core.owners import VISITOR_PREFIX, OwnerPage, StoredOwner
from services.store.dialect import Condition, Filter, Record, VectorStore
from services.store.points import (
    any_of,
    batches,
    equals,
    existing_points,
    newest_first,
    read_cursor,
    retrieve_all,
    scroll_all,
)

PAGE = 100  # payloads per response: a few milliseconds of the event loop


@dataclass(frozen=True, slots=True)
class Holding:
    """`looked_at` points were searched; `ids` are those that hold one of the values, by field."""

    looked_at: int
    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for ids in self.ids.values() for each in ids))


class StoreReader:
    """Reads any collection in small pages, so that the engine can serve others in between."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store

    async def count(self, collection: str, point_filter: Filter | None = None) -> int:
        return (await self._store.count(collection, count_filter=point_filter)).count

    async def existing(self, collection: str, point_ids: Collection[str]) -> set[str]:
        """Return which of these points exist; a text that is not an id is allowed."""
        return await existing_points(self._store, collection, list(filter(is_id, point_ids)))

    async def ids(self, collection: str, point_filter: Filter | None = None) -> list[str]:
        return [str(each.id) async for each in self.records(collection, point_filter, False)]

    async def records(
        self, collection: str, point_filter: Filter | None = None, fields: Sequence[str] | bool = True
    ) -> AsyncIterator[Record]:
        """Yield every matching point with these payload fields, in id order."""
        payload = fields if isinstance(fields, bool) else list(fields)
        async for record in scroll_all(
            self._store, collection, point_filter, size=PAGE, with_payload=payload
        ):
            yield record

    async def sessions_of(self, collection: str, point_ids: Iterable[str]) -> set[str]:
        """Return the sessions of these turns, "" for a turn that names none."""
        records = retrieve_all(self._store, collection, point_ids, ["session_id"])
        return {str((each.payload or {}).get("session_id", "")) async for each in records}

    async def holding(
        self,
        collection: str,
        keys: Sequence[str],
        values: Collection[str],
        within: Sequence[Condition] = (),
    ) -> Holding:
        """Find points in which one of these fields (`a[].b` for lists) is, or contains, one of the values."""
        indexed = frozenset((await self._store.get_collection(collection)).payload_schema)
        inside = Filter(must=list(within)) if within else None
        looked_at = await self.count(collection, inside)
        ids: dict[str, tuple[str, ...]] = dict.fromkeys(keys, ())
        if not values or not looked_at:
            return Holding(looked_at, ids)
        for key in keys:
            if key in indexed:
                ids[key] = await self._by_index(collection, key, values, within)
        read = [key for key in keys if key not in indexed]
        if read:
            ids |= await self._by_reading(collection, read, frozenset(values), inside)
        return Holding(looked_at, ids)

    async def _by_index(
        self, collection: str, key: str, values: Collection[str], within: Sequence[Condition]
    ) -> tuple[str, ...]:
        ids: dict[str, None] = {}
        for chunk in batches(sorted(values)):
            ids |= dict.fromkeys(await self.ids(collection, Filter(must=[any_of(key, chunk), *within])))
        return tuple(ids)

    async def _by_reading(
        self, collection: str, keys: Sequence[str], values: frozenset[str], inside: Filter | None
    ) -> dict[str, tuple[str, ...]]:
        by_key: dict[str, list[str]] = {key: [] for key in keys}
        async for record in self.records(collection, inside, keys):
            for key in keys:
                if not values.isdisjoint(texts_at(record.payload, key)):
                    by_key[key].append(str(record.id))
        return {key: tuple(ids) for key, ids in by_key.items()}


def texts_at(value: Any, key: str) -> list[str]:
    """Return the strings at a path such as `a.b[].c`, including the members of a list at its end."""
    level: list[Any] = [value]
    for step in key.replace("[]", "").split("."):
        members = [member for each in level for member in (each if isinstance(each, list) else [each])]
        level = [member[step] for member in members if isinstance(member, dict) and step in member]
    members = [member for each in level for member in (each if isinstance(each, list) else [each])]
    return [member for member in members if isinstance(member, str)]


def strings_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of a payload, object keys included, as (field path, string)."""
    match value:
        case str():
            yield path, value
        case dict():
            for key, member in value.items():
                yield path, key
                yield from strings_in(member, f"{path}.{key}" if path else str(key))
        case list():
            for member in value:
                yield from strings_in(member, path)


def is_id(text: str) -> bool:
    """Whether the store would accept it as the id of one of our points."""
    return len(text) == 36 and text.count("-") == 4 and not set(text.lower()) - set("0123456789abcdef-")


# The full proof: every stored string is searched for the ids and for pieces of the texts.


_RAW = "prompt.response.raw"  # the model's unprocessed answer
ANSWERED = frozenset(("assistant_response", "thinking", _RAW))
_READERS = frozenset(("user_query", "feedback.comment"))  # users may write a document's sentence on their own
_OWN_WORDS = frozenset((*own_words(), "title", _RAW))
_SUMMARY = "summary.text"


@dataclass(slots=True)
class FullResults:
    """The results of a full search. `texts` are (place, pieces of text that it contains)."""

    searched: list[Searched] = field(default_factory=list)
    texts: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    quoting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    summaries: dict[str, tuple[str, ...]] = field(default_factory=dict)


class FullSearch:
    """Reads the collections one by one, in small pages, and yields to the event loop after each record."""

    def __init__(self, reader: StoreReader, traced: Traced, document: Quotes | None) -> None:
        self._reader = reader
        self._traced, self._ids = traced, traced.ids  # built once: a session may have 20,000
        self._mentions = _mentions(uuids_of(self._ids))
        self._others = non_uuids_of(self._ids)
        self._pieces = set(traced.texts)
        self._document = document or Quotes()
        self._results = FullResults()

    async def run(self, collections: Sequence[str], knowledge: str) -> tuple[list[Searched], Quoted]:
        """Search all; `knowledge` names the chunks' collection: a text that another document contains as well
        is not evidence. Raises StoreUnavailableError."""
        for name in collections:
            await self._read(name, own_words=name == knowledge)
        results = self._results
        results.searched += self._remaining_texts()
        return results.searched, Quoted(self._still(results.quoting), self._still(results.summaries))

    async def _read(self, collection: str, *, own_words: bool) -> None:
        looked_at, hits = 0, Counter[str]()
        async for record in self._reader.records(collection):
            looked_at += 1
            if str(record.id) in self._ids:
                hits["id"] += 1
            for path in self._naming(record.payload or {}):
                hits[path] += 1
            self._read_texts(collection, record, own_words=own_words)
            await asyncio.sleep(0)
        self._results.searched.append(Searched(f"{collection}: every string", looked_at, 0))
        self._results.searched += [Searched(f"{collection}.{path}", looked_at, n) for path, n in hits.items()]

    def _naming(self, payload: dict[str, Any]) -> set[str]:
        """Return the fields that contain an id, alone or within a text."""
        traced = self._traced
        owner = traced.owner if traced.kind is ErasedKind.OWNER else None
        return {
            path
            for path, text in strings_in(payload)
            if self._mentions(text)
            or (text in self._others and is_id_field(path))
            or (text == owner and path in OWNER_FIELDS)
        }

    def _read_texts(self, collection: str, record: Record, *, own_words: bool) -> None:
        if not self._pieces and not len(self._document):
            return
        for path, text, others in _texts_in(record.payload or {}):
            if len(text) >= MIN_QUOTE_CHARS:
                self._read_pieces(collection, path, text, elsewhere=own_words or others)
                self._read_quotes(collection, str(record.id), path, text, elsewhere=own_words or others)

    def _read_pieces(self, collection: str, path: str, text: str, *, elsewhere: bool) -> None:
        """Search a text for pieces; a piece that another turn or a document also contains proves nothing."""
        present = {piece for piece in self._pieces if piece in text}
        if not present:
            return
        if elsewhere or path in _OWN_WORDS:
            self._pieces -= present
        else:
            self._results.texts.append((f"{collection}.{path}", tuple(present)))

    def _read_quotes(self, collection: str, point_id: str, path: str, text: str, *, elsewhere: bool) -> None:
        document = self._document
        if elsewhere:
            document.discard(text)
        elif quotes := tuple(document.in_text(text)):
            if path in ANSWERED:
                self._results.quoting[point_id] = quotes
            elif path == _SUMMARY:
                self._results.summaries[point_id] = quotes
            elif path not in _READERS:
                self._results.texts.append((f"{collection}.{path}", quotes))

    def _remaining_texts(self) -> list[Searched]:
        places = Counter(place for place, pieces in self._results.texts if self._distinctive(pieces))
        looked_at = len(self._traced.texts) + len(self._document)
        rows = [Searched(f"{place}: words", looked_at, hits) for place, hits in places.items()]
        return rows or [Searched("words of the texts, everywhere", looked_at, 0)]

    def _distinctive(self, pieces: Sequence[str]) -> bool:
        return any(piece in self._pieces or self._document.are_in(piece) for piece in pieces)

    def _still(self, quoting: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(each for each, pieces in quoting.items() if self._distinctive(pieces))


def _texts_in(payload: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield (field, string, whether it belongs to the citation of a document that was not erased)."""
    sources = payload.get("sources")
    for one in sources if isinstance(sources, list) else []:
        others = isinstance(one, dict) and one.get("document_id") != ERASED_ID
        for path, text in strings_in(one, "sources"):
            yield path, text, others
    for path, text in strings_in({name: value for name, value in payload.items() if name != "sources"}):
        yield path, text, False


def _mentions(ids: frozenset[str]) -> Callable[[str], bool]:
    if len(ids) <= MAX_SEPARATE_SEARCHES:
        return lambda text: len(text) >= 36 and any(each in text for each in ids)
    return lambda text: text in ids or (len(text) > 36 and not ids.isdisjoint(UUID_TEXT.findall(text)))


# Owners with anything stored, from the store's indexes.


MAX_OWNERS = 100_000
_CREATED = "created_us"


class Owners:
    """Every owner with anything stored; shared documents and turns without an owner are not counted.

    One facet per collection gives the counts, and one request per owner the newest turn: the time grows with
    the number of owners, not with how much they have stored.
    """

    def __init__(self, store: VectorStore, names: StoreSettings, known: Collection[str]) -> None:
        """`known` are the owners with a configured key."""
        self._store, self._known = store, known
        self._turns = names.conversation_collection
        self._kinds = {
            "sessions": names.session_collection,
            "turns": self._turns,
            "documents": names.document_collection,
            "memories": names.memory_collection,
        }

    async def page(self, limit: int, cursor: str | None = None) -> OwnerPage:
        """Raises BadRequestError naming `cursor`, and StoreUnavailableError."""
        after = read_cursor(cursor) if cursor else None
        counts = {kind: await self._by_owner(name) for kind, name in self._kinds.items()}
        names = set[str]().union(*counts.values()) - {"", SHARED_OWNER}
        places = sorted([(-await self._newest_us(owner), owner) for owner in names])
        rest = [place for place in places if after is None or place > after]
        owners = tuple(
            StoredOwner(
                owner=owner,
                known=None if owner.startswith(VISITOR_PREFIX) else owner in self._known,
                last_turn_at=rfc3339(-minus_us) if minus_us else None,
                **{kind: numbers.get(owner, 0) for kind, numbers in counts.items()},
            )
            for minus_us, owner in rest[:limit]
        )
        more = len(rest) > limit
        return OwnerPage(owners, f"{-rest[limit - 1][0]}.{rest[limit - 1][1]}" if more else None)

    async def _by_owner(self, collection: str) -> dict[str, int]:
        facet = await self._store.facet(collection, "owner", limit=MAX_OWNERS, exact=True)
        return {str(hit.value): hit.count for hit in facet.hits if hit.count}  # the engine lists deleted ones

    async def _newest_us(self, owner: str) -> int:
        """Return the time of the owner's newest turn, 0 without one."""
        records, _ = await self._store.scroll(
            self._turns,
            scroll_filter=Filter(must=[equals("owner", owner)]),
            limit=1,
            order_by=newest_first(_CREATED),
            with_payload=[_CREATED],
        )
        return int((records[0].payload or {}).get(_CREATED, 0)) if records else 0
