"""Where a value is stored, exactly: by an index where there is one, else by reading the fields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.store.dialect import Condition, Filter, Record, VectorStore
from services.store.filters import any_of
from services.store.pages import batches, scroll_all

PAGE = 100  # payloads in one answer: some milliseconds of the event loop


@dataclass(frozen=True, slots=True)
class Holding:
    """`looked_at` points; `ids` of those that hold one of the values, by field."""

    looked_at: int
    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for ids in self.ids.values() for each in ids))


class StoreReader:
    """Reads any collection in small pages: the engine answers others in between."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store

    async def count(self, collection: str, point_filter: Filter | None = None) -> int:
        return (await self._store.count(collection, count_filter=point_filter)).count

    async def existing(self, collection: str, point_ids: Collection[str]) -> list[str]:
        """Those of these points that exist; any text may be given for an id."""
        ids: list[str] = []
        for chunk in batches([each for each in point_ids if is_id(each)]):
            records = await self._store.retrieve(collection, chunk, with_payload=False)
            ids += [str(record.id) for record in records]
        return ids

    async def records(
        self, collection: str, point_filter: Filter | None = None, fields: Sequence[str] | bool = True
    ) -> AsyncIterator[Record]:
        """Every matching point with these fields of its payload, in id order."""
        payload = fields if isinstance(fields, bool) else list(fields)
        async for record in scroll_all(
            self._store, collection, point_filter, size=PAGE, with_payload=payload
        ):
            yield record

    async def holding(
        self,
        collection: str,
        keys: Sequence[str],
        values: Collection[str],
        within: Sequence[Condition] = (),
    ) -> Holding:
        """Points where one of these fields (`a[].b` for lists) is, or has, one of the values."""
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
            among = any_of(key, chunk)
            point_filter = Filter(must=[among, *within])
            ids |= {str(each.id): None async for each in self.records(collection, point_filter, False)}
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
    """The strings that stand at `a.b[].c`; a list at the end counts by its members."""
    level: list[Any] = [value]
    for step in key.replace("[]", "").split("."):
        members = [member for each in level for member in (each if isinstance(each, list) else [each])]
        level = [member[step] for member in members if isinstance(member, dict) and step in member]
    members = [member for each in level for member in (each if isinstance(each, list) else [each])]
    return [member for member in members if isinstance(member, str)]


def strings_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a payload, keys of free objects included, each with the field it stands in."""
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
    """Whether a store would take it for the id of one of our points."""
    return len(text) == 36 and text.count("-") == 4 and not set(text.lower()) - set("0123456789abcdef-")
